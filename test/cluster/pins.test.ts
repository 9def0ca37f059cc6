import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { createClient, createFunction, createWorker, type Worker } from "../../src/sdk/index.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };

describe.each(engines)("pinned runs at two nodes on %s", (engine) => {
  let nodes: TestServer[] = [];
  const workers: Worker[] = [];
  beforeAll(async () => {
    const settings = { leaseMs: 1_500, pollHoldMs: 1_000 };
    const first = await startTestServer({ engine, settings });
    // A file of libSQL is one process's.
    nodes =
      engine === "libsql" ? [first] : [first, await startTestServer({ engine, settings, home: first.home })];
  }, 120_000);
  afterAll(async () => {
    for (const worker of workers) worker.stop();
    for (const node of nodes.toReversed()) await node.stop();
  });

  async function start(deployment: string, node: TestServer, work: () => unknown): Promise<Worker> {
    const client = createClient({ url: node.url, apiKey: nodes[0]!.adminKey });
    const worker = createWorker({
      ...{ client, deployment, workerId: deployment, handleSignals: false, log: silent, checkpoint: 0 },
      functions: [
        createFunction({ id: "two", event: "two", pin: true, pinGrace: 300 }, async ({ step }) => {
          const first = await step.run("first", () => deployment);
          return [first, await step.run("second", work)];
        }),
      ],
    });
    workers.push(worker);
    await worker.start();
    return worker;
  }

  test("a worker is killed in the middle of a run, whose grace passes, and the other node's worker has it", async () => {
    const [first] = nodes as [TestServer];
    const client = createClient({ url: nodes.at(-1)!.url, apiKey: first.adminKey });
    const begun = Promise.withResolvers<void>();
    const killed = await start("k1", first, () => {
      begun.resolve();
      return new Promise(() => {});
    });
    const runId = (await client.emit("two", {})).runIds[0]!;
    await begun.promise;
    await start("k2", nodes.at(-1)!, () => "k2");
    killed.stop();
    const { store } = first.running.domain;
    // Nobody heard of it for longer than a worker may be silent. A node may still store its last heartbeat.
    const silence = () =>
      store.write((session) => session.run(sql`UPDATE workers SET last_heartbeat_at = 1 WHERE id = 'k1'`));
    const reasons = new Set<string>();
    const run = await until(
      async () => {
        await silence();
        for (const node of nodes) {
          await node.running.tick("runs.pins");
          await node.running.tick("runs.wake");
        }
        const found = await client.getRun(runId);
        if (found.pauseReason) reasons.add(found.pauseReason);
        return found.status === "completed" && found;
      },
      { about: "the moved run", deadlineMs: 20_000 },
    );
    expect(run.output).toEqual(["k1", "k2"]);
    expect([...reasons]).toEqual(["deployment_gone"]);
    const detail = await store.all<{ type: string; detail: string }>(
      sql`SELECT type, detail FROM run_history WHERE run_id = ${runId} AND type IN ('run.stranded', 'run.requeued') ORDER BY sequence`,
    );
    expect(detail.map(({ type, detail: text }) => [type, JSON.parse(text)])).toMatchObject([
      ["run.stranded", { deployment: "k1" }],
      ["run.requeued", { from: "k1", to: "k2", cause: "grace" }],
    ]);
  });
});
