import { describe, expect, test } from "bun:test";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import type { BusTransport } from "../../src/bus/bus.ts";
import { localNetwork } from "../../src/bus/local.ts";
import { openNatsTransport } from "../../src/bus/nats.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { loggedLines } from "../support/logged.ts";
import { sharedNats, startNats } from "../support/nats.ts";
import { freePort } from "../support/process.ts";
import { until } from "../support/until.ts";
import { busConformance } from "./bus.ts";

const clock = systemClock();
let installation = 0;

const closeAll = async (buses: readonly BusTransport[]) => {
  await Promise.all(buses.map((bus) => bus.close()));
};

busConformance("in-process", async () => {
  const hub = localNetwork();
  const buses: BusTransport[] = [];
  return {
    async open(count) {
      for (let n = 1; n <= count; n++) buses.push(hub({ clock, nodeId: `n${n}`, onError: () => {} }));
      return buses;
    },
    close: () => closeAll(buses),
  };
});

busConformance("core NATS", async () => {
  const { url } = await sharedNats();
  const prefix = `test${process.pid}-${++installation}.`;
  const buses: BusTransport[] = [];
  return {
    async open(count) {
      for (let n = 1; n <= count; n++)
        buses.push(openNatsTransport({ clock, log: silentLog, nodeId: `n${n}`, url, prefix }));
      await until(() => buses.every((bus) => bus.connected()), {
        deadlineMs: 20_000,
        everyMs: 10,
        about: "connections",
      });
      return buses;
    },
    close: () => closeAll(buses),
  };
});

