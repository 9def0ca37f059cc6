import { afterAll, beforeAll, expect, test } from "bun:test";
import { combineLaneOf, combineLanes, combineWaitingMax } from "../../src/kit/flush-queue.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import { type AckedEmit, checkAll } from "../support/checkers.ts";
import { type LivedTime, livedTime } from "../support/lived.ts";
import { type Answer, callerOf, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { clock, emitUntilAcked, holdIn, makeTenants, storeOf, type Tenant } from "./load.ts";

/** A lock that is not had within this is given up (store settings). */
const lockMs = 2_000;
/** What a flush may take on a busy machine; with this, none, one and two locks that are not had are told apart. */
const flushMs = lockMs / 2;

let server: TestServer;
let store: Store;
let tenants: Tenant[];
let time: LivedTime;

/** Which lane an environment has is chance; each lane shall have some. */
async function tenantsOfAllLanes(): Promise<Tenant[]> {
  const made: Tenant[] = [];
  const isEnough = () => {
    const lanes = Map.groupBy(made, ({ environmentId }) => combineLaneOf(environmentId));
    return lanes.size === combineLanes && [...lanes.values()].every((mates) => mates.length >= 4);
  };
  while (!isEnough()) made.push(...(await makeTenants(server, 10, `tenant-${made.length}`)));
  return made;
}

beforeAll(async () => {
  server = await startTestServer({ engine: "postgres" });
  tenants = await tenantsOfAllLanes();
  store = await storeOf(server.home);
  time = await livedTime(server.home.place.databaseUrl);
}, 120_000);
afterAll(async () => {
  await time?.stop();
  await store?.close();
  await server?.stop();
}, 120_000);

const lockHead = (environmentId: string) =>
  sql`SELECT position FROM heads WHERE environment_id = ${environmentId} FOR UPDATE`;
const holdHead = (environmentId: string) => holdIn(store, lockHead(environmentId));

/** How long a lock that is not had is waited for on this machine, now. */
async function lockWaitMs(environmentId: string): Promise<number> {
  const from = time.now();
  const had = await store.one(lockHead(environmentId)).catch(() => undefined);
  expect(had).toBeUndefined();
  return time.now() - from;
}

/** Emits one after the other until told to stop; answers how long each took. */
function emitting(tenant: Tenant, acked: AckedEmit[]) {
  const tookMs: number[] = [];
  let over = false;
  const { url } = server;
  const going = (async () => {
    for (let count = 0; !over; count++) {
      const from = time.now();
      const emission = { event: "tick", idempotencyKey: `${tenant.environmentId}-${tookMs.length}-${count}` };
      acked.push(await emitUntilAcked(emission, { url: () => url, tenant }));
      tookMs.push(time.now() - from);
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
  const lane = combineLaneOf(tenants[0]!.environmentId);
  // Two who wait for the same row wait twice as long: each has its time for its place in the queue, and for the row.
  const spare = tenants.at(-1)!;
  const lanes = Map.groupBy(tenants.slice(1, -1), ({ environmentId }) => combineLaneOf(environmentId));
  const laneMates = lanes.get(lane)!;
  lanes.delete(lane);
  expect(lanes.size).toBe(combineLanes - 1);

  const release = await holdHead(tenants[0]!.environmentId);
  const releaseSpare = await holdHead(spare.environmentId);
  const acked: AckedEmit[] = [];
  const stuck = [1, 2, 3].map(() => emitting(tenants[0]!, acked));
  const mates = laneMates.slice(0, 3).map((tenant) => emitting(tenant, acked));
  const free = [...lanes.values()]
    .flatMap((list) => list.slice(0, 3))
    .map((tenant) => emitting(tenant, acked));
  const waitsMs: number[] = [];
  while (waitsMs.length < 4) waitsMs.push(await lockWaitMs(spare.environmentId));
  const stuckAcks = stuck.flatMap(({ tookMs }) => tookMs).length;
  await release();
  await releaseSpare();
  await Promise.all([...stuck, ...mates, ...free].map((one) => one.stop()));

  const longest = (list: { tookMs: number[] }[]) => Math.max(...list.flatMap(({ tookMs }) => tookMs));
  expect(stuckAcks).toBe(0);
  expect(longest(free)).toBeLessThan(flushMs);
  // Beside what the same machine took at the same time.
  expect(longest(mates) - longest(free)).toBeLessThan(Math.max(...waitsMs) + flushMs);
  expect(await checkAll(store, { acked, now: clock.now() })).toEqual([]);
}, 120_000);

test("with the store stalled, callers beyond what may wait are told at once to come back", async () => {
  const tenant = tenants[0]!;
  const release = await holdHead(tenant.environmentId);
  const { rpc } = callerOf(
    () => server.url,
    () => tenant.key,
  );
  const batch = 100;
  const events = Array.from({ length: batch }, () => ({ event: "crowd" }));
  const from = time.now();
  const answers: Answer[] = [];
  const waiting = Array.from({ length: combineWaitingMax / batch + 40 }, async () => {
    answers.push(await rpc("SvcService", "TriggerBatch", { events }));
  });
  // One flush is under way, the rest of the room is taken.
  await until(() => answers.length > 30, { about: "those without room to be told", everyMs: 5 });
  const early = [...answers];
  expect(time.now() - from).toBeLessThan(1_000);
  await release();
  await Promise.all(waiting);

  expect(new Set(early.map(({ status }) => status))).toEqual(new Set([429]));
  for (const answer of answers.filter(({ status }) => status !== 200)) {
    expect(answer.status).toBe(429);
    expect(answer.body.code).toBe("resource_exhausted");
    expect(answer.headers.get("retry-after")).toBe("1");
  }
  expect(answers.filter(({ status }) => status === 200).length).toBeGreaterThan(
    combineWaitingMax / batch - 5,
  );
  expect((await rpc("SvcService", "Emit", { event: "after" })).status).toBe(200);
  expect(await checkAll(store, { now: clock.now() })).toEqual([]);
}, 120_000);

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
  const first = await until(async () => (await exchange([])).jobs[0], { about: "the first job" });
  await rpc("SvcService", "Emit", { event: "lock.me" });

  const release = await holdIn(
    store,
    sql`SELECT run_id FROM executions WHERE run_id = ${first.run_id} FOR UPDATE`,
  );
  const reportOf = ({ job_id, run_id, execution_seq, lease_token }: typeof first) => ({
    ...{ job_id, run_id, execution_seq, lease_token },
    status: "completed",
    output: 1,
  });
  const { results, jobs } = await exchange([reportOf(first)]);
  await release();
  expect(results).toMatchObject([{ job_id: first.job_id, status: 503 }]);
  expect(jobs).toHaveLength(1);
  expect((await exchange([reportOf(first), reportOf(jobs[0])])).results).toMatchObject([
    { status: "ok" },
    { status: "ok" },
  ]);
  expect(await checkAll(store, { now: clock.now() })).toEqual([]);
});
