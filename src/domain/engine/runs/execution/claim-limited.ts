import type { Instant } from "../../../../kit/clock.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Flush, SyncSession } from "../../../../store/store.ts";
import {
  type ClaimedRow,
  type FunctionDemand,
  leasedAnswer,
  leasedTables,
  leasePicked,
  leasePickedSync,
  noRun,
  type Picked,
  slotColumns,
} from "./claim.ts";
import { countLeased, holdLanes, leasedIn, noteLeases, noteLeasesSync } from "./lane-rows.ts";

/** Runs wanted of a function with a limit, from these of its lanes. */
export interface LimitedDemand extends Omit<FunctionDemand, "since"> {
  laneIds: readonly string[];
  /** The function has a priority or a throttle: only `claimPacedFlush` gives its runs. */
  paced?: boolean;
  /** The function pins its runs: only `claimPinnedFlush` gives those of this deployment, and of none. */
  pin?: { deployment: string | null } | undefined;
}

export interface LimitedInput {
  now: Instant;
  demands: readonly LimitedDemand[];
}

/** What a claim found in one concurrency queue. */
export interface LaneFound {
  /** Place of the demand in the input, from 1. */
  lane: number;
  lane_id: string;
  /** Leases that the limit left before the claim; null when a concurrent claim has the queue. */
  free: number | null;
  taken: number;
  /** Whether more runs are queued there than were taken: 1 or 0. */
  more: number;
  /** Microseconds until the lane's throttle lets another run begin; left out and null without a throttle. */
  wait_us?: number | null;
}

/**
 * Rank 0 reports a queue. A demand without any report is of a function that is paused, has no limit any
 * more, or is paced.
 */
export type LimitedAnswer = ClaimedRow | (LaneFound & { rank: 0 });

export const demandColumns = (demands: readonly LimitedDemand[]) => ({
  environment_id: column.text(demands.map((d) => d.environmentId)),
  function_id: column.text(demands.map((d) => d.functionId)),
  wanted: column.bigint(demands.map((d) => d.slots.length)),
});

/** Runs taken from one lane at most, so that the slots suffice for each of them. */
export const quotaOf = ({ slots, laneIds }: LimitedDemand): number =>
  Math.ceil(slots.length / laneIds.length);

export const laneColumns = (demands: readonly LimitedDemand[]) => {
  const lanes = demands.flatMap((demand, at) =>
    demand.laneIds.map((laneId) => ({ laneId, demand: at + 1, quota: quotaOf(demand) })),
  );
  return {
    demand: column.bigint(lanes.map((l) => l.demand)),
    lane_id: column.text(lanes.map((l) => l.laneId)),
    quota: column.bigint(lanes.map((l) => l.quota)),
  };
};

/**
 * Runs of functions with a limit become leased, never more in one lane than its limit has left. Turns go
 * round the lanes; inside a lane the oldest is first.
 *
 * Exact on any number of nodes (`holdLanes`). Locks: lanes that are there (sorted, never waited for), lanes
 * that are new (sorted), executions (never waited for).
 */
