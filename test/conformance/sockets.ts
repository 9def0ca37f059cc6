import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { TestServer } from "../support/server.ts";
import { openSocket, type SocketFrame, type SocketOptions, type TestSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";
import type { TopicHouse } from "./topics-bench.ts";

const subscriptionId = expect.stringMatching(/^sub_\w+$/);

/** Client frames that are refused without a subscription: malformed ones. */
const malformed = ["{", "[]", '"subscribe"', "{}", '{"type":"what"}'];
const malformedAsks = [
  '{"type":"subscribe"}',
  '{"type":"subscribe","subscription":[]}',
  '{"type":"subscribe","subscription":{"pattern":7}}',
  '{"type":"unsubscribe"}',
  '{"type":"unsubscribe","subscriptionId":7}',
];

/** Frames, options and codes of the WebSocket protocol, at every node of a house: the same, to the byte. */
export function socketConformance(name: string, open: () => Promise<TopicHouse>): void {
  describe(`sockets: ${name}`, () => {
    let house: TopicHouse;
    let server: TestServer;
    const opened: TestSocket[] = [];

    beforeAll(async () => {
      house = await open();
      server = house.nodes[0]!;
    }, 60_000);
    afterAll(async () => {
      for (const socket of opened) socket.close();
      await house?.close();
    });

    const connect = (options: SocketOptions = { key: server.adminKey }) =>
      Promise.all(
        house.nodes.map(async (node) => {
          const socket = await openSocket(node.url, options);
          opened.push(socket);
          return socket;
        }),
      );
    const emitAt = async (place: number, event: string, data: unknown = {}, more: object = {}) => {
      const node = house.nodes[place % house.nodes.length]!;
      const { status, body } = await node.rpc("SvcService", "Emit", { event, data, ...more });
      expect(status).toBe(200);
      return { eventId: body.eventId as string, sequence: Number(body.sequence) };
    };
    const answers = async (sockets: readonly TestSocket[], pattern: string, options?: object) =>
      Promise.all(sockets.map((socket) => socket.subscribe(pattern, options as never)));
    /** The events of each, once each has so many; the same texts everywhere. */
    async function events(sockets: readonly TestSocket[], count: number): Promise<SocketFrame[]> {
      await Promise.all(sockets.map((socket) => socket.wait("event", count)));
      const texts = sockets.map((socket) =>
        socket.texts.filter((text) => text.startsWith('{"type":"event"')),
      );
      for (const one of texts) expect(one.toSorted()).toEqual(texts[0]!.toSorted());
      return texts[0]!.map((text) => JSON.parse(text));
    }

    test("subscribe is confirmed with the pattern as it was sent, under one id everywhere", async () => {
      const sockets = await connect();
      for (const pattern of ["events:frames.a", "frames.*", "entity:cart.>", "topic:news", "system.run.>"]) {
        const all = await answers(sockets, pattern);
        for (const one of all)
          expect(structuredClone(one)).toMatchObject({ pattern, status: "ok", subscriptionId });
        expect(new Set(all.map((one) => one.subscriptionId)).size).toBe(1);
      }
      // A client of before subprotocols is told twice.
      const legacy = await connect({ query: `?token=${server.adminKey}` });
      await answers(legacy, "events:frames.a");
      for (const socket of legacy)
        expect((await socket.wait("subscribed"))[0]).toEqual({
          type: "subscribed",
          subscriptionId: expect.any(String),
          pattern: "events:frames.a",
        });
      for (const socket of sockets) expect(socket.of("subscribed")).toEqual([]);
    });

    test("event frames have one form, whichever node emits", async () => {
      const sockets = await connect();
      await answers(sockets, "events:formed.>");
      const sent: string[] = [];
      for (const place of house.nodes.keys())
        sent.push((await emitAt(place, `formed.e${place}`, { place })).eventId);
      const got = await events(sockets, sent.length);
      expect(got.map((frame) => Object.keys(frame))).toEqual(
        sent.map(() => ["type", "subscriptionId", "eventId", "topic", "data"]),
      );
      expect(got.map(({ eventId }) => eventId)).toEqual(sent);
    });

    test("unsubscribe ends deliveries; ack in all its forms changes nothing and is not answered", async () => {
      const sockets = await connect();
      const [{ subscriptionId: id }] = (await answers(sockets, "acked.>")) as [SocketFrame];
      const { eventId } = await emitAt(0, "acked.a");
      await events(sockets, 1);
      for (const socket of sockets)
        for (const ackType of ["ack", "nak", "term", "what"])
          socket.send({ type: "ack", eventId, ackType, ...(ackType === "nak" && { redeliverDelay: 1 }) });
      await emitAt(1, "acked.b");
      await events(sockets, 2);
      for (const socket of sockets) {
        expect(socket.of("event")).toHaveLength(2);
        expect(socket.of("error")).toEqual([]);
        socket.send({ type: "unsubscribe", subscriptionId: id });
      }
      // The answer to a later frame says that the earlier one was read.
      await answers(sockets, "acked.after");
      await emitAt(2, "acked.c");
      await emitAt(2, "acked.after");
      const got = await events(sockets, 3);
      expect(got.at(-1).topic).toBe("events:acked.after");
    });

    test("malformed frames are refused by one word, and the line stays open", async () => {
      const sockets = await connect();
      for (const text of [...malformed, ...malformedAsks])
        for (const socket of sockets) socket.sendText(text);
      for (const socket of sockets) socket.raw.send(new Uint8Array([1, 2]));
      for (const socket of sockets) {
        const said = { code: "INVALID_PATTERN", message: expect.any(String) };
        for (const error of await socket.wait("error", malformed.length + 1))
          expect(error).toEqual({ type: "error", ...said });
        for (const error of await socket.wait("subscription_error", malformedAsks.length))
          expect(error).toEqual({ type: "subscription_error", subscriptionId: "", retrying: false, ...said });
        expect(socket.texts).toEqual(sockets[0]!.texts);
        expect(socket.closed).toBeUndefined();
      }
    });

    test("refusals name their code, the same everywhere", async () => {
      const { sequence } = await emitAt(0, "codes.a");
      const cases: [string, object, string][] = [
        ["", {}, "INVALID_PATTERN"],
        ["a..b", {}, "INVALID_PATTERN"],
        ["a.>.b", {}, "INVALID_PATTERN"],
        ["a b", {}, "INVALID_PATTERN"],
        ["what:a", {}, "INVALID_PATTERN"],
        ["a", { replay: "2" }, "INVALID_PATTERN"],
        ["a", { replay: 1_001 }, "LIMIT_EXCEEDED"],
        ["a", { replay: -1 }, "INVALID_ARGUMENT"],
        ["a", { filter: "data.(" }, "INVALID_ARGUMENT"],
        ["a", { startAfterSequence: 1, replay: 1 }, "INVALID_ARGUMENT"],
        ["a", { startAfterSequence: 1, consumerGroup: "g" }, "INVALID_ARGUMENT"],
        ["a", { startAfterSequence: sequence + 1_000_000 }, "INVALID_ARGUMENT"],
      ];
      const sockets = await connect();
      for (const [pattern, options, code] of cases)
        for (const answer of await answers(sockets, pattern, options))
          expect(structuredClone(answer)).toMatchObject({
            ...{ pattern, status: "error", code },
            message: expect.any(String),
          });
      for (const socket of sockets) expect(socket.texts).toEqual(sockets[0]!.texts);
    });

    test("one subscription too many is LIMIT_EXCEEDED", async () => {
      const sockets = await connect();
      for (const socket of sockets)
        for (let number = 0; number < 101; number++)
          socket.send({ type: "subscribe", subscription: { pattern: `many.${number}` } });
      for (const socket of sockets) {
        const codes = (await socket.wait("subscription_result", 101)).map(({ results: [one] }) => one.code);
        expect(codes.filter((code) => code === "LIMIT_EXCEEDED")).toHaveLength(1);
      }
    });

    test("every option, live and from the past, gives the same frames everywhere", async () => {
      const first = await emitAt(0, "opted.a", { n: 1 }, { metadata: { tenant: "t" } });
      const second = await emitAt(1, "opted.a", { n: 2 }, { metadata: { tenant: "t" } });
      const meta = {
        timestamp: expect.any(String),
        sequence: second.sequence,
        sequenceExact: `${second.sequence}`,
        custom: { tenant: "t" },
      };
      const frame = { type: "event", subscriptionId, eventId: second.eventId, topic: "events:opted.a" };
      const shown = { ...frame, data: { n: 2 } };
      // A node that has not heard of the second yet would replay the first as the last.
      const witnesses = await connect();
      await answers(witnesses, "events:opted.a", { startAfterSequence: first.sequence });
      await Promise.all(witnesses.map((socket) => socket.wait("event")));
      for (const socket of witnesses) socket.close();
      const cases: [object, object, number][] = [
        [{ replay: 1 }, shown, 1],
        [{ replay: 1, includeMetadata: true }, { ...shown, meta }, 1],
        [{ replay: 1, topicOnly: true }, { ...frame, data: null }, 1],
        [{ replay: 1, topicOnly: true, includeMetadata: true }, { ...frame, data: null, meta }, 1],
        [{ replay: 1, filter: "data.n == 2 && metadata.tenant == 't'" }, shown, 1],
        [{ replay: 1, ackMode: "manual", backpressure: "drop", namespace: "x", unknown: [1] }, shown, 1],
        [{ startAfterSequence: first.sequence }, shown, 1],
        [{ startAfterSequence: `${first.sequence}` }, shown, 1],
        [{ startAfterSequence: 0, filter: "data.n <= 2" }, shown, 2],
      ];
      for (const [options, last, count] of cases) {
        const sockets = await connect();
        await answers(sockets, "events:opted.a", options);
        const got = await events(sockets, count);
        expect(structuredClone(got.at(-1))).toEqual(last as never);
        for (const socket of sockets) socket.close();
      }
    });

    test("a policy that forbids what is subscribed ends it, with a subscription_error", async () => {
      const body = { name: "reader", role_ids: ["role_viewer"] };
      const { key } = (await server.api("/api/v1/apikeys", { body })).body;
      const sockets = await connect({ key });
      const [{ subscriptionId: id }] = (await answers(sockets, "secret.>")) as [SocketFrame];
      const policy = await server.api("/api/v1/policies", {
        body: {
          name: "no secrets",
          effect: "deny",
          actions: "events:subscribe",
          resources: "irn:svc:*:*:event:*:events%3Asecret.*",
        },
      });
      await server.api("/api/v1/roles/role_viewer/policies", { body: { policy_id: policy.body.id } });
      await until(() => sockets.every((socket) => socket.of("subscription_error").length > 0), {
        about: "the end of the subscription at every node",
        deadlineMs: 15_000,
        everyMs: 50,
      });
      for (const socket of sockets)
        expect(socket.of("subscription_error")).toEqual([
          {
            type: "subscription_error",
            subscriptionId: id,
            code: "PERMISSION_DENIED",
            message: expect.any(String),
            retrying: false,
          },
        ]);
    }, 30_000);

    test("strangers are refused at the door of every node", async () => {
      for (const node of house.nodes)
        for (const key of [undefined, "ifkey_00000000000000000000000000000000"]) {
          const headers = {
            connection: "Upgrade",
            upgrade: "websocket",
            "sec-websocket-version": "13",
            "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
            ...(key && { authorization: `Bearer ${key}` }),
          };
          expect((await fetch(`${node.url}/ws`, { headers })).status).toBe(401);
        }
    });
  });
}
