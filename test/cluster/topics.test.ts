import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type NatsServer, startNats } from "../support/nats.ts";
import { type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";
import { concurrently } from "./load.ts";

describe("topics at two nodes", () => {
  let home: Home;
  let nats: NatsServer;
  let nodes: [TestServer, TestServer];

  beforeAll(async () => {
    nats = await startNats();
    home = await makeHome("postgres");
    const start = (nodeId: string) =>
      startTestServer({ engine: "postgres", nats: nats.url, home, settings: { nodeId } });
    nodes = [await start("a"), await start("b")];
    for (const node of nodes)
      await until(async () => (await node.api("/ready")).status === 200, {
        about: "the bus",
        everyMs: 20,
      });
  }, 120_000);
  afterAll(async () => {
    await Promise.all(nodes.map((node) => node.stop()));
    await nats.stop();
    await home.remove();
  });

  test("whoever publishes where, subscribers of both get all of it once and in order, bus or no bus", async () => {
    const sockets = await Promise.all(nodes.map((node) => openSocket(node.url, { key: nodes[0].adminKey })));
    for (const socket of sockets) await socket.subscribe("topic:>", { includeMetadata: true });
    let sent = 0;
    const publish = (count: number) =>
      concurrently(count, 8, async (number) => {
        const answer = await nodes[number % 2]!.rpc("PubSubService", "Publish", {
          topic: `spread.t${number % 3}`,
          data: { number },
        });
        expect(answer.status).toBe(200);
        sent++;
      });
    const all = () =>
      until(() => sockets.every((socket) => socket.of("event").length >= sent), {
        about: "every message at both nodes",
        everyMs: 10,
      });
    await publish(200);
    await all();
    await nats.kill9();
    await publish(100);
    await all();
    await nats.restart({ wipe: true });
    await publish(100);
    await all();
    const whole = Array.from({ length: 400 }, (_, at) => at + 1);
    for (const socket of sockets) {
      expect(socket.of("event").map((frame) => frame.meta.sequence)).toEqual(whole);
      socket.close();
    }
    // Who was away goes on at the other node.
    const back = await openSocket(nodes[1].url, { key: nodes[0].adminKey });
    await back.subscribe("topic:>", { includeMetadata: true, startAfterSequence: 350 });
    await publish(10);
    const got = await back.wait("event", 60);
    expect(got.map((frame) => frame.meta.sequence)).toEqual(Array.from({ length: 60 }, (_, at) => at + 351));
    back.close();
  }, 120_000);
});