export const claimLimitedFlush: Flush<LimitedInput, LimitedAnswer> = {
  name: "runs.claim_limited",

  postgres({ now, demands }, seams) {
    return sql`WITH demand AS MATERIALIZED (SELECT * FROM ${seams.rowsFrom("d", demandColumns(demands))}),
    slot AS MATERIALIZED (SELECT * FROM ${seams.rowsFrom("s", slotColumns(demands))}),
    bound AS MATERIALIZED (
      SELECT demand.*, f.lane_limit FROM demand CROSS JOIN LATERAL (
        SELECT x.lane_limit FROM functions x WHERE x.environment_id = demand.environment_id
          AND x.id = demand.function_id AND x.status <> 'paused' AND x.lane_limit IS NOT NULL
          AND x.paced IS NULL LIMIT 1) f),
    asked AS MATERIALIZED (
      SELECT w.ord, w.demand, w.lane_id, w.quota, b.environment_id, b.function_id, b.wanted, b.lane_limit
      FROM ${seams.rowsFrom("w", laneColumns(demands))} JOIN bound b ON b.ord = w.demand ORDER BY w.lane_id),
    ${sql.ctes(holdLanes(now))},
    free AS MATERIALIZED (
      SELECT a.*, a.lane_limit - ${leasedIn(sql.raw("a.lane_id"))} AS free
      FROM asked a WHERE a.lane_id IN (SELECT lane_id FROM open)),
    found AS MATERIALIZED (
      SELECT f.ord, f.demand, f.lane_id, f.wanted, p.run_id, p.wake_at, LEAST(f.quota, f.free) AS most,
        row_number() OVER (PARTITION BY f.ord ORDER BY p.wake_at, p.run_id) AS place
      FROM free f CROSS JOIN LATERAL (
        SELECT e.run_id, e.wake_at FROM executions e
        WHERE e.lane_id = f.lane_id AND e.state = 'queued' AND e.environment_id || '' = f.environment_id
          AND e.wake_at <= ${now}::bigint
        ORDER BY e.wake_at, e.run_id LIMIT GREATEST(LEAST(f.quota, f.free), 0) + 1 FOR UPDATE SKIP LOCKED) p),
    picked AS MATERIALIZED (
      SELECT demand AS lane, rank, lane_id, run_id, wake_at FROM (
        SELECT found.*, row_number() OVER (PARTITION BY demand ORDER BY place, ord) AS rank
        FROM found WHERE place <= most) turn
      WHERE rank <= wanted),
    counted AS (${noteLeases(sql.raw("SELECT lane_id FROM picked"), now)}),
    ${leasePicked(now)}
    SELECT ${leasedAnswer}, NULL AS lane_id, CAST(NULL AS bigint) AS free, CAST(NULL AS bigint) AS taken,
      CAST(NULL AS bigint) AS more FROM ${leasedTables}
    UNION ALL SELECT a.demand, 0, ${noRun}, a.lane_id, f.free, COALESCE(t.count, 0),
      CASE WHEN COALESCE(n.count, 0) > COALESCE(t.count, 0) THEN 1 ELSE 0 END
    FROM asked a LEFT JOIN free f ON f.ord = a.ord
      LEFT JOIN (SELECT lane_id, count(*) AS count FROM picked GROUP BY lane_id) t ON t.lane_id = a.lane_id
      LEFT JOIN (SELECT lane_id, count(*) AS count FROM found GROUP BY lane_id) n ON n.lane_id = a.lane_id
    ORDER BY lane, rank`;
  },

  libsql(session, { now, demands }) {
    const picked: Picked[] = [];
    const answers: LimitedAnswer[] = [];
    for (const [at, demand] of demands.entries()) {
      const limit = limitOf(session, demand);
      if (limit === undefined) continue;
      const queues = demand.laneIds.map((laneId) => {
        const free = limit - countLeased(session, laneId);
        const most = Math.max(0, Math.min(quotaOf(demand), free));
        const runs = queuedIn(session, demand, { laneId, now, count: most + 1 });
        return { laneId, free, runs, offered: runs.slice(0, most).map((run, place) => ({ ...run, place })) };
      });
      const turns = queues.flatMap(({ laneId, offered }) => offered.map((run) => ({ ...run, laneId })));
      const taken = turns.sort((a, b) => a.place - b.place).slice(0, demand.slots.length);
      for (const [rank, { run_id, wake_at }] of taken.entries())
        picked.push({ run_id, wake_at, lane: at + 1, rank: rank + 1, slot: demand.slots[rank]! });
      for (const { laneId, free, runs } of queues) {
        const count = taken.filter((run) => run.laneId === laneId).length;
        if (count > 0) noteLeasesSync(session, { ...demand, laneId }, now);
        answers.push({
          lane: at + 1,
          rank: 0,
          lane_id: laneId,
          free,
          taken: count,
          more: runs.length > count ? 1 : 0,
        });
      }
    }
    return [...leasePickedSync(session, picked, now), ...answers];
  },
};

const limitOf = (session: SyncSession, { environmentId, functionId }: LimitedDemand): number | undefined =>
  session.one<{
    lane_limit: number;
  }>(sql`SELECT lane_limit FROM functions WHERE environment_id = ${environmentId}
    AND id = ${functionId} AND status <> 'paused' AND lane_limit IS NOT NULL AND paced IS NULL`)?.lane_limit;

const queuedIn = (
  session: SyncSession,
  { environmentId }: LimitedDemand,
  { laneId, now, count }: { laneId: string; now: Instant; count: number },
) =>
  session.all<{ run_id: string; wake_at: number }>(sql`SELECT run_id, wake_at FROM executions
    WHERE lane_id = ${laneId} AND state = 'queued' AND environment_id || '' = ${environmentId} AND wake_at <= ${now}
    ORDER BY wake_at, run_id LIMIT ${count}`);