describe("bus: core NATS that comes and goes", () => {
  const pair = (url: string) =>
    [1, 2].map((n) => openNatsTransport({ clock, log: silentLog, nodeId: `n${n}`, url }));

  test("a malformed heartbeat is logged and dropped; the connection stays", async () => {
    const { url } = await sharedNats();
    const prefix = `test${process.pid}-${++installation}.`;
    const { log, lines } = loggedLines();
    const [a, b] = [1, 2].map((n) => openNatsTransport({ clock, log, nodeId: `n${n}`, url, prefix }));
    const changes: boolean[] = [];
    const wait = { deadlineMs: 20_000, everyMs: 10 };
    try {
      // NATS may not know the subscriptions of a node that has just connected.
      await until(() => [a, b].every((node) => node!.present().length === 2), {
        ...wait,
        about: "each other",
      });
      a!.onConnection((connected) => changes.push(connected));
      for (const payload of ["{", "null", '{"nodeId":7,"facts":{}}', '{"nodeId":"n9"}'])
        b!.hint("presence", payload);
      const malformed = () => lines.filter(({ event }) => event === "bus.malformed_message");
      // Both nodes hear each of them.
      await until(() => malformed().length === 8, { ...wait, about: "lines of the log" });
      // As nodes of an older version send it.
      b!.hint("presence", '{"nodeId":"n3","facts":{}}');
      await until(() => a!.present().length === 3, { ...wait, about: "the others" });
      expect(malformed().every(({ fields }) => fields.subject === "presence")).toBe(true);
      expect(changes).toEqual([]);
    } finally {
      await closeAll([a!, b!]);
    }
  });

  test("names come back by themselves after the server forgot everything", async () => {
    const server = await startNats();
    const [a, b] = pair(server.url);
    const holds = (bus: typeof a, wanted: string) =>
      until(async () => (await bus!.hold("duty.x")) === wanted, {
        deadlineMs: 20_000,
        everyMs: 50,
        about: `a name that is ${wanted}`,
      });
    try {
      await holds(a, "mine");
      await holds(b, "theirs");
      await server.kill9();
      await holds(a, "unreachable");
      await server.restart({ wipe: true });
      await holds(b, "mine");
      // Who holds a name says so again and again: while the other is still on its way back, it would be free too soon.
      const held = async () => [await b!.hold("duty.x"), await a!.hold("duty.x")];
      await until(async () => (await held()).join() === "mine,theirs", {
        ...{
          deadlineMs: 20_000,
          everyMs: 50,
          about: "the name to be the new holder's, and not the old one's",
        },
      });
    } finally {
      await closeAll([a!, b!]);
      await server.stop();
    }
  }, 120_000);

  test("what NATS would not carry is refused, and what it cannot keep waits", async () => {
    const server = await startNats({ config: "max_payload: 2048", jetstream: false });
    const [a, b] = pair(server.url);
    const trouble = (sent: Promise<unknown>) =>
      sent.then(
        () => "none",
        (error: { trouble: string }) => error.trouble,
      );
    const message = { subject: "env.events.a", id: "evt_1/events:a", payload: "{}", headers: {} };
    try {
      await until(() => a!.connected(), { deadlineMs: 20_000, everyMs: 10, about: "a connection" });
      expect(await trouble(a!.send("x", "x".repeat(2_049), 20_000))).toBe("refused");
      expect(await trouble(a!.send("x", "x".repeat(2_048), 20_000))).toBe("none");
      // No JetStream: nothing is refused for good.
      expect(await trouble(a!.mirror!.publish([message]))).toBe("disconnected");
      await server.kill9();
      await until(() => !a!.connected(), { deadlineMs: 20_000, everyMs: 20, about: "the loss to be seen" });
      expect(await trouble(a!.send("x", "x", 2_000))).toBe("disconnected");
      expect(await trouble(a!.mirror!.publish([message]))).toBe("disconnected");
    } finally {
      await closeAll([a!, b!]);
      await server.stop();
    }
  }, 120_000);

  test("the mirror keeps each message once, in order, and refuses what is too large or has no subject", async () => {
    const server = await startNats({ config: "max_payload: 4096" });
    const [a, b] = pair(server.url);
    const message = (id: string, more: object = {}) => ({
      ...{ subject: `env.events.${id}`, id, payload: JSON.stringify({ id }), headers: { "Svc-Topic": id } },
      ...more,
    });
    try {
      await until(() => a!.connected(), { deadlineMs: 20_000, everyMs: 10, about: "a connection" });
      const publish = () =>
        a!.mirror!.publish([
          message("1"),
          message("2", { payload: "x".repeat(4_090) }),
          message("3", { subject: "env.*" }),
          message("4"),
        ]);
      for (let times = 0; times < 2; times++)
        expect((await publish()).map((error) => error?.trouble)).toEqual([
          undefined,
          "refused",
          "refused",
          undefined,
        ]);
      const outside = await connect({ servers: server.url });
      const manager = await jetstreamManager(outside);
      const { state } = await manager.streams.info("svc_mirror");
      expect(state.messages).toBe(2);
      const kept = [1, 2].map(
        async (seq) => (await manager.streams.getMessage("svc_mirror", { seq }))?.subject,
      );
      expect(await Promise.all(kept)).toEqual(["svc.mirror.env.events.1", "svc.mirror.env.events.4"]);
      await outside.close();
    } finally {
      await closeAll([a!, b!]);
      await server.stop();
    }
  }, 120_000);

  test("a server without JetStream elects nobody", async () => {
    const server = await startNats({ jetstream: false });
    const [a, b] = pair(server.url);
    try {
      await until(() => a!.connected(), { deadlineMs: 20_000, everyMs: 10, about: "a connection" });
      expect(await a!.hold("duty.x")).toBe("unreachable");
    } finally {
      await closeAll([a!, b!]);
      await server.stop();
    }
  }, 120_000);

  test("starts without a server, connects when it comes, and comes back after it was killed", async () => {
    const port = await freePort();
    const [a, b] = pair(`nats://127.0.0.1:${port}`);
    const got: string[] = [];
    const changes: boolean[] = [];
    b!.onHint("x", (payload) => got.push(new TextDecoder().decode(payload)));
    a!.onConnection((connected) => changes.push(connected));
    a!.hint("x", "lost");
    expect(a!.connected()).toBe(false);
    expect(a!.dropped()).toBe(1);
    const server = await startNats({ port });
    try {
      const reaches = (word: string) =>
        until(
          () => {
            a!.hint("x", word);
            return got.includes(word);
          },
          { deadlineMs: 20_000, everyMs: 20, about: `the hint "${word}"` },
        );
      await reaches("first");
      await server.kill9();
      await until(() => !a!.connected(), { deadlineMs: 20_000, everyMs: 20, about: "the loss to be seen" });
      a!.hint("x", "dropped");
      await server.restart();
      await reaches("second");
      expect(got).not.toContain("dropped");
      expect(changes.slice(0, 3)).toEqual([true, false, true]);
    } finally {
      await closeAll([a!, b!]);
      await server.stop();
    }
  }, 120_000);
});
