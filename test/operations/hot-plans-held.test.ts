import { afterAll, beforeAll, expect, test } from "bun:test";
import { sharedLane } from "../../src/domain/engine/functions/rules.ts";
import { claimFlush } from "../../src/domain/engine/runs/execution/claim.ts";
import { claimLimitedFlush } from "../../src/domain/engine/runs/execution/claim-limited.ts";
import { nextWakeAt } from "../../src/domain/engine/runs/rows.ts";
import { wakeDue } from "../../src/domain/engine/runs/wakes/due.ts";
import { sql } from "../../src/kit/sql.ts";
import { type Cost, hotPlans } from "../support/hot-plans.ts";
import {
  type Bounds,
  begunAt,
  type HotWork,
  ofTables,
  startHotWork,
  transientTables,
} from "../support/hot-work.ts";
import { plant } from "../support/plant.ts";

const othersRows = 20_000;
const queued = 4_000;

/**
 * What a snapshot of ten minutes keeps at 100 runs a second, an eighth of what one node does at full load with every step
 * stored: each run was queued, leased and deleted, one in ten waited, one in ten was of a function with a limit, and 20 flushes
 * a second moved the head. It is written in seconds by the same changes, so that the same versions and index entries stay
 * behind. Runs, steps, events and history are written once and changed in place: what is dead of them stands beside what lives.
 */
const heldMs = 600_000;
const deadRuns = 60_000;
const deadHeads = 12_000;
const everyMs = heldMs / deadRuns;

const bounds: Bounds = { rows: 2_500, flushPages: 5_000, flushScanned: 1_000, scanned: 1_000 };

let hot: HotWork;
let release: (() => Promise<unknown>) | undefined;
const lane = sharedLane("env_default", "limited");

beforeAll(async () => {
  hot = await startHotWork();
  await hot.plantOthers(othersRows);
  await hot.plantOwn(queued);
  await hot.plans.vacuum();
}, 120_000);
afterAll(async () => {
  await release?.();
  await hot?.stop();
});

const change = (statement: ReturnType<typeof sql>) => hot.store.write((session) => session.run(statement));

/** What dies under the snapshot that is held. */
async function die(): Promise<void> {
  const environment_id = "'env_default'";
  const diedAt = `${begunAt} - ${heldMs + 6_000} + n * ${everyMs}`;
  await plant(hot.store, "executions", deadRuns, {
    ...{ run_id: "'run_dead' || n", environment_id, state: "'queued'", wake_at: diedAt },
    function_id: "CASE WHEN n % 10 = 0 THEN 'limited' ELSE 'busy' END",
    lane_id: `CASE WHEN n % 10 = 0 THEN '${lane}' END`,
    timeout_at: `${diedAt} + 60000`,
  });
  await plant(hot.store, "waits", deadRuns / 10, {
    ...{ run_id: "'run_dead' || n * 10", environment_id, kind: "'wait'", step_id: "'s'" },
    ...{ event_name: "'paid'", fresh_at: diedAt },
  });
  const isDead = sql.raw("run_id > 'run_dead' AND run_id < 'run_deae'");
  await change(
    sql`UPDATE executions SET state = 'leased', wake_at = wake_at + 90000, lease_hash = 'x' WHERE ${isDead}`,
  );
  await change(sql`DELETE FROM executions WHERE ${isDead}`);
  await change(sql`DELETE FROM waits WHERE ${isDead}`);
  await change(
    sql`DO ${sql.raw(`$$ BEGIN FOR n IN 1..${deadHeads} LOOP
    UPDATE heads SET last_at = last_at WHERE environment_id = 'env_default'; END LOOP; END $$`)}`,
  );
}

test("no hot statement reads what others have left behind, while a snapshot keeps all of it", async () => {
  expect(await hot.excess(bounds)).toEqual([]);
  release = await hot.plans.holdSnapshot();
  await change(sql`UPDATE executions SET wake_at = wake_at + 1 WHERE environment_id = 'env_other'`);
  const pages = sql.raw("(pg_relation_size(c.oid) / 8192)");
  await hot.store.write((session) =>
    session.all(
      sql`UPDATE pg_class c SET reltuples = 0, relpages = ${pages} WHERE ${ofTables(transientTables)}`,
    ),
  );
  expect(await hot.excess(bounds)).toEqual([]);
}, 120_000);

/** What walks over dead entries, and over each of them once or twice. */
const wide: Bounds["wide"] = [
  // The first claims of a node, and whole looks, which take a tenth of the time at most (E78).
  { text: /^WITH lane AS MATERIALIZED/, scanned: 2 * deadRuns },
  // Leases that ended before their time, as far as `from` lies in the past; whole looks take a hundredth of the time (E78).
  { text: /^SELECT d\.run_id.* WHERE d\.state <> 'queued'/, scanned: 2 * deadRuns },
  // A lane is looked at from its front, and its leases are counted: by every claim of a function with a limit.
  { text: /FROM executions x WHERE x\.lane_id/, scanned: (4 * deadRuns) / 10 },
];

test("nor what died in ten minutes of its own environment, but for looks from the front of a queue", async () => {
  await die();
  expect(await hot.excess({ ...bounds, wide })).toEqual([]);
}, 120_000);

test("looks for claims and wakes begin behind what is dead, and only whole ones walk over it", async () => {
  // Where executions are believed to be none, timeouts are sorted, the dead ones too: see `apart` in hot-work.
  await change(sql`ANALYZE executions`);
  const own = await hotPlans(hot.url);
  const tried = own.around(hot.store);
  /** The dearer of both plans, of each statement. */
  const pagesOf = async (look: () => Promise<unknown>) => {
    const seen = new Map<string, Cost>();
    own.onCost = (text, cost) => {
      if (cost.pages >= (seen.get(text)?.pages ?? 0)) seen.set(text, cost);
    };
    await look();
    own.onCost = undefined;
    return [...seen.values()].map(({ pages }) => pages);
  };
  const slots = [{ leaseHash: "h", workerId: "w", leaseUntil: begunAt }];
  const now = begunAt - 2_000;
  const environmentId = "env_default";
  const claim = (since: number) => () =>
    tried.flush(claimFlush, { now, demands: [{ environmentId, functionId: "busy", since, slots }] });
  const claimLimited = () =>
    tried.flush(claimLimitedFlush, {
      now,
      demands: [{ environmentId, functionId: "limited", laneIds: [lane], slots }],
    });
  const wake = (from?: number) => async () => {
    await nextWakeAt(tried, from);
    await tried.write((session) => wakeDue(session, begunAt - 1, { oldest: 10, from }));
  };
  const walked = 1_000;
  const [whole] = await pagesOf(claim(0));
  expect(whole).toBeGreaterThan(walked);
  expect(Math.max(...(await pagesOf(claim(begunAt - 6_000))))).toBeLessThan(50);
  expect(Math.min(...(await pagesOf(wake())))).toBeGreaterThan(walked);
  const next = begunAt + 100_000;
  await plant(hot.store, "executions", 1, {
    ...{ run_id: "'run_next'", environment_id: "'env_default'", state: "'sleeping'" },
    ...{ wake_at: `${next}`, timeout_at: `${next}` },
  });
  expect(Math.max(...(await pagesOf(wake(next - 10_000))))).toBeLessThan(50);
  // No cursor skips what is dead in a lane: a held snapshot costs each claim of it these pages.
  expect(Math.max(...(await pagesOf(claimLimited)))).toBeLessThan((4 * deadRuns) / 10);
  own.close();
}, 120_000);
