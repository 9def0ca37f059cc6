import type { Instant } from "../../../../kit/clock.ts";
import { pacedOfPin } from "../../../../kit/limits.ts";
import { column, type Sql, sql } from "../../../../kit/sql.ts";
import type { Flush, Seams, SyncSession } from "../../../../store/store.ts";
import {
  leasedAnswer,
  leasedTables,
  leasePicked,
  leasePickedSync,
  noRun,
  type Picked,
  slotColumns,
} from "./claim.ts";
import {
  demandColumns,
  type LimitedAnswer,
  type LimitedDemand,
  type LimitedInput,
  laneColumns,
  quotaOf,
} from "./claim-limited.ts";
import { countLeased, holdLanes, leasedIn, noteLeasesSync } from "./lane-rows.ts";

/**
 * The same as `claimLimitedFlush` for demands of which some are paced. Runs that have begun and those that
 * have not are looked up apart. A throttle counts only the latter: each moves `lanes.paced_until_us` by the
 * gap between two starts, under the lock that makes the limit exact. A run that has not begun stands where
 * its `wake_at` says, which its priority may have put into the future; one that has begun gets its head start
 * when it is compared.
 */
export const claimPacedFlush = pacedFlush("runs.claim_paced", false);

/** `pins`: of functions with `pin` (`claimPinnedFlush`). Without it no letter of the statements differs. */
function pacedFlush(name: string, pins: boolean): Flush<LimitedInput, LimitedAnswer> {
  return {
    name,
    postgres: (input, seams) => pacedText(input, seams, pins),
    libsql: (session, input) => pacedClaim(session, input, pins),
  };
}

const ofPin = (pins: boolean, text: string): Sql => (pins ? sql.raw(text) : sql.empty);

