import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type NatsServer, startNats } from "../support/nats.ts";
import { type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { concurrently } from "./load.ts";

describe("a log that is followed on another node", () => {
  let home: Home;
  let nats: NatsServer;
  let nodes: TestServer[];

  beforeAll(async () => {
    nats = await startNats();
    home = await makeHome("postgres");
    nodes = [];
    for (const nodeId of ["a", "b"])
      nodes.push(await startTestServer({ engine: "postgres", nats: nats.url, home, settings: { nodeId } }));
    await until(async () => (await nodes[1]!.api("/ready")).status === 200, {
      about: "the bus",
      everyMs: 20,
    });
  }, 120_000);
  afterAll(async () => {
    await Promise.all(nodes.map((node) => node.stop()));
    await nats.stop();
    await home.remove();
  });

  test("comes whole and in order, with the bus, without it, and with the bus back", async () => {
    const [a, b] = nodes as [TestServer, TestServer];
    const got: number[] = [];
    await b.running.domain.feeds.follow("env_default", {
      onEvents: (events) => void got.push(...events.map((event) => event.position)),
    });
    let sent = 0;
    const emit = (count: number) =>
      concurrently(count, 8, async (number) => {
        const answer = await a.rpc("SvcService", "Emit", { event: "fed.on", data: { number } });
        expect(answer.status).toBe(200);
        sent++;
      });
    const all = () =>
      until(() => got.length >= sent, {
        about: "every event on the other node",
        everyMs: 5,
      });
    await emit(200);
    await all();
    await nats.kill9();
    await emit(100);
    await all();
    await nats.restart({ wipe: true });
    await emit(100);
    await all();
    expect(got).toEqual(Array.from({ length: 400 }, (_, at) => at + 1));
  }, 90_000);
});
