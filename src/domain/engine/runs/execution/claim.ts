import type { Instant } from "../../../../kit/clock.ts";
import { column, type Sql, sql } from "../../../../kit/sql.ts";
import type { Flush, Seams, SyncSession } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import { startedDetail } from "../run.ts";

/** Runs of one function that this node's workers can take now. */
export interface FunctionDemand {
  environmentId: string;
  functionId: string;
  /** No queued run has an earlier `wake_at`: skips dead index entries of runs that were claimed. */
  since: Instant;
  /** One for each run wanted, in the order they shall be filled. */
  slots: readonly {
    leaseHash: string;
    workerId: string;
    /** Which build that worker is, where that is known. */
    deployment?: string | undefined;
    leaseUntil: Instant;
  }[];
}

export interface ClaimInput {
  now: Instant;
  demands: readonly FunctionDemand[];
}

/** What a worker needs to start, except the completed steps. */
export interface ClaimedRow
  extends RowOf<
    "runs",
    `environment_id, function_id, function_version, execution_seq, attempt, max_attempts, actor_id,
  event_id, event_name`
  > {
  /** Place of the lane in the input, from 1, and of the slot in the lane, from 1. */
  lane: number;
  rank: number;
  run_id: string;
  step_count: number;
  /** JSON of the `RunEnding` of a run that is compensating. */
  ending: string | null;
  /** Lines outside of steps that its handler wrote in this attempt; null for none. */
  log_seen: number | null;
  queued_at: number;
  event_position: number;
  event_version: number;
  event_data: string;
  event_metadata: string | null;
  event_source: string;
  event_at: number;
  event_idempotency_key: string | null;
  event_entity_id: string | null;
}

/** Rank 0 means that the function has a concurrency limit: claim its runs by `claimLimitedFlush`. */
export type ClaimAnswer = ClaimedRow | { lane: number; rank: 0 };

const demandColumns = (lanes: readonly FunctionDemand[]) => ({
  environment_id: column.text(lanes.map((l) => l.environmentId)),
  function_id: column.text(lanes.map((l) => l.functionId)),
  since: column.bigint(lanes.map((l) => l.since)),
  wanted: column.bigint(lanes.map((l) => l.slots.length)),
});

export const slotColumns = (lanes: readonly Pick<FunctionDemand, "slots">[]) => {
  const slots = lanes.flatMap((lane, at) =>
    lane.slots.map((slot, rank) => ({ ...slot, lane: at + 1, rank: rank + 1 })),
  );
  return {
    lane: column.bigint(slots.map((s) => s.lane)),
    rank: column.bigint(slots.map((s) => s.rank)),
    lease_hash: column.text(slots.map((s) => s.leaseHash)),
    worker_id: column.text(slots.map((s) => s.workerId)),
    deployment: column.text(slots.map((s) => s.deployment ?? null)),
    lease_until: column.bigint(slots.map((s) => s.leaseUntil)),
  };
};

/**
 * The columns of a claimed run behind `lane` and `rank`, in order, each with the expression that a claim
 * reads it from.
 */
const leasedColumns = {
  queued_at: "c.queued_at",
  run_id: "c.run_id",
  environment_id: "c.environment_id",
  function_id: "c.function_id",
  function_version: "c.function_version",
  execution_seq: "c.execution_seq",
  attempt: "c.attempt",
  max_attempts: "c.max_attempts",
  step_count: "c.step_count",
  ending: "c.ending",
  log_seen: `CASE WHEN c.execution_seq > 1 THEN
      (SELECT max(l.seen) FROM run_logs l WHERE l.run_id = c.run_id AND l.attempt = c.attempt) END`,
  actor_id: "r.actor_id",
  event_id: "v.id",
  event_position: "v.position",
  event_name: "v.name",
  event_version: "v.version",
  event_data: "v.data",
  event_metadata: "v.metadata",
  event_source: "v.source",
  event_at: "v.at",
  event_idempotency_key: "v.idempotency_key",
  event_entity_id: "v.entity_id",
} satisfies Record<Exclude<keyof ClaimedRow, "lane" | "rank">, string>;

