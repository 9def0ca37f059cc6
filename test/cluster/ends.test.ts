import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type NatsServer, startNats } from "../support/nats.ts";
import { type Home, makeHome, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

describe("a run that ends on another node", () => {
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

  test("is answered where its caller waits", async () => {
    const [a, b] = nodes as [TestServer, TestServer];
    await a.rpc("SvcService", "RegisterFunction", { id: "far" });
    await b.api("/api/v1/workers/w/register", { body: { function_ids: ["far"] } });
    for (let n = 0; n < 5; n++) {
      const asked = a.rpc("SvcService", "InvokeFunctionSync", { functionId: "far", data: { n } });
      let jobs: { job_id: string; execution_seq: number; lease_token: string }[] = [];
      await until(
        async () => {
          jobs = (await b.api("/api/v1/workers/w/jobs?available=1")).body?.jobs ?? [];
          return jobs.length > 0;
        },
        { about: "the job at the other node" },
      );
      const [{ job_id, execution_seq, lease_token }] = jobs as [(typeof jobs)[0]];
      await b.api(`/api/v1/workers/w/jobs/${job_id}`, {
        method: "PUT",
        body: { execution_seq, lease_token, status: "completed", output: { n } },
      });
      expect((await asked).body.result).toMatchObject({ status: "RUN_STATUS_COMPLETED", output: { n } });
    }
  }, 120_000);
});
