import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket, type SocketOptions, type TestSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

describe.each(engines)("a socket on %s", (engine) => {
  let server: TestServer;
  const open: TestSocket[] = [];

  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(async () => {
    for (const socket of open) socket.close();
    await server.stop();
  });

  const connect = async (options: SocketOptions = { key: server.adminKey }) => {
    const socket = await openSocket(server.url, options);
    open.push(socket);
    return socket;
  };
  const emit = async (event: string, data: unknown = {}, metadata?: Record<string, unknown>) => {
    const answer = await server.rpc("SvcService", "Emit", { event, data, ...(metadata && { metadata }) });
    expect(answer.status).toBe(200);
    return { id: answer.body.eventId as string, sequence: Number(answer.body.sequence) };
  };

  test("an event comes to those whose patterns stand for it, and to nobody else", async () => {
    const socket = await connect();
    const ids: Record<string, string> = {};
    for (const pattern of [
      "events:order.placed",
      "events:order.*",
      "order.>",
      "events:other.>",
      "events:*",
    ]) {
      const result = await socket.subscribe(pattern);
      expect(result).toEqual({ pattern, status: "ok", subscriptionId: expect.stringMatching(/^sub_\w+$/) });
      ids[pattern] = result.subscriptionId;
    }
    const { id } = await emit("order.placed", { total: 7 });
    const got = await socket.wait("event", 3);
    expect(got).toHaveLength(3);
    expect(new Set(got.map((frame) => frame.subscriptionId))).toEqual(
      new Set([ids["events:order.placed"], ids["events:order.*"], ids["order.>"]]),
    );
    for (const { subscriptionId: _, ...frame } of got)
      expect(frame).toEqual({ type: "event", eventId: id, topic: "events:order.placed", data: { total: 7 } });
  });

  test("options: includeMetadata, topicOnly, filter", async () => {
    const socket = await connect();
    const full = await socket.subscribe("opts.>", { includeMetadata: true, unknown: { a: 1 } });
    const bare = await socket.subscribe("opts.>", { includeMetadata: true, topicOnly: true });
    const some = await socket.subscribe("opts.>", {
      filter: 'data.n > 1 && metadata.tenant == "t" && topic == "events:opts.a"',
    });
    await emit("opts.a", { n: 1 }, { tenant: "t" });
    const { sequence } = await emit("opts.a", { n: 2 }, { tenant: "t" });
    await socket.wait("event", 5);
    const of = (id: string) => socket.of("event").filter((frame) => frame.subscriptionId === id);
    expect(of(full.subscriptionId)[1]).toMatchObject({
      data: { n: 2 },
      meta: { sequence, sequenceExact: `${sequence}`, custom: { tenant: "t" } },
    });
    expect(Date.parse(of(full.subscriptionId)[1].meta.timestamp)).toBeGreaterThan(0);
    expect(of(bare.subscriptionId)[1]).toMatchObject({
      data: null,
      meta: { sequence, custom: { tenant: "t" } },
    });
    expect(of(some.subscriptionId).map((frame) => frame.data)).toEqual([{ n: 2 }]);
    expect(of(some.subscriptionId)[0]).not.toHaveProperty("meta");
  });

  test("the past comes first: replay and startAfterSequence, then what follows", async () => {
    const sequences: number[] = [];
    for (let number = 1; number <= 5; number++) {
      sequences.push((await emit("past.a", { number })).sequence);
      await emit("past.noise");
    }
    const socket = await connect();
    const cases: [string, Record<string, unknown>, number[]][] = [
      ["past.a", { replay: 2 }, [4, 5]],
      ["events:past.*", { replay: 4, filter: "has(data.number)" }, [2, 3, 4, 5]],
      ["past.a", { startAfterSequence: sequences[2], topicOnly: false }, [4, 5]],
      ["events:past.a", { startAfterSequence: 0, filter: "data.number > 0" }, [1, 2, 3, 4, 5]],
      ["events:past.a", { startAfterSequence: `${sequences[3]}`, filter: "data.number > 1" }, [5]],
    ];
    const ids: string[] = [];
    for (const [pattern, options] of cases)
      ids.push((await socket.subscribe(pattern, options)).subscriptionId);
    expect(new Set(ids).size).toBe(5);
    await emit("past.a", { number: 6 });
    for (const [at, [, , wanted]] of cases.entries()) {
      const of = () =>
        socket.of("event").flatMap((frame) => (frame.subscriptionId === ids[at] ? frame.data.number : []));
      await until(() => of().includes(6), { about: "the live event" });
      expect(of()).toEqual([...wanted, 6]);
    }
  });

  test("who asks is told where the subscription begins, and goes on only in the same log", async () => {
    const socket = await connect();
    const { sequence } = await emit("begun.a");
    const begun = await socket.subscribe("begun.>", { withStart: true });
    expect(begun).toMatchObject({ status: "ok", startSequence: `${sequence}` });
    const { epoch } = begun;
    expect(epoch).toMatch(/^\d+$/);
    const again = await socket.subscribe("begun.>", { withStart: true, startAfterSequence: 0, epoch });
    expect(again).toMatchObject({ status: "ok", startSequence: "0", epoch });
    expect(await socket.subscribe("system.run.>", { withStart: true })).not.toHaveProperty("startSequence");
    for (const other of ["999", 999, `${2n ** 64n - 1n}`])
      expect(await socket.subscribe("begun.>", { startAfterSequence: sequence, epoch: other })).toMatchObject(
        { status: "error", code: "INVALID_ARGUMENT", reason: "epoch_changed" },
      );
    expect(await socket.subscribe("begun.>", { epoch: "-1" })).toMatchObject({ code: "INVALID_PATTERN" });
  });

  test("what is refused says which rule it was, by the code", async () => {
    const socket = await connect();
    const { sequence } = await emit("refused.a");
    const cases: [string, Record<string, unknown>, string, RegExp][] = [
      ["", {}, "INVALID_PATTERN", /empty/],
      ["a..b", {}, "INVALID_PATTERN", /empty segment/],
      ["a.>.b", {}, "INVALID_PATTERN", /last segment/],
      ["a.b*", {}, "INVALID_PATTERN", /whole/],
      ["a b", {}, "INVALID_PATTERN", /whitespace/],
      ["what:a.b", {}, "INVALID_PATTERN", /unknown namespace "what"/],
      ["a", { replay: 1_001 }, "LIMIT_EXCEEDED", /1000/],
      ["a", { replay: -1 }, "INVALID_ARGUMENT", /replay/],
      ["a", { replay: "2" }, "INVALID_PATTERN", /replay/],
      ["a", { filter: "data.(" }, "INVALID_ARGUMENT", /filter/],
      ["a", { filter: "1 + 1" }, "INVALID_ARGUMENT", /filter/],
      ["a", { startAfterSequence: 1, replay: 2 }, "INVALID_ARGUMENT", /replay/],
      ["a", { startAfterSequence: 1, consumerGroup: "g" }, "INVALID_ARGUMENT", /consumerGroup/],
      ["a", { startAfterSequence: sequence + 1 }, "INVALID_ARGUMENT", /above the end/],
      ["a", { startAfterSequence: -1 }, "INVALID_PATTERN", /startAfterSequence/],
      ["system.run.>", { consumerGroup: "g" }, "INVALID_ARGUMENT", /consumerGroup/],
    ];
    for (const [pattern, options, code, message] of cases) {
      const { reason, ...result } = await socket.subscribe(pattern, options);
      expect(result).toEqual({ pattern, status: "error", code, message: expect.stringMatching(message) });
      expect(reason).toBe(String(message).includes("above the end") ? "position_ahead" : undefined);
    }
    socket.sendText(
      '{"type":"subscribe","subscription":{"pattern":"a","options":{"startAfterSequence":9007199254740993}}}',
    );
    const answers = await socket.wait("subscription_result", cases.length + 1);
    expect(answers.at(-1).results[0].message).toContain("9007199254740993");
    for (const text of ["{", "[]", '{"type":"what"}', '{"type":"unsubscribe"}', '{"type":"subscribe"}'])
      socket.sendText(text);
    const said = { code: "INVALID_PATTERN", message: expect.any(String) };
    for (const error of await socket.wait("error", 3)) expect(error).toEqual({ type: "error", ...said });
    for (const error of await socket.wait("subscription_error", 2))
      expect(error).toEqual({ type: "subscription_error", subscriptionId: "", retrying: false, ...said });
    expect(socket.closed).toBeUndefined();
  });

  test("a hundred subscriptions, and not one more until one is given back", async () => {
    const socket = await connect();
    const ids: string[] = [];
    for (let number = 0; number < 100; number++)
      ids.push((await socket.subscribe(`many.${number}`)).subscriptionId);
    expect((await socket.subscribe("many.more")).code).toBe("LIMIT_EXCEEDED");
    socket.send({ type: "unsubscribe", subscriptionId: ids[7] });
    expect((await socket.subscribe("many.more")).status).toBe("ok");
    await emit("many.7");
    await emit("many.more", { last: true });
    const got = await socket.wait("event");
    expect(got.map((frame) => frame.topic)).toEqual(["events:many.more"]);
  });

  test("ids are the same on every connection; alike ones on one are told apart", async () => {
    const [first, second] = [await connect(), await connect()];
    const ask = async (socket: TestSocket) => [
      (await socket.subscribe("same.*", { includeMetadata: true })).subscriptionId,
      (await socket.subscribe("events:same.*", { replay: 3, includeMetadata: true })).subscriptionId,
      (await socket.subscribe("same.*")).subscriptionId,
    ];
    const ids = await ask(first);
    expect(new Set(ids).size).toBe(3);
    expect(await ask(second)).toEqual(ids);
    await emit("same.a", { to: "both" });
    const texts = async (socket: TestSocket) => {
      await socket.wait("event", 3);
      return socket.texts.filter((text) => text.includes('"event"')).sort();
    };
    expect(await texts(first)).toEqual(await texts(second));
  });
});
