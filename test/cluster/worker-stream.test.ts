import { afterAll, beforeAll, expect, test } from "bun:test";
import { type NatsServer, startNats } from "../support/nats.ts";
import { type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { openStreamWorker, transportOf } from "../support/stream-worker.ts";
import { until } from "../support/until.ts";

let home: Home;
let nats: NatsServer;
let nodes: TestServer[];

beforeAll(async () => {
  nats = await startNats();
  home = await makeHome("postgres");
  nodes = [];
  for (const nodeId of ["a", "b"])
    nodes.push(await startTestServer({ engine: "postgres", nats: nats.url, home, settings: { nodeId } }));
  await until(async () => (await nodes[1]!.api("/ready")).status === 200, { about: "the bus" });
});
afterAll(async () => {
  await Promise.all(nodes.map((node) => node.stop()));
  await nats.stop();
  await home.remove();
});

test("a run that begins on one node reaches a stream on another", async () => {
  const [a, b] = nodes as [TestServer, TestServer];
  await a.rpc("SvcService", "RegisterFunction", { id: "far", triggers: [{ event: "far" }] });
  const worker = openStreamWorker(transportOf("connect binary", b.running), { key: b.adminKey, id: "far" });
  await worker.register(["far"]);
  const { runIds } = (await a.rpc("SvcService", "Emit", { event: "far", data: {} })).body;
  const job = await worker.hear("job");
  expect(job.runId).toBe(runIds[0]);
  worker.ack(job);
  worker.complete(job, { by: "b" });
  await until(
    async () => {
      const { body } = await a.rpc("SvcService", "GetRun", { id: job.runId });
      return (body.run ?? body).status === "RUN_STATUS_COMPLETED";
    },
    { about: "the run to be over" },
  );
  worker.cut();
});