function pacedText({ now, demands }: LimitedInput, seams: Seams, pins: boolean): Sql {
  const nowUs = sql`${now * 1000}::bigint`;
  const asked = {
    ...demandColumns(demands),
    ...(pins && { deployment: column.text(demands.map(({ pin }) => pin?.deployment ?? null)) }),
  };
  // This statement cannot update a lane that it inserts: a throttle gives its starts to the next claim.
  return sql`WITH demand AS MATERIALIZED (SELECT * FROM ${seams.rowsFrom("d", asked)}),
    slot AS MATERIALIZED (SELECT * FROM ${seams.rowsFrom("s", slotColumns(demands))}),
    bound AS MATERIALIZED (
      SELECT demand.*, f.lane_limit, f.gap_us, f.burst FROM demand CROSS JOIN LATERAL (
        SELECT x.lane_limit, x.throttle_us AS gap_us, x.throttle_burst AS burst FROM functions x
        WHERE x.environment_id = demand.environment_id AND x.id = demand.function_id AND x.status <> 'paused'
          AND x.lane_limit IS NOT NULL${ofPin(pins, ` AND x.paced = ${pacedOfPin}`)} LIMIT 1) f),
    asked AS MATERIALIZED (
      SELECT w.ord, w.demand, w.lane_id, w.quota, b.environment_id, b.function_id, b.wanted, b.lane_limit, b.gap_us,
        b.burst${ofPin(pins, ", b.deployment")}
      FROM ${seams.rowsFrom("w", laneColumns(demands))} JOIN bound b ON b.ord = w.demand ORDER BY w.lane_id),
    ${sql.ctes(holdLanes(now))},
    free AS MATERIALIZED (
      SELECT n.*, CASE WHEN n.gap_us IS NULL THEN n.most
        ELSE GREATEST(LEAST(n.most, (n.burst * n.gap_us - n.owed_us) / n.gap_us), 0) END AS starts
      FROM (
        SELECT a.*, c.free, GREATEST(LEAST(a.quota, c.free), 0) AS most,
          GREATEST(COALESCE(l.paced_until_us, 0) - ${nowUs}, 0) AS owed_us
        FROM asked a LEFT JOIN LATERAL (SELECT x.id, x.paced_until_us FROM lanes x WHERE x.id = a.lane_id LIMIT 1) l ON true
          CROSS JOIN LATERAL (SELECT a.lane_limit - ${leasedIn(sql.raw("a.lane_id"))} AS free) c
        WHERE a.lane_id IN (SELECT lane_id FROM open) AND (a.gap_us IS NULL OR l.id IS NOT NULL)) n),
    fresh AS MATERIALIZED (
      SELECT f.ord, p.run_id, p.wake_at, row_number() OVER (PARTITION BY f.ord ORDER BY p.wake_at, p.run_id) AS nth,
        f.starts
      FROM free f CROSS JOIN LATERAL (
        SELECT e.run_id, e.wake_at FROM executions e
        WHERE e.lane_id = f.lane_id AND e.state = 'queued' AND e.environment_id || '' = f.environment_id
          AND e.execution_seq + 0 = 0
        ORDER BY e.wake_at, e.run_id LIMIT f.starts + 1 FOR UPDATE SKIP LOCKED) p),
    begun AS MATERIALIZED (
      SELECT f.ord, p.run_id, p.wake_at, p.wake_at - p.ahead AS stands_at
      FROM free f CROSS JOIN LATERAL (
        SELECT e.run_id, e.wake_at, COALESCE(e.head_start_ms, 0) AS ahead FROM executions e
        WHERE e.lane_id = f.lane_id AND e.state = 'queued' AND e.environment_id || '' = f.environment_id
          AND e.execution_seq > 0 AND e.wake_at <= ${now}::bigint${ofPin(pins, " AND (e.pinned_to IS NULL OR e.pinned_to = f.deployment)")}
        ORDER BY e.wake_at, e.run_id LIMIT f.most + 1 FOR UPDATE SKIP LOCKED) p),
    found AS MATERIALIZED (
      SELECT f.ord, f.demand, f.lane_id, f.wanted, f.most, x.run_id, x.wake_at, x.is_start,
        row_number() OVER (PARTITION BY f.ord ORDER BY x.stands_at, x.run_id) AS place
      FROM (
        SELECT ord, run_id, wake_at, wake_at AS stands_at, 1 AS is_start FROM fresh WHERE nth <= starts
        UNION ALL SELECT ord, run_id, wake_at, stands_at, 0 FROM begun) x
      JOIN free f ON f.ord = x.ord),
    picked AS MATERIALIZED (
      SELECT demand AS lane, rank, lane_id, run_id, wake_at, is_start FROM (
        SELECT found.*, row_number() OVER (PARTITION BY demand ORDER BY place, ord) AS rank
        FROM found WHERE place <= most) turn
      WHERE rank <= wanted),
    taken AS MATERIALIZED (
      SELECT lane_id, count(*) AS count, CAST(sum(is_start) AS bigint) AS starts FROM picked GROUP BY lane_id),
    counted AS (
      UPDATE lanes l SET claims = l.claims + 1, last_used_at = ${now}::bigint,
        paced_until_us = CASE WHEN f.gap_us IS NULL OR t.starts = 0 THEN l.paced_until_us
          ELSE ${nowUs} + f.owed_us + t.starts * f.gap_us END
      FROM taken t JOIN free f ON f.lane_id = t.lane_id
      WHERE l.id || '' = t.lane_id AND l.id = ANY (ARRAY(SELECT lane_id FROM taken))),
    ${leasePicked(now, pins)}
    SELECT ${leasedAnswer}, NULL AS lane_id, CAST(NULL AS bigint) AS free, CAST(NULL AS bigint) AS taken,
      CAST(NULL AS bigint) AS more, CAST(NULL AS bigint) AS wait_us FROM ${leasedTables}
    UNION ALL SELECT a.demand, 0, ${noRun}, a.lane_id, f.free, COALESCE(t.count, 0),
      CASE WHEN (SELECT count(*) FROM fresh x WHERE x.ord = a.ord) + (SELECT count(*) FROM begun x WHERE x.ord = a.ord)
        > COALESCE(t.count, 0) THEN 1 ELSE 0 END,
      GREATEST(f.owed_us + (COALESCE(t.starts, 0) - f.burst + 1) * f.gap_us, 0)
    FROM asked a LEFT JOIN free f ON f.ord = a.ord LEFT JOIN taken t ON t.lane_id = a.lane_id
    ORDER BY lane, rank`;
}

