import { expect } from "bun:test";
import { type Sql, sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { type Cost, type HotPlans, hotPlans } from "./hot-plans.ts";
import { plant } from "./plant.ts";
import { type Assignment, pullWorker } from "./pull-worker.ts";
import { type CallOptions, makeHome, startTestServer, type TestServer } from "./server.ts";
import { until } from "./until.ts";

/** When the file began: what is planted is queued before it, and due long after. */
export const begunAt = Date.now();
const later = begunAt + 1_000_000_000;

/** Tables of hot statements, each with the values of a neighbour's rows; `n` counts them. */
const planted: Record<string, Record<string, string>> = {
  runs: {
    id: "'run_other' || n",
    event_id: "'evt_other' || n",
    status: "'active'",
    created_at: `${begunAt} - n`,
  },
  executions: {
    run_id: "'run_other' || n",
    state: "CASE n % 4 WHEN 0 THEN 'leased' WHEN 1 THEN 'sleeping' ELSE 'queued' END",
    wake_at: `CASE WHEN n % 4 < 2 THEN ${later} ELSE ${begunAt} - n END`,
    function_id: "'f' || n % 50",
    timeout_at: `CASE WHEN n % 2 = 0 THEN ${later} END`,
    lease_hash: "'x' || n",
  },
  events: { id: "'evt_other' || n", position: "n", name: "'other' || n % 100", data: "'{}'", at: "n" },
  waits: { run_id: "'run_other' || n", kind: "'wait'", step_id: "'s'", event_name: "'w' || n % 100" },
  steps: { run_id: "'run_other' || n", step_id: "'s'", status: "'completed'" },
  run_history: { run_id: "'run_other' || n", sequence: "1", detail: "'{}'" },
  run_attributes: { run_id: "'run_other' || n", name: "'place'", value: "'s' || n" },
  idempotency_keys: { key: "'k' || n", created_at: `${begunAt}` },
  streams: { entity_id: "'s' || n", entity_type: "'t'" },
  kv_keys: { bucket_id: "'b'", key: "'k' || n", revision: "n", operation: "'put'" },
  group_deliveries: { group_id: "'g' || n % 100", position: "n", event_id: "'e' || n", due_at: `${later}` },
  outbox: { id: "'o' || n", kind: "'realtime'", due_at: `${later}` },
  topic_messages: { position: "n", id: "'m' || n", topic: "'t' || n % 100" },
  invocations: { parent_run_id: "'run_other' || n", step_id: "'s'", due_at: `${later}` },
  lanes: { id: "'lane_other' || n", function_id: "'f' || n % 50", last_used_at: `${later}` },
  batch_events: { batch_id: "'b' || n % 100", position: "n", event_id: "'evt_other' || n" },
};
export const plantedTables = Object.keys(planted);
/** Those that are empty between bursts. */
export const transientTables = ["executions", "waits", "invocations", "group_deliveries", "outbox"];

/** `c` of pg_class is one of these tables or an index of one. */
export const ofTables = (tables: readonly string[]): Sql => {
  const named = sql.raw(tables.map((table) => `'${table}'::regclass`).join(", "));
  return sql`(c.oid IN (${named}) OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN (${named})))`;
};

/** What a statement may read in a round of `work`. */
export interface Bounds {
  /** Rows that the leaves of its plan looked at. */
  rows: number;
  /** Of a flush: all pages, and those that its scans read. */
  flushPages: number;
  flushScanned: number;
  /** Of any other statement: pages that its scans read. */
  scanned: number;
  /** Statements that may read so much instead. */
  wide?: readonly { text: RegExp; scanned: number; rows?: number }[];
}

/** Statements that are not hot: of loops that run at times. They read each row once at most. */
const apart: readonly { text: RegExp; why: string }[] = [
  {
    text: /\) slice$|ORDER BY (run_id|id) LIMIT \$\d+\) [er] WHERE|UNION SELECT run_id, environment_id FROM/,
    why: "The sweeper looks over executions and runs in slices of `sweepSliceMax`, a lookup each: operations/integrity-plans.",
  },
  {
    text: /AS function\b|AS last, h\.retention_floor AS floor/,
    why: "Checks of integrity look at `integrityRowsMax` rows: operations/integrity-plans.",
  },
  {
    text: /ORDER BY (d\.)?timeout_at/,
    why: "Of executions that are believed to be none, those with a timeout are read by environment and sorted.",
  },
  {
    text: /SET lane_id/,
    why: "Runs go into the lane of a new limit once; those of one function are read, in the order of their ids.",
  },
  {
    text: /FROM lanes l WHERE last_used_at/,
    why: "Idle lanes are looked for twice a minute, over all lanes: no index has the time of their last claim, which every claim changes.",
  },
];

