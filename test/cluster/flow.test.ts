import { afterAll, beforeAll, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { type AckedEmit, checkAll } from "../support/checkers.ts";
import { type Assignment, pullWorker } from "../support/pull-worker.ts";
import { type Home, makeHome, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { clock, concurrently, emitUntilAcked, storeOf } from "./load.ts";

/** `bun run test:flow` tries more. */
const emits = Number(process.env.FLOW_EMITS ?? 240);
const keys = 2;
const rateLimit = { limit: 15, periodMs: 500, key: "data.k" };
/** Beyond a hundred starts are counted by slices of the period. */
const wide = { limit: 110, periodMs: 3_600_000 };
const throttle = { limit: 40, periodMs: 1_000, burst: 8, key: "data.k" };

let home: Home;
let nodes: SpawnedServer[] = [];
let store: Store;

beforeAll(async () => {
  home = await makeHome("postgres");
  const settings = { leaseMs: 1_500, pollHoldMs: 200 };
  for (const _ of [1, 2]) nodes.push(await spawnServer({ engine: "postgres", home, settings }));
  store = await storeOf(home);
}, 60_000);
afterAll(async () => {
  await store?.close();
  await Promise.all(nodes.map((node) => node.stop()));
  nodes = [];
  await home?.remove();
}, 60_000);

/** The most of `times` that any window of the period has. */
function mostWithin(times: readonly number[], periodMs: number): number {
  const sorted = times.toSorted((a, b) => a - b);
  let most = 0;
  for (let from = 0, to = 0; to < sorted.length; to++) {
    while (sorted[to]! - sorted[from]! >= periodMs) from++;
    most = Math.max(most, to - from + 1);
  }
  return most;
}

test("two nodes, one of them killed, keep every limit, lose nothing and starve nothing", async () => {
  const define = (id: string, options: object) =>
    nodes[0]!.rpc("SvcService", "RegisterFunction", { id, triggers: [{ event: "go" }], ...options });
  await define("throttled", { throttle });
  await define("ranked", { priority: "data.rank", concurrency: { limit: 3 } });

  await define("rated", { rateLimit });
  await define("wide", { rateLimit: wide });
  await define("alone", { singleton: { mode: "skip", key: "data.k" } });
  const functionIds = ["throttled", "ranked", "rated", "wide", "alone"];

  let isOver = false;
  const work = async (node: SpawnedServer, name: string) => {
    const worker = pullWorker(node, name);
    while (!isOver)
      try {
        await worker.register(...functionIds);
        for (let jobs: Assignment[] = []; !isOver; jobs = await worker.poll(4))
          await Promise.all(jobs.map((job) => worker.complete(job)));
      } catch {
        // The node was killed; what this worker held comes back when its lease ends.
        await clock.sleep(50);
      }
  };
  const workers = nodes.flatMap((node, at) => [1, 2].map((n) => work(node, `w${at}-${n}`)));
  const twice: unknown[] = [];
  const watch = async () => {
    while (!isOver) {
      twice.push(
        ...(await store.all(sql`SELECT count(*) AS count FROM executions e JOIN runs r ON r.id = e.run_id
          JOIN events v ON v.id = r.event_id WHERE e.function_id = 'alone'
          GROUP BY CAST(CAST(v.data AS json) ->> 'k' AS BIGINT) HAVING count(*) > 1`)),
      );
      await clock.sleep(5);
    }
  };
  const watching = watch();
  const acked: AckedEmit[] = [];
  let restarting: Promise<void> | undefined;
  await concurrently(emits, 8, async (number) => {
    const data = { k: number % keys, rank: number % 7 === 0 ? -600 : number % 50 };
    const tenant = { environmentId: nodes[0]!.env, key: nodes[0]!.adminKey };
    const url = () => nodes[number % 2]!.url;
    acked.push(await emitUntilAcked({ event: "go", data, idempotencyKey: `k-${number}` }, { url, tenant }));
    if (acked.length > emits / 3) restarting ??= nodes[1]!.kill9().then(() => nodes[1]!.restart());
  });
  await restarting;
  await until(async () => (await store.one(sql`SELECT run_id FROM executions LIMIT 1`)) === undefined, {
    about: "every run to end",
    deadlineMs: 30_000 + 50 * emits,
    everyMs: 100,
  });
  isOver = true;
  await Promise.all([...workers, watching]);

  const runs = await store.all<{
    id: string;
    function_id: string;
    created_at: number;
    began_at: number;
    data: string;
  }>(
    sql`SELECT r.id, r.function_id, r.created_at, h.at AS began_at, v.data FROM runs r
      JOIN run_history h ON h.run_id = r.id AND h.type = 'run.started' AND h.detail LIKE '%"execution_seq":1}'
      JOIN events v ON v.id = r.event_id`,
  );
  const timesOf = (functionId: string, time: "created_at" | "began_at") =>
    Map.groupBy(
      runs.filter(({ function_id }) => function_id === functionId),
      ({ data }) => (JSON.parse(data) as { k: number }).k,
    )
      .values()
      .map((own) => own.map((run) => run[time]))
      .toArray();
  expect(twice).toEqual([]);
  expect(timesOf("alone", "began_at").flat().length).toBeGreaterThan(keys);
  const answered = new Set(acked.flatMap(({ runIds }) => runIds));
  expect(answered).toEqual(new Set(runs.map(({ id }) => id)));
  for (const functionId of ["throttled", "ranked"])
    expect(timesOf(functionId, "began_at").flat()).toHaveLength(emits);

  const most = {
    throttled: timesOf("throttled", "began_at").map((times) => mostWithin(times, throttle.periodMs)),
    rated: timesOf("rated", "created_at").map((times) => mostWithin(times, rateLimit.periodMs)),
    wide: [mostWithin(timesOf("wide", "created_at").flat(), wide.periodMs)],
  };
  expect(most.throttled).toHaveLength(keys);
  for (const count of most.throttled) expect(count).toBeLessThan(throttle.limit + throttle.burst);
  for (const count of most.rated) expect(count).toBeLessThanOrEqual(rateLimit.limit);
  // However slow this machine is, the emits are within an hour: all places are taken.
  expect(most.wide).toEqual([wide.limit]);
  expect(await checkAll(store, { acked, now: clock.now() })).toEqual([]);
}, 600_000);