function pacedClaim(session: SyncSession, { now, demands }: LimitedInput, pins: boolean): LimitedAnswer[] {
  const picked: Picked[] = [];
  const answers: LimitedAnswer[] = [];
  for (const [at, demand] of demands.entries()) {
    const rules = rulesOf(session, demand, pins);
    if (!rules) continue;
    const lanes = demand.laneIds.map((laneId) => laneNow(session, demand, { laneId, rules, now }));
    const turns = lanes
      .flatMap((lane) => lane.offered.map((run, place) => ({ ...run, place, lane })))
      .sort((a, b) => a.place - b.place)
      .slice(0, demand.slots.length);
    for (const [rank, { run_id, wake_at }] of turns.entries())
      picked.push({ run_id, wake_at, lane: at + 1, rank: rank + 1, slot: demand.slots[rank]! });
    for (const lane of lanes) {
      const { laneId, free, found, owedUs } = lane;
      const own = turns.filter((run) => run.lane === lane);
      const starts = own.filter(({ execution_seq }) => execution_seq === 0).length;
      if (own.length > 0) noteLeasesSync(session, { ...demand, laneId }, now);
      if (rules.gap_us !== null && starts > 0)
        session.run(sql`UPDATE lanes SET paced_until_us = ${now * 1000 + owedUs + starts * rules.gap_us}
            WHERE id = ${laneId}`);
      answers.push({
        lane: at + 1,
        rank: 0,
        lane_id: laneId,
        free,
        taken: own.length,
        more: found > own.length ? 1 : 0,
        wait_us:
          rules.gap_us === null
            ? null
            : Math.max(0, owedUs + (starts - (rules.burst ?? 1) + 1) * rules.gap_us),
      });
    }
  }
  return [...leasePickedSync(session, picked, now, pins), ...answers];
}

interface PacedRules {
  lane_limit: number;
  /** Null without a throttle. */
  gap_us: number | null;
  burst: number | null;
}

const rulesOf = (session: SyncSession, { environmentId, functionId }: LimitedDemand, pins: boolean) =>
  session.one<PacedRules>(sql`SELECT lane_limit, throttle_us AS gap_us, throttle_burst AS burst FROM functions
    WHERE environment_id = ${environmentId} AND id = ${functionId} AND status <> 'paused' AND lane_limit IS NOT NULL${ofPin(pins, ` AND paced = ${pacedOfPin}`)}`);

interface PacedRow {
  run_id: string;
  wake_at: number;
  execution_seq: number;
  head_start_ms: number | null;
}

/** What one lane offers, in the order of its claim. */
function laneNow(
  session: SyncSession,
  demand: LimitedDemand,
  { laneId, rules, now }: { laneId: string; rules: PacedRules; now: Instant },
) {
  const { gap_us: gapUs, lane_limit: limit, burst } = rules;
  const free = limit - countLeased(session, laneId);
  const most = Math.max(0, Math.min(quotaOf(demand), free));
  const lane = session.one<{ until: number | null }>(
    sql`SELECT paced_until_us AS until FROM lanes WHERE id = ${laneId}`,
  );
  const owedUs = Math.max(0, (lane?.until ?? 0) - now * 1000);
  const allowed =
    gapUs === null ? most : Math.max(0, Math.min(most, Math.floor(((burst ?? 1) * gapUs - owedUs) / gapUs)));
  const queued = (which: string, count: number, also = sql.empty) =>
    session.all<PacedRow>(sql`SELECT run_id, wake_at, execution_seq, head_start_ms FROM executions
      WHERE lane_id = ${laneId} AND state = 'queued' AND environment_id || '' = ${demand.environmentId}
        AND ${sql.raw(which)}${also} ORDER BY wake_at, run_id LIMIT ${count}`);
  const fresh = queued("execution_seq + 0 = 0", allowed + 1);
  const ofDeployment = demand.pin
    ? sql` AND (pinned_to IS NULL OR pinned_to = ${demand.pin.deployment})`
    : sql.empty;
  const begun = queued(`execution_seq > 0 AND wake_at <= ${now}`, most + 1, ofDeployment);
  const standsAt = (run: PacedRow) => run.wake_at - (run.execution_seq === 0 ? 0 : (run.head_start_ms ?? 0));
  const offered = [...fresh.slice(0, allowed), ...begun]
    .sort((a, b) => standsAt(a) - standsAt(b) || (a.run_id < b.run_id ? -1 : 1))
    .slice(0, most);
  return { laneId, free, offered, found: fresh.length + begun.length, owedUs };
}

/**
 * The same for functions with `pin`: each demand is of one deployment, and passes over runs that belong to
 * another. A claim makes a run that belongs to none its own.
 */
export const claimPinnedFlush = pacedFlush("runs.claim_pinned", true);