export interface HotWork {
  server: TestServer;
  store: Store;
  plans: HotPlans;
  url: string;
  /** Rows of a neighbour in every hot table, numbered from `first`. */
  plantOthers(count: number, first?: number): Promise<void>;
  /** Runs of the environment that is tried, queued for its worker. */
  plantOwn(count: number, first?: number): Promise<void>;
  /** Works once with each hot statement tried before it runs; answers those that read more than they may. */
  excess(bounds: Bounds): Promise<string[]>;
  stop(): Promise<void>;
}

const functions: Record<string, object> = {
  busy: {},
  child: {},
  limited: { concurrency: { limit: 5 } },
  paced: { throttle: { limit: 50, periodMs: 1_000, burst: 50 } },
  gated: {
    singleton: { mode: "cancel", key: "data.n" },
    cancelOn: [{ event: "gated.stop", match: "data.n" }],
  },
  batched: { batch: { size: 4, timeoutMs: 60_000 } },
  debounced: { debounce: { periodMs: 60_000, key: "data.n" } },
};

/** Loops whose statements meet what was just done, in this order; all others run once behind them. */
const loops = [
  "runs.matcher",
  "runs.children",
  "runs.wake",
  "runs.deadlines",
  "batches.close",
  "debounce.fire",
  "outbox.relay",
  "groups.look",
];

/** A server on PostgreSQL whose statements are tried before they run, on tables that nothing but the test counts. */
export async function startHotWork(): Promise<HotWork> {
  const home = await makeHome("postgres");
  const url = home.place.databaseUrl!;
  const plans = await hotPlans(url);
  let store: Store | undefined;
  const server = await startTestServer({
    engine: "postgres",
    home,
    settings: { pollHoldMs: 0, leaseMs: 60_000 },
    aroundStore: (made) => {
      store = made;
      return plans.around(made);
    },
  });
  const own = store!;
  for (const table of plantedTables)
    await own.write((session) =>
      session.run(sql`ALTER TABLE ${sql.raw(table)} SET (autovacuum_enabled = off)`),
    );
  const rpc = rpcOf(server);
  for (const [id, more] of Object.entries(functions))
    await rpc("RegisterFunction", { id, triggers: [{ event: `${id}.asked` }], ...more });
  await server.api("/api/v1/kv/buckets", { body: { name: "b" } });
  const worker = pullWorker(server, "w");
  await worker.register(...Object.keys(functions));
  let rounds = 0;
  return {
    ...{ server, store: own, plans, url },
    plantOthers: (count, first) => plantOthers(own, count, first),
    plantOwn: (count, first) => plantOwn(own, count, first),
    async excess(bounds) {
      const worst = new Map<string, Worst>();
      plans.onCost = (text, cost, isFlush) => noteWorst(worst, text, { ...cost, isFlush });
      await work({ server, store: own, worker, rpc }, ++rounds);
      plans.onCost = undefined;
      expect(worst.size).toBeGreaterThan(80);
      return beyond(worst, bounds, await largest(own));
    },
    async stop() {
      plans.close();
      await server.stop();
      await home.remove();
    },
  };
}

async function plantOthers(store: Store, count: number, first = 1): Promise<void> {
  for (const [table, values] of Object.entries(planted))
    await plant(store, table, count, { environment_id: "'env_other'", ...values }, first);
}

async function plantOwn(store: Store, count: number, first = 1): Promise<void> {
  const own = { environment_id: "'env_default'", function_id: "'busy'", function_version: "1" };
  const { environment_id } = own;
  const [runId, eventId] = ["'run_own' || n", "'evt_own' || n"];
  await plant(store, "events", count, { environment_id, id: eventId, position: "-n", data: "'{}'" }, first);
  await plant(
    store,
    "runs",
    count,
    { ...own, id: runId, event_id: eventId, status: "'active'", created_at: `${begunAt}` },
    first,
  );
  await plant(
    store,
    "executions",
    count,
    {
      ...{ ...own, run_id: runId, state: "'queued'", wake_at: `${begunAt} - 1000 + n / 1000` },
      ...{ attempt: "1", max_attempts: "3", history_count: "1" },
    },
    first,
  );
}

type Worst = Cost & { isFlush: boolean };

function noteWorst(worst: Map<string, Worst>, text: string, cost: Worst): void {
  const short = text.replace(/\s+/g, " ");
  const { rows = 0, pages = 0, scanned = 0, by } = worst.get(short) ?? {};
  worst.set(short, {
    rows: Math.max(rows, cost.rows),
    pages: Math.max(pages, cost.pages),
    scanned: Math.max(scanned, cost.scanned),
    by: by !== undefined && scanned > cost.scanned ? by : cost.by,
    isFlush: cost.isFlush,
  });
}

/** Rows of the largest of the tables. */
async function largest(store: Store): Promise<number> {
  const counts = await Promise.all(
    plantedTables.map((table) =>
      store.one<{ count: number }>(sql`SELECT count(*) AS count FROM ${sql.raw(table)}`),
    ),
  );
  return Math.max(...counts.map((row) => Number(row?.count)));
}

