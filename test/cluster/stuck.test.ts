import { afterAll, beforeAll, expect, test } from "bun:test";
import { laneOfEnvironment } from "../../src/kit/lanes.ts";
import { combineLanes, combineWaitingMax } from "../../src/kit/limits.ts";
import { type Sql, sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { type AckedEmit, checkAll } from "../support/checkers.ts";
import { type Answer, callerOf, startTestServer, type TestServer } from "../support/server.ts";
import { clock, emitUntilAcked, makeTenants, storeOf, type Tenant } from "./load.ts";

/** A lock that is not had within this is given up (store settings). */
const lockMs = 2_000;
/** What a flush may take on a busy machine. */
const flushMs = 600;

let server: TestServer;
let store: Store;
let tenants: Tenant[];

beforeAll(async () => {
  server = await startTestServer({ engine: "postgres" });
  tenants = await makeTenants(server, 30);
  store = await storeOf(server.home);
});
afterAll(async () => {
  await store.close();
  await server.stop();
});

/** Locks what a query selects in a transaction that is never idle, so that nobody ends it. */
async function hold(rows: Sql) {
  let over = false;
  let locked = () => {};
  const held = new Promise<void>((done) => {
    locked = done;
  });
  const holding = store.write(async (session) => {
    await session.all(rows);
    locked();
    while (!over) await session.all(sql`SELECT 1 FROM pg_sleep(0.1)`);
  });
  await held;
  return async () => {
    over = true;
    await holding;
  };
}

const holdHead = (environmentId: string) =>
  hold(sql`SELECT position FROM heads WHERE environment_id = ${environmentId} FOR UPDATE`);

/** Emits one after the other until told to stop; answers how long each took. */
function emitting(tenant: Tenant, acked: AckedEmit[]) {
  const tookMs: number[] = [];
  let over = false;
  const { url } = server;
  const going = (async () => {
    for (let count = 0; !over; count++) {
      const from = performance.now();
      const emission = { event: "tick", idempotencyKey: `${tenant.environmentId}-${tookMs.length}-${count}` };
      acked.push(await emitUntilAcked(emission, { url: () => url, tenant }));
      tookMs.push(performance.now() - from);
      await Bun.sleep(5);
    }
  })();
  return {
    tookMs,
    async stop() {
      over = true;
      await going;
    },
  };
}

test("a stuck head stalls its neighbours of the lane for one lock timeout, and no other lane", async () => {
  const lane = laneOfEnvironment(tenants[0]!.environmentId);
  const laneMates = tenants.slice(1).filter(({ environmentId }) => laneOfEnvironment(environmentId) === lane);
  const others = tenants.filter(({ environmentId }) => laneOfEnvironment(environmentId) !== lane);
  expect(new Set(others.map(({ environmentId }) => laneOfEnvironment(environmentId))).size).toBe(
    combineLanes - 1,
  );

  const letGo = await holdHead(tenants[0]!.environmentId);
  const acked: AckedEmit[] = [];
  const stuck = [1, 2, 3].map(() => emitting(tenants[0]!, acked));
  const mates = laneMates.slice(0, 3).map((tenant) => emitting(tenant, acked));
  const free = others.slice(0, 9).map((tenant) => emitting(tenant, acked));
  await Bun.sleep(4 * lockMs);
  const stuckAcks = stuck.flatMap(({ tookMs }) => tookMs).length;
  await letGo();
  await Promise.all([...stuck, ...mates, ...free].map((one) => one.stop()));

  const longest = (list: { tookMs: number[] }[]) => Math.max(...list.flatMap(({ tookMs }) => tookMs));
  expect(stuckAcks).toBe(0);
  expect(longest(mates)).toBeLessThan(lockMs + flushMs);
  expect(longest(free)).toBeLessThan(flushMs);
  expect(await checkAll(store, { acked, now: clock.now() })).toEqual([]);
}, 30_000);

test("with the store stalled, callers beyond what may wait are told at once to come back", async () => {
  const tenant = tenants[0]!;
  const letGo = await holdHead(tenant.environmentId);
  const { rpc } = callerOf(
    () => server.url,
    () => tenant.key,
  );
  const batch = 100;
  const events = Array.from({ length: batch }, () => ({ event: "crowd" }));
  const from = performance.now();
  const answers: { answer: Answer; afterMs: number }[] = [];
  const waiting = Array.from({ length: combineWaitingMax / batch + 40 }, async () => {
    const answer = await rpc("SvcService", "TriggerBatch", { events });
    answers.push({ answer, afterMs: performance.now() - from });
  });
  await Bun.sleep(1_000);
  const early = [...answers];
  await letGo();
  await Promise.all(waiting);

  // One flush is under way, the rest of the room is taken.
  expect(early.length).toBeGreaterThan(30);
  for (const { answer } of early) {
    expect(answer.status).toBe(429);
    expect(answer.body.code).toBe("resource_exhausted");
    expect(answer.headers.get("retry-after")).toBe("1");
  }
  const others = answers.slice(early.length).map(({ answer }) => answer.status);
  expect(new Set(others)).toEqual(new Set([200]));
  expect((await rpc("SvcService", "Emit", { event: "after" })).status).toBe(200);
  expect(await checkAll(store, { now: clock.now() })).toEqual([]);
}, 30_000);

test("a report whose run is locked is to be sent again, and the jobs asked for with it still arrive", async () => {
  const { key } = tenants[1]!;
  const { api, rpc } = callerOf(
    () => server.url,
    () => key,
  );
  await rpc("SvcService", "RegisterFunction", { id: "locked", triggers: [{ event: "lock.me" }] });
  await api("/api/v1/workers/w/register", { body: { function_ids: ["locked"] } });
  const exchange = async (reports: unknown[]) =>
    (await api("/api/v1/workers/w/exchange", { body: { reports, available: 1, hold_ms: 0 } })).body;
  await rpc("SvcService", "Emit", { event: "lock.me" });
  const [first] = (await exchange([])).jobs;
  await rpc("SvcService", "Emit", { event: "lock.me" });

  const letGo = await hold(sql`SELECT run_id FROM executions WHERE run_id = ${first.run_id} FOR UPDATE`);
  const reportOf = ({ job_id, run_id, execution_seq, lease_token }: typeof first) => ({
    ...{ job_id, run_id, execution_seq, lease_token },
    status: "completed",
    output: 1,
  });
  const { results, jobs } = await exchange([reportOf(first)]);
  await letGo();
  expect(results).toMatchObject([{ job_id: first.job_id, status: 503 }]);
  expect(jobs).toHaveLength(1);
  expect((await exchange([reportOf(first), reportOf(jobs[0])])).results).toMatchObject([
    { status: "ok" },
    { status: "ok" },
  ]);
  expect(await checkAll(store, { now: clock.now() })).toEqual([]);
});
