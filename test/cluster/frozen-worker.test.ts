import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import { createClient } from "../../src/sdk/index.ts";
import type { Store } from "../../src/store/store.ts";
import { checkAll } from "../support/checkers.ts";
import { isNight } from "../support/night.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { clock } from "./load.ts";
import {
  endWork,
  type Journal,
  makeJournal,
  spawnWorker,
  stepsRepeated,
  type WorkerProcess,
} from "./workers.ts";

/** So long that a worker which is alive renews it over any pause. */
const leaseMs = 4_000;

describe.each(engines.filter((engine) => isNight || engine === "postgres"))("a worker on %s", (engine) => {
  let server: TestServer;
  let store: Store;
  let journal: Journal;
  const workers: WorkerProcess[] = [];

  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { leaseMs } });
    store = server.running.domain.store;
    journal = await makeJournal();
  }, 120_000);
  afterAll(() => endWork({ workers, server, journal }), 120_000);

  const startWorker = async (name: string) => {
    const worker = await spawnWorker(
      name,
      { url: server.url, key: server.adminKey },
      { journal, gated: true },
    );
    workers.push(worker);
    return worker;
  };
  const noted = (line: string) =>
    until(async () => (await journal.lines()).some((words) => words.join(" ") === line), {
      about: line,
    });

  /** All that the server knows of a run, but for how long its holder may still be silent. */
  async function factsOf(runId: string) {
    const of = (table: string, order: string) =>
      store.all(sql`SELECT * FROM ${sql.raw(table)} WHERE run_id = ${runId} ORDER BY ${sql.raw(order)}`);
    const [execution] = await of("executions", "run_id");
    return {
      run: await store.one(sql`SELECT * FROM runs WHERE id = ${runId}`),
      execution: execution && { ...execution, wake_at: undefined },
      steps: await of("steps", "sequence"),
      history: await of("run_history", "sequence"),
    };
  }

  test("that was frozen past its lease changes nothing when it goes on", async () => {
    const first = await startWorker("first");
    const { body } = await server.rpc("SvcService", "Emit", { event: "step.me" });
    const [runId] = body.runIds;
    await noted(`first start ${runId} two`);
    first.freeze();

    const second = await startWorker("second");
    await noted(`second start ${runId} two`);
    const held = await factsOf(runId);
    expect(held.execution).toMatchObject({ state: "leased", worker_id: "second" });
    // One more than the first's, or more where the second paused between two of its requests.
    expect(Number((held.execution as { execution_seq?: number }).execution_seq)).toBeGreaterThan(1);

    await first.openGate();
    first.thaw();
    await noted("first refused STALE_EXECUTION");
    expect(await factsOf(runId)).toEqual(held);

    await second.openGate();
    const run = await createClient({ url: server.url, apiKey: server.adminKey }).waitForRun(runId);
    expect(run).toMatchObject({ status: "completed", output: ["first", "second"], attempt: 1 });

    const lines = await journal.lines();
    const starts = (step: string) => lines.filter(([, what, , name]) => what === "start" && name === step);
    expect(starts("one")).toHaveLength(1);
    expect(starts("two")).toHaveLength(2);
    expect(stepsRepeated(lines)).toEqual([]);
    expect(lines.filter(([, what]) => what === "refused").map(([, , code]) => code)).toEqual([
      "STALE_EXECUTION",
    ]);
    expect(await checkAll(store, { now: clock.now() })).toEqual([]);
  }, 90_000);
});
