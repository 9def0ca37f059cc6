import { afterAll, beforeAll, expect, test } from "bun:test";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { type AckedEmit, checkAll } from "../support/checkers.ts";
import { type Assignment, pullWorker } from "../support/pull-worker.ts";
import { callerOf, type Home, makeHome, type SpawnedServer, spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { clock, concurrently, emitUntilAcked, storeOf } from "./load.ts";

/** `bun run test:flow` tries more. */
const emits = Number(process.env.FLOW_EMITS ?? 240);
const keys = 2;
const rateLimit = { limit: 15, periodMs: 1_000, key: "data.k" };
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
}, 120_000);
afterAll(async () => {
  await store?.close();
  await Promise.all(nodes.map((node) => node.stop()));
  nodes = [];
  await home?.remove();
}, 120_000);

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

/** Workers of both nodes that complete what they get, until the answered function is called. */
function crowd(functionIds: readonly string[]): () => Promise<void> {
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
  return async () => {
    isOver = true;
    await Promise.all(workers);
  };
}

const define = async (id: string, options: object, event = "go") => {
  const { status } = await nodes[0]!.rpc("SvcService", "RegisterFunction", {
    ...{ id, triggers: [{ event }], ...options },
  });
  expect({ id, status }).toEqual({ id, status: 200 });
};

/** Asks `count` times, of both nodes in turn; the second is killed and comes back meanwhile. */
async function askBoth(count: number, ask: (number: number, url: () => string) => Promise<void>) {
  let restarting: Promise<void> | undefined;
  let done = 0;
  await concurrently(count, 8, async (number) => {
    await ask(number, () => nodes[number % 2]!.url);
    if (++done > count / 3) restarting ??= nodes[1]!.kill9().then(() => nodes[1]!.restart());
  });
  await restarting;
}

const allOver = () =>
  until(async () => (await store.one(sql`SELECT run_id FROM executions LIMIT 1`)) === undefined, {
    about: "every run to end",
    deadlineMs: 30_000 + 50 * emits,
    everyMs: 100,
  });

