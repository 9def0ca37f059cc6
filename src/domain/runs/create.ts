import type { Instant } from "../../kit/clock.ts";
import { column, type Sql, sql } from "../../kit/sql.ts";
import type { NewRun } from "./run.ts";

/**
 * The rows of new runs as fragments for the flush that creates them (an emit, later an invoke or a schedule). `source` is
 * a table expression with the columns of `newRunColumns`, already joined with whatever proves that the runs may be.
 */
export const newRunColumns = (runs: readonly NewRun[]) => ({
  id: column.text(runs.map((r) => r.id)),
  environment_id: column.text(runs.map((r) => r.environmentId)),
  function_id: column.text(runs.map((r) => r.functionId)),
  function_version: column.bigint(runs.map((r) => r.functionVersion)),
  event_id: column.text(runs.map((r) => r.eventId)),
  event_name: column.text(runs.map((r) => r.eventName)),
  mode: column.text(runs.map((r) => r.mode)),
  max_attempts: column.bigint(runs.map((r) => r.maxAttempts)),
  timeout_at: column.bigint(runs.map((r) => r.timeoutAt)),
  actor_id: column.text(runs.map((r) => r.actorId)),
  lane_id: column.text(runs.map((r) => r.laneId)),
  lease_hash: column.text(runs.map((r) => r.lease?.hash ?? null)),
  worker_id: column.text(runs.map((r) => r.lease?.workerId ?? null)),
  lease_until: column.bigint(runs.map((r) => r.lease?.expiresAt ?? null)),
});

export const insertRuns = (source: Sql, now: Instant): Sql => sql`INSERT INTO runs
    (id, environment_id, function_id, function_version, event_id, event_name, mode, status, attempt, max_attempts,
     actor_id, created_at, updated_at, timeout_at, execution_seq)
  SELECT n.id, n.environment_id, n.function_id, n.function_version, n.event_id, n.event_name, n.mode, 'active', 1,
    n.max_attempts, n.actor_id, ${sql.bigint(now)}, ${sql.bigint(now)}, n.timeout_at, 0
  FROM ${source}`;

/** Queued from now on, or born claimed: leased, with the fence at 1. */
export const insertExecutions = (source: Sql, now: Instant): Sql => sql`INSERT INTO executions
    (run_id, environment_id, function_id, function_version, state, wake_at, execution_seq, attempt, max_attempts,
     lease_hash, worker_id, claimed_at, started_at, step_count, history_count, lost_count, timeout_at, lane_id)
  SELECT n.id, n.environment_id, n.function_id, n.function_version,
    CASE WHEN n.lease_hash IS NULL THEN 'queued' ELSE 'leased' END, COALESCE(n.lease_until, ${sql.bigint(now)}),
    CASE WHEN n.lease_hash IS NULL THEN 0 ELSE 1 END, 1, n.max_attempts, n.lease_hash, n.worker_id,
    CASE WHEN n.lease_hash IS NULL THEN NULL ELSE ${sql.bigint(now)} END,
    CASE WHEN n.lease_hash IS NULL THEN NULL ELSE ${sql.bigint(now)} END,
    0, CASE WHEN n.lease_hash IS NULL THEN 1 ELSE 2 END, 0, n.timeout_at, n.lane_id
  FROM ${source}`;

export const insertFirstHistory = (source: Sql, now: Instant): Sql => sql`INSERT INTO run_history
    (run_id, sequence, environment_id, type, at, detail)
  SELECT n.id, note.sequence, n.environment_id, note.type, ${sql.bigint(now)}, note.detail
  FROM ${source} CROSS JOIN (
    SELECT 1 AS sequence, 'run.created' AS type, '{}' AS detail
    UNION ALL SELECT 2, 'run.started', '{"attempt":1,"execution_seq":1}') note
  WHERE note.sequence = 1 OR n.lease_hash IS NOT NULL`;
