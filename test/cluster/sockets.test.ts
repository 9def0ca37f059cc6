import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type NatsServer, startNats } from "../support/nats.ts";
import { runOnce } from "../support/one-run.ts";
import { type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket, type TestSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";
import { concurrently } from "./load.ts";

describe("sockets at two nodes", () => {
  let home: Home;
  let nats: NatsServer;
  let a: TestServer;
  let b: TestServer;
  let sockets: TestSocket[];

  const ready = (node: TestServer) =>
    until(async () => (await node.api("/ready")).status === 200, {
      about: "the bus",
      everyMs: 20,
    });

  beforeAll(async () => {
    nats = await startNats();
    home = await makeHome("postgres");
    a = await startTestServer({ engine: "postgres", nats: nats.url, home, settings: { nodeId: "a" } });
    b = await startTestServer({ engine: "postgres", nats: nats.url, home, settings: { nodeId: "b" } });
    await Promise.all([ready(a), ready(b)]);
    sockets = [await openSocket(a.url, { key: a.adminKey }), await openSocket(b.url, { key: a.adminKey })];
  }, 120_000);
  afterAll(async () => {
    for (const socket of sockets) socket.close();
    await Promise.all([a.stop(), b.stop()]);
    await nats.stop();
    await home.remove();
  });

  test("get the same frames, in the same order, whichever node emits: with the bus, without it, and with it back", async () => {
    for (const socket of sockets)
      expect((await socket.subscribe("events:same.>", { includeMetadata: true })).status).toBe("ok");
    let sent = 0;
    const emit = (count: number) =>
      concurrently(count, 8, async (number) => {
        const node = number % 2 === 0 ? a : b;
        const answer = await node.rpc("SvcService", "Emit", {
          event: `same.e${number % 3}`,
          data: { number },
        });
        expect(answer.status).toBe(200);
        sent++;
      });
    const all = () => Promise.all(sockets.map((socket) => socket.wait("event", sent)));
    await emit(300);
    await all();
    await nats.kill9();
    await emit(100);
    await all();
    await nats.restart({ wipe: true });
    await Promise.all([ready(a), ready(b)]);
    await emit(100);
    await all();
    const [one, other] = sockets.map((socket) => socket.texts.filter((text) => text.includes('"event"')));
    expect(one).toHaveLength(500);
    expect(other).toEqual(one!);
  }, 120_000);

  test("a subscription goes on at the other node under its id", async () => {
    const first = await openSocket(a.url, { key: a.adminKey });
    const asked = { includeMetadata: true };
    const before = await first.subscribe("moves.>", asked);
    await a.rpc("SvcService", "Emit", { event: "moves.a", data: 1 });
    const [seen] = await first.wait("event");
    first.close();
    await a.rpc("SvcService", "Emit", { event: "moves.a", data: 2 });
    const second = await openSocket(b.url, { key: a.adminKey });
    const after = await second.subscribe("moves.>", { ...asked, startAfterSequence: seen.meta.sequence });
    expect(after.subscriptionId).toBe(before.subscriptionId);
    await b.rpc("SvcService", "Emit", { event: "moves.a", data: 3 });
    expect((await second.wait("event", 2)).map((frame) => frame.data)).toEqual([2, 3]);
    second.close();
  }, 120_000);

  test("frames of runs reach the other node, and the end of one that is awaited even without the bus", async () => {
    const [, there] = sockets as [TestSocket, TestSocket];
    const { subscriptionId } = await there.subscribe("system.run.>");
    // A run that is over at once may not be told of in between.
    const mine = () =>
      there
        .of("event")
        .filter((frame) => frame.subscriptionId === subscriptionId && !frame.topic.endsWith(".updated"));
    await until(() => a.running.domain.frames.wantsRuns("env_default"), { about: "node a to know of it" });
    const { runId } = await runOnce(a, "far", { status: "completed", output: 42 });
    await until(() => mine().length >= 2, { about: "both frames" });
    expect(mine().map((frame) => frame.topic)).toEqual([
      `system.run.${runId}.created`,
      `system.run.${runId}.completed`,
    ]);
    expect(mine()[1].data.output).toBe(42);

    await a.rpc("SvcService", "RegisterFunction", { id: "lost", triggers: [{ event: "lost.asked" }] });
    const { body } = await a.rpc("SvcService", "Emit", { event: "lost.asked" });
    const awaited = body.runIds[0] as string;
    const own = await there.subscribe(`system.run.${awaited}.>`, { replay: 1_000 });
    await nats.kill9();
    expect((await a.rpc("SvcService", "CancelRun", { id: awaited })).status).toBe(200);
    const topics = () =>
      there.of("event").flatMap((frame) => (frame.subscriptionId === own.subscriptionId ? frame.topic : []));
    await until(() => topics().length >= 2, { about: "the end of the run" });
    expect(topics()).toEqual([`system.run.${awaited}.created`, `system.run.${awaited}.cancelled`]);
    await nats.restart({ wipe: true });
    await Promise.all([ready(a), ready(b)]);
    await until(
      async () => {
        await runOnce(a, "far", { status: "completed", output: 43 });
        return mine().some((frame) => frame.data.output === 43);
      },
      { about: "frames to come again", everyMs: 100 },
    );
  }, 120_000);
});