test("two nodes, one of them killed, keep every limit, lose nothing and starve nothing", async () => {
  await define("throttled", { throttle });
  await define("ranked", { priority: "data.rank", concurrency: { limit: 3 } });

  await define("rated", { rateLimit });
  await define("wide", { rateLimit: wide });
  await define("alone", { singleton: { mode: "skip", key: "data.k" } });
  const functionIds = ["throttled", "ranked", "rated", "wide", "alone"];

  const stop = crowd(functionIds);
  let isOver = false;
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
  await askBoth(emits, async (number, url) => {
    const data = { k: number % keys, rank: number % 7 === 0 ? -600 : number % 50 };
    const tenant = { environmentId: nodes[0]!.env, key: nodes[0]!.adminKey };
    acked.push(await emitUntilAcked({ event: "go", data, idempotencyKey: `k-${number}` }, { url, tenant }));
  });
  await allOver();
  isOver = true;
  await Promise.all([stop(), watching]);

  const runs = await store.all<{
    id: string;
    function_id: string;
    created_at: number;
    began_at: number;
    data: string;
  }>(
    sql`SELECT r.id, r.function_id, r.created_at, h.at AS began_at, v.data FROM runs r
      JOIN run_history h ON h.run_id = r.id AND h.type = 'run.started' AND h.detail LIKE '%"execution_seq":1,%'
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

test("the other options hold, and what waits for others or for its time is neither lost nor begun twice", async () => {
  const count = Math.ceil(emits / 3);
  const size = 4;
  await define("batched", { batch: { size, timeoutMs: 1_500, key: "data.k" } }, "more");
  await define("once", { idempotency: { key: "data.group", periodMs: 3_600_000 } }, "more");
  await define("newest", { singleton: { mode: "cancel", key: "data.k" } }, "more");
  await define("prompt", { startWithinMs: 1_000, concurrency: { limit: 1 } }, "more");
  await define("later", {}, "later");
  const stop = crowd(["batched", "once", "newest", "prompt", "later"]);
  const tenant = { environmentId: nodes[0]!.env, key: nodes[0]!.adminKey };
  const acked: AckedEmit[] = [];
  const delayed = new Set<string>();
  await askBoth(count, async (number, url) => {
    const data = { n: number, k: number % keys, group: Math.floor(number / 5) };
    acked.push(await emitUntilAcked({ event: "more", data, idempotencyKey: `m-${number}` }, { url, tenant }));
    if (number % 4 > 0) return;
    await emitUntilAcked(
      { event: "later", data, idempotencyKey: `l-${number}`, delayMs: 700 },
      { url, tenant },
    );
    delayed.add(`l-${number}`);
  });
  const left = () => store.one(sql`SELECT id FROM batches UNION ALL SELECT id FROM delayed_events`);
  await until(async () => (await left()) === undefined, { about: "what waits to begin", deadlineMs: 30_000 });
  await allOver();
  await stop();

  const runs = await store.all<{
    id: string;
    event_id: string;
    function_id: string;
    status: string;
    cause: string | null;
    began: number | null;
    data: string;
    key: string | null;
  }>(sql`SELECT r.id, r.event_id, r.function_id, r.status, r.cancellation_cause AS cause, v.data, v.idempotency_key AS key,
      (SELECT min(h.at) FROM run_history h WHERE h.run_id = r.id AND h.type = 'run.started') AS began
    FROM runs r JOIN events v ON v.id = r.event_id WHERE v.name IN ('more', 'later') ORDER BY v.position`);
  const of = (functionId: string) => runs.filter((run) => run.function_id === functionId);
  const dataOf = ({ data }: { data: string }) => JSON.parse(data) as { k: number; group: number };

  const given = await store.all<{ run_id: string; event_id: string; k: number }>(
    sql`SELECT b.run_id, b.event_id, CAST(CAST(v.data AS json) ->> 'k' AS BIGINT) AS k FROM batch_events b
      JOIN events v ON v.id = b.event_id`,
  );
  expect(given.map(({ event_id }) => event_id).toSorted()).toEqual(
    acked.map(({ eventId }) => eventId).toSorted(),
  );
  const batches = Map.groupBy(given, ({ run_id }) => run_id);
  expect(new Set(batches.keys())).toEqual(new Set(of("batched").map(({ id }) => id)));
  for (const own of batches.values()) {
    expect(own.length).toBeLessThanOrEqual(size);
    expect(new Set(own.map(({ k }) => k)).size).toBe(1);
  }

  const groups = of("once").map((run) => dataOf(run).group);
  expect(groups.toSorted((a, b) => a - b)).toEqual(
    Array.from({ length: Math.ceil(count / 5) }, (_, group) => group),
  );

  for (const own of Map.groupBy(of("newest"), (run) => dataOf(run).k).values()) {
    expect(own.at(-1)!.status).toBe("completed");
    for (const { status, cause } of own)
      expect([status, cause]).toEqual(status === "completed" ? [status, null] : ["cancelled", "singleton"]);
  }

  expect(of("prompt")).toHaveLength(count);
  for (const { status, cause, began } of of("prompt"))
    expect([status, cause]).toEqual(began === null ? ["cancelled", "start-within"] : ["completed", null]);

  expect(
    of("later")
      .map(({ key }) => key!)
      .toSorted(),
  ).toEqual([...delayed].toSorted());
  // The run of a batch begins behind the answers: its first event has it all the same.
  const late = new Map(of("batched").map(({ id, event_id }) => [event_id, id]));
  const told = acked.map((one) => ({
    ...one,
    runIds: [...one.runIds, ...[late.get(one.eventId)].filter((id) => id !== undefined)],
  }));
  expect(await checkAll(store, { acked: told, now: clock.now() })).toEqual([]);
}, 600_000);

test("a quota is exact, whichever node is asked and dies", async () => {
  const { env, adminKey } = nodes[0]!;
  await define("metered", {}, "metered");
  const set = (body: object) =>
    nodes[0]!.api(`/api/v1/environments/${env}/quotas`, { method: "PUT", body, key: adminKey });
  const concurrent = 25;
  expect((await set({ concurrent_runs: concurrent, runs_per_minute: 1_000_000 })).status).toBe(200);
  const refused: string[] = [];
  await askBoth(Math.ceil(emits / 4), async (number, url) => {
    const { rpc } = callerOf(url, () => adminKey);
    const answer = await rpc("SvcService", "Emit", { event: "metered", data: { number } }).catch(
      () => undefined,
    );
    if (answer && answer.status !== 200) refused.push(answer.body.message ?? "");
  });
  const begun = () =>
    store.all<{ at: number }>(sql`SELECT created_at AS at FROM runs WHERE function_id = 'metered'`);
  expect(await begun()).toHaveLength(concurrent);
  const told = refused.filter((message) => message.includes(`quota concurrent_runs`));
  expect(told.length).toBeGreaterThan(0);
  const [ledger] = await store.all<{ active_runs: number; bytes: number }>(
    sql`SELECT active_runs, bytes FROM quotas WHERE environment_id = ${env}`,
  );
  const [stored] = await store.all<{ bytes: number }>(
    sql`SELECT CAST(sum(octet_length(data) + COALESCE(octet_length(metadata), 0)) AS BIGINT) AS bytes FROM events`,
  );
  expect(ledger).toEqual({ active_runs: concurrent, bytes: stored!.bytes });

  const stop = crowd(["metered"]);
  await allOver();
  const perMinute = concurrent + 30;
  await set({ concurrent_runs: null, runs_per_minute: perMinute });
  await concurrently(Math.ceil(emits / 3), 8, async (number) => {
    await nodes[number % 2]!.rpc("SvcService", "Emit", { event: "metered", data: { number } });
  });
  await allOver();
  await stop();
  const minutes = Map.groupBy(await begun(), ({ at }) => Math.floor(at / 60_000));
  for (const own of minutes.values()) expect(own.length).toBeLessThanOrEqual(perMinute);
  await set({ runs_per_minute: null });
}, 600_000);