function beyond(worst: Map<string, Worst>, bounds: Bounds, rowsOfLargest: number): string[] {
  const isMuch = (text: string, { rows, pages, scanned, isFlush }: Worst) => {
    const wide = bounds.wide?.find((one) => one.text.test(text));
    if (wide) return rows > (wide.rows ?? bounds.rows) || scanned > wide.scanned;
    if (isFlush) return rows > bounds.rows || pages > bounds.flushPages || scanned > bounds.flushScanned;
    // Two tables: the rows of one, and a lookup for each.
    if (apart.some((one) => one.text.test(text))) return rows > 2 * rowsOfLargest;
    return rows > bounds.rows || scanned > bounds.scanned;
  };
  return [...worst].flatMap(([text, cost]) =>
    isMuch(text, cost)
      ? `${cost.rows} rows, ${cost.scanned} of ${cost.pages} pages, most of ${cost.by}: ${text}`
      : [],
  );
}

const rpcOf =
  (server: TestServer) =>
  async (method: string, body: object, service = "SvcService", options: CallOptions = {}) => {
    const answer = await server.rpc(service, method, body, options);
    expect([method, answer.status, answer.body]).toEqual([method, 200, expect.anything()]);
    return answer.body;
  };

interface Hands {
  server: TestServer;
  store: Store;
  worker: ReturnType<typeof pullWorker>;
  rpc: ReturnType<typeof rpcOf>;
}

const many = (count: number, ask: (n: number) => Promise<unknown>) =>
  Promise.all(Array.from({ length: count }, (_, n) => ask(n)));

/** All that is hot, a few times each: as many at once as share a flush. */
async function work(hands: Hands, round: number): Promise<void> {
  const { server, store, worker, rpc } = hands;
  await write(hands, round);
  const jobs: Assignment[] = [];
  await until(
    async () => {
      jobs.push(...(await worker.poll(40)));
      return jobs.length >= 12 && jobs.some(({ function_id }) => function_id === "paced") ? true : undefined;
    },
    { about: "jobs" },
  );
  const held = await report(hands, jobs, round);
  await rpc("Emit", { event: `paid-${round}`, data: {} });
  await store.write((session) =>
    session.run(sql`UPDATE executions SET wake_at = 1 WHERE run_id IN ${sql.list(held)}`),
  );
  const others = server.running.loops.map(({ name }) => name).filter((name) => !loops.includes(name));
  for (const loop of [...loops, ...others]) await server.running.tick(loop);
}

async function write({ server, rpc }: Hands, round: number): Promise<void> {
  await many(20, (n) => rpc("Emit", { event: "busy.asked", data: { n }, idempotencyKey: `k-${round}-${n}` }));
  await many(8, (n) => rpc("Emit", { event: "limited.asked", data: { n } }));
  for (const id of ["paced", "gated", "batched", "debounced"])
    await many(6, (n) => rpc("Emit", { event: `${id}.asked`, data: { n } }));
  for (const expectedVersion of [0, 1])
    await rpc(
      "AppendEvent",
      { entityId: `e${round}`, entityType: "t", eventName: "x", expectedVersion },
      "EntityStreamService",
    );
  const messages = ["a", "b"].map((topic, data) => ({ topic, data }));
  await rpc("PublishBatch", { messages }, "PubSubService");
  await many(5, (n) => server.api(`/api/v1/kv/buckets/b/keys/k${n}`, { method: "PUT", body: n }));
  await many(5, (n) => server.api(`/api/v1/kv/buckets/b/keys/k${n}`));
}

/** Answers the runs whose time shall be over. */
async function report({ server, worker, rpc }: Hands, jobs: readonly Assignment[], round: number) {
  const [nap, wait, call, fail, lost, cancelled, tagged, untagged, ...others] = jobs;
  const sleepUntil = new Date(Date.now() + 60_000).toISOString();
  await rpc(
    "AppendEvent",
    { entityId: `of-run-${round}`, entityType: "t", eventName: "x", expectedVersion: 0 },
    "EntityStreamService",
    { headers: { "x-svc-run-id": tagged!.run_id } },
  );
  await Promise.all([
    worker.leave(nap!, "nap", { type: "sleep", until: sleepUntil }),
    worker.leave(wait!, "wait", {
      type: "wait_for_event",
      event_filter: { event: `paid-${round}`, timeout: "1h" },
    }),
    worker.leave(call!, "call", { type: "invoke_function", function_id: "child", input: {} }),
    worker.report(fail!, { status: "failed", error: { message: "no", retryable: true } }),
    worker.report(tagged!, { status: "completed", output: null, attributes: { place: `p${round}` } }),
    rpc("CancelRun", { id: cancelled!.run_id, reason: "no" }),
    server.api("/api/v1/workers/w/heartbeat", {
      body: {
        active_jobs: 1,
        jobs: [{ job_id: lost!.job_id, run_id: lost!.run_id, execution_seq: lost!.execution_seq }],
      },
    }),
    worker.report(untagged!, { status: "completed", output: null, attributes: { place: null } }),
    ...others.map((job) => worker.complete(job)),
  ]);
  return [nap!.run_id, lost!.run_id];
}