const selected = (columns: Record<string, string>): Sql =>
  sql.raw(
    Object.entries(columns)
      .map(([name, expression]) => `${expression} AS ${name}`)
      .join(", "),
  );

/** Fills the columns of a claimed run in a row of a UNION that stands for none. */
export const noRun = sql.raw(
  Object.keys(leasedColumns)
    .map(() => "NULL")
    .join(", "),
);

/**
 * Leases the runs of `picked` (lane, rank, run_id, wake_at) to the workers of `slot`, and notes it in their
 * history. `pins`: they belong to the deployment of their worker from now on.
 */
export const leasePicked = (now: Instant, pins = false): Sql => sql`claimed AS (
      UPDATE executions e SET state = 'leased', wake_at = s.lease_until,
        execution_seq = e.execution_seq + 1, lease_hash = s.lease_hash, worker_id = s.worker_id,
        claimed_at = ${now}::bigint, started_at = COALESCE(e.started_at, ${now}::bigint),
        history_count = e.history_count + 1${pins ? sql.raw(", pinned_to = COALESCE(e.pinned_to, s.deployment)") : sql.empty}
      FROM picked p JOIN slot s ON s.lane = p.lane AND s.rank = p.rank
      WHERE e.run_id || '' = p.run_id AND e.run_id = ANY (ARRAY(SELECT run_id FROM picked))
      RETURNING p.lane, p.rank, p.wake_at AS queued_at, e.run_id, e.environment_id, e.function_id, e.function_version,
        e.execution_seq, e.attempt, e.max_attempts, e.step_count, e.ending, e.history_count, e.worker_id, s.deployment),
    noted AS (
      INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
      SELECT run_id, history_count, environment_id, 'run.started', ${now}::bigint, ${startedDetail("claimed", "claimed")}
      FROM claimed),
    r AS MATERIALIZED (
      SELECT x.* FROM picked CROSS JOIN LATERAL (
        SELECT id, event_id, actor_id FROM runs WHERE id = picked.run_id LIMIT 1) x),
    v AS MATERIALIZED (
      SELECT x.* FROM (SELECT DISTINCT event_id FROM r) e CROSS JOIN LATERAL (
        SELECT * FROM events WHERE id = e.event_id LIMIT 1) x)`;

export const leasedAnswer = sql`c.lane, c.rank, ${selected(leasedColumns)}`;
export const leasedTables = sql.raw("claimed c JOIN r ON r.id = c.run_id JOIN v ON v.id = r.event_id");

/**
 * Leases the oldest queued runs of each demand: raises the fence, sets the token's hash and the expiry. Rows
 * that another node has locked are skipped. Runs of a paused function stay queued. Locks: executions (never
 * waited for).
 */
export const claimFlush: Flush<ClaimInput, ClaimAnswer> = {
  name: "runs.claim",

  postgres({ now, demands: lanes }, seams) {
    return sql`WITH lane AS MATERIALIZED (SELECT * FROM ${seams.rowsFrom("l", demandColumns(lanes))}),
    slot AS MATERIALIZED (SELECT * FROM ${seams.rowsFrom("s", slotColumns(lanes))}),
    apart AS MATERIALIZED (
      SELECT lane.ord, f.lane_limit FROM lane CROSS JOIN LATERAL (
        SELECT x.lane_limit FROM functions x WHERE x.environment_id = lane.environment_id AND x.id = lane.function_id
          AND (x.status = 'paused' OR x.lane_limit IS NOT NULL) LIMIT 1) f),
    picked AS MATERIALIZED (
      SELECT lane.ord AS lane, p.run_id, p.wake_at,
        row_number() OVER (PARTITION BY lane.ord ORDER BY p.wake_at, p.run_id) AS rank
      FROM lane CROSS JOIN LATERAL (
        SELECT e.run_id, e.wake_at FROM executions e
        WHERE e.environment_id = lane.environment_id AND e.function_id = lane.function_id AND e.state = 'queued'
          AND e.wake_at >= lane.since AND e.wake_at <= ${now}::bigint
        ORDER BY e.wake_at, e.run_id || '' LIMIT lane.wanted FOR UPDATE SKIP LOCKED) p
      WHERE NOT EXISTS (SELECT 1 FROM apart WHERE apart.ord = lane.ord)),
    ${leasePicked(now)}
    SELECT ${leasedAnswer} FROM ${leasedTables}
    UNION ALL SELECT ord, 0, ${noRun} FROM apart WHERE lane_limit IS NOT NULL
    ORDER BY lane, rank`;
  },

  libsql(session, { now, demands: lanes }) {
    const limited: ClaimAnswer[] = [];
    const picked = lanes.flatMap((lane, at) => {
      const found = pick(session, lane, now);
      if (found.length === 0 && isLimited(session, lane)) limited.push({ lane: at + 1, rank: 0 });
      return found.map((row, rank) => ({ ...row, lane: at + 1, slot: lane.slots[rank]!, rank: rank + 1 }));
    });
    return [...leasePickedSync(session, picked, now), ...limited];
  },
};

