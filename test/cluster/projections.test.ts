import { afterAll, beforeAll, expect, test } from "bun:test";
import { sharedNats } from "../support/nats.ts";
import { isEvent, projectionCaller } from "../support/projections.ts";
import { readsAfterWrites } from "../support/read-after-write.ts";
import { type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";

let home: Home;
let nodes: TestServer[] = [];
let callers: ReturnType<typeof projectionCaller>[];

beforeAll(async () => {
  home = await makeHome("postgres");
  const nats = (await sharedNats()).url;
  for (const _ of [1, 2]) nodes.push(await startTestServer({ engine: "postgres", home, nats }));
  callers = nodes.map((node) => projectionCaller(node));
}, 120_000);
afterAll(async () => {
  await Promise.all(nodes.map((node) => node.stop()));
  nodes = [];
  await home?.remove();
});

test("two nodes: a read that waited for its write is never stale, whichever node folds and whichever reads", async () => {
  await callers[0]!.ok("RegisterProjection", { name: "count", events: ["counted"] });
  for (let at = 1; at <= 20; at++) {
    const [here, there] = at % 2 === 0 ? [callers[0]!, callers[1]!] : [callers[1]!, callers[0]!];
    const { seq } = await here.emit("counted", { at });
    const waiting = there.ok("WaitProjectionCatchup", { name: "count", minSeq: `${seq}`, timeout: "20s" });
    const { events, currentState } = await here.poll("count");
    const count = (currentState?.count ?? 0) + events.length;
    expect((await here.save("count", seq, { count })).status).toBe(200);
    expect(await waiting).toMatchObject({ caughtUp: true });
    expect((await there.ok("GetProjection", { name: "count" })).state).toEqual({ count: at });
  }
});

test("two nodes: a read with the sequence of an append at the other node is never stale", async () => {
  const options = { name: "after", times: 200, lanes: 4, clock: () => performance.now() };
  const { stale, waitedMs } = await readsAfterWrites(nodes, options);
  expect([stale, waitedMs.length]).toEqual([0, 200]);
});

test("two nodes: a run is listed at the other node with the sequence of what started it", async () => {
  const [a, b] = nodes;
  await a!.rpc("SvcService", "RegisterFunction", {
    id: "begun",
    name: "begun",
    triggers: [{ event: "begin" }],
  });
  await a!.rpc("SvcService", "RegisterFunction", { id: "asked", name: "asked", triggers: [] });
  for (let at = 0; at < 10; at++) {
    const starts: [functionId: string, method: string, body: object][] = [
      ["begun", "Emit", { event: "begin" }],
      ["asked", "InvokeFunction", { functionId: "asked" }],
    ];
    for (const [functionId, method, body] of starts) {
      const started = await a!.rpc("SvcService", method, body);
      const headers = { "x-svc-min-sequence": started.headers.get("x-svc-sequence")! };
      const listed = await b!.rpc("SvcService", "ListRuns", { functionId, limit: 1 }, { headers });
      expect(listed.body.runs[0].id).toBe(started.body.runId ?? started.body.runIds[0]);
    }
  }
});

test("two nodes: a runner goes on at the other node where the first one was", async () => {
  const [a, b] = callers;
  await a!.ok("RegisterProjection", { name: "moved", events: ["moving"] });
  const one = await a!.emit("moving");
  const first = await a!.stream("StreamProjectionEvents", {
    name: "moved",
    runnerId: "a",
    acceptHeartbeats: true,
  });
  const second = await b!.stream("StreamProjectionEvents", {
    name: "moved",
    runnerId: "b",
    acceptHeartbeats: true,
  });
  const [got] = await first.wait(1, isEvent);
  // Saves may come by any node.
  expect((await b!.save("moved", one.seq, { n: 1 }, { runnerId: "a", fence: got.fence })).status).toBe(200);
  const two = await b!.emit("moving");
  await first.wait(2, isEvent);
  expect(second.frames.filter(isEvent)).toEqual([]);
  first.cut();
  const [taken] = await second.wait(1, isEvent);
  expect(taken.id).toBe(two.id);
  const late = await a!.save("moved", two.seq, { n: 9 }, { runnerId: "a", fence: got.fence });
  expect(late.body.code).toBe("failed_precondition");
  expect((await a!.save("moved", two.seq, { n: 2 }, { runnerId: "b", fence: taken.fence })).status).toBe(200);
  expect((await b!.ok("GetProjection", { name: "moved" })).state).toEqual({ n: 2 });
  second.cut();
});