export interface Picked {
  run_id: string;
  wake_at: number;
  lane: number;
  rank: number;
  slot: FunctionDemand["slots"][number];
}

export function leasePickedSync(
  session: SyncSession,
  picked: readonly Picked[],
  now: Instant,
  pins = false,
): ClaimedRow[] {
  if (picked.length === 0) return [];
  const chosen = {
    run_id: column.text(picked.map((p) => p.run_id)),
    lane: column.bigint(picked.map((p) => p.lane)),
    rank: column.bigint(picked.map((p) => p.rank)),
    queued_at: column.bigint(picked.map((p) => p.wake_at)),
    lease_hash: column.text(picked.map((p) => p.slot.leaseHash)),
    worker_id: column.text(picked.map((p) => p.slot.workerId)),
    deployment: column.text(picked.map((p) => p.slot.deployment ?? null)),
    lease_until: column.bigint(picked.map((p) => p.slot.leaseUntil)),
  };
  const from = (seams: Seams): Sql => seams.rowsFrom("c", chosen);
  session.run(sql`UPDATE executions SET state = 'leased', wake_at = c.lease_until,
      execution_seq = execution_seq + 1, lease_hash = c.lease_hash, worker_id = c.worker_id, claimed_at = ${now},
      started_at = COALESCE(started_at, ${now}), history_count = history_count + 1${pins ? sql.raw(", pinned_to = COALESCE(pinned_to, c.deployment)") : sql.empty}
    FROM ${from(session.seams)} WHERE executions.run_id = c.run_id`);
  session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    SELECT claimed.run_id, claimed.history_count, claimed.environment_id, 'run.started', ${now}, ${startedDetail("claimed", "c")}
    FROM ${from(session.seams)} JOIN executions claimed ON claimed.run_id = c.run_id`);
  return session.all<ClaimedRow>(sql`SELECT ${leasedAnswer} FROM (
      SELECT p.lane, p.rank, p.queued_at, e.run_id, e.environment_id, e.function_id, e.function_version,
        e.execution_seq, e.attempt, e.max_attempts, e.step_count, e.ending
      FROM ${session.seams.rowsFrom("p", chosen)} JOIN executions e ON e.run_id = p.run_id) c
      JOIN runs r ON r.id = c.run_id JOIN events v ON v.id = r.event_id
    ORDER BY c.lane, c.rank`);
}

function pick(session: SyncSession, lane: FunctionDemand, now: Instant) {
  return session.all<{ run_id: string; wake_at: number }>(sql`SELECT e.run_id, e.wake_at FROM executions e
    WHERE e.environment_id = ${lane.environmentId} AND e.function_id = ${lane.functionId} AND e.state = 'queued'
      AND e.wake_at >= ${lane.since} AND e.wake_at <= ${now}
      AND NOT EXISTS (SELECT 1 FROM functions f WHERE f.environment_id = ${lane.environmentId}
        AND f.id = ${lane.functionId} AND (f.status = 'paused' OR f.lane_limit IS NOT NULL))
    ORDER BY e.wake_at, e.run_id LIMIT ${lane.slots.length}`);
}

const isLimited = (session: SyncSession, { environmentId, functionId }: FunctionDemand): boolean =>
  session.one(sql`SELECT id FROM functions
    WHERE environment_id = ${environmentId} AND id = ${functionId} AND lane_limit IS NOT NULL`) !== undefined;
