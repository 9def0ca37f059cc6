import type { Instant } from "../../kit/clock.ts";
import { column, type Sql, sql } from "../../kit/sql.ts";
import type { NewRun } from "./run.ts";

/**
 * The rows of new runs as fragments for the flush that creates them (an emit, later an invoke or a schedule). `source` is
 * a table expression with the columns of `newRunColumns` and `position`, the place of the run's event in its log, already
 * joined with whatever proves that the runs may be.
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
  lease_hash: column.text(runs.map((r) => r.lease?.hash ?? null)),
  worker_id: column.text(runs.map((r) => r.lease?.workerId ?? null)),
  lease_until: column.bigint(runs.map((r) => r.lease?.expiresAt ?? null)),
  ...(runs.some(isWatched) && { watched: column.bigint(runs.map((r) => (isWatched(r) ? 1 : null))) }),
  ...(withParents(runs) && {
    parent_run_id: column.text(runs.map((r) => r.parent?.runId ?? null)),
    parent_step_id: column.text(runs.map((r) => r.parent?.stepId ?? null)),
    depth: column.bigint(runs.map((r) => (r.parent ? r.parent.depth + 1 : 0))),
  }),
});

const isWatched = ({ cancels }: NewRun): boolean => cancels !== undefined && cancels.length > 0;

/** Runs that events may end; undefined when there are none, and nothing is to be inserted for them. */
export function newCancelColumns(runs: readonly NewRun[]) {
  const list = runs.flatMap(({ id, cancels = [] }) =>
    cancels.map((cancel, place) => ({ ...cancel, id, place })),
  );
  if (list.length === 0) return undefined;
  return {
    run_id: column.text(list.map((c) => c.id)),
    step_id: column.text(list.map((c) => `cancel:${c.place}`)),
    event_name: column.text(list.map((c) => c.eventName)),
    match_path: column.text(list.map((c) => c.match.path)),
    value_hash: column.text(list.map((c) => c.match.valueHash)),
    expression: column.text(list.map((c) => c.match.expression)),
  };
}

/** `source`: rows `c` of `newCancelColumns` joined with their runs `n`. The event that starts a run does not end it. */
export const insertCancels = (source: Sql, now: Instant): Sql => sql`INSERT INTO waits
    (run_id, kind, step_id, environment_id, event_name, match_path, value_hash, expression, from_position, fresh_at)
  SELECT c.run_id, 'cancel', c.step_id, n.environment_id, c.event_name, c.match_path, c.value_hash, c.expression,
    n.position, ${sql.bigint(now)}
  FROM ${source}`;

/** The matcher's place in the logs of these runs, should they have none yet. */
export const insertMatchers = (source: Sql): Sql => sql`INSERT INTO matchers (environment_id, position)
  SELECT DISTINCT n.environment_id, 0 FROM ${source} WHERE true ORDER BY 1
  ON CONFLICT (environment_id) DO NOTHING`;

/** Runs without a parent are inserted by a text that knows of none. */
export const withParents = (runs: readonly NewRun[]): boolean => runs.some((run) => run.parent !== undefined);

const ofRun = sql.raw(", parent_run_id, parent_step_id, depth");
const ofExecution = sql.raw(", parent_run_id");

export const insertRuns = (source: Sql, now: Instant, parents: boolean): Sql => sql`INSERT INTO runs
    (id, environment_id, function_id, function_version, event_id, event_name, mode, status, attempt, max_attempts,
     actor_id, created_at, updated_at, timeout_at, execution_seq${parents ? ofRun : sql.empty})
  SELECT n.id, n.environment_id, n.function_id, n.function_version, n.event_id, n.event_name, n.mode, 'active', 1,
    n.max_attempts, n.actor_id, ${sql.bigint(now)}, ${sql.bigint(now)}, n.timeout_at, 0${parents ? ofRun : sql.empty}
  FROM ${source}`;

/** Queued from now on, or born claimed: leased, with the fence at 1. What `has` names is a column of the source. */
export const insertExecutions = (
  source: Sql,
  now: Instant,
  has: { parents: boolean; watched: boolean },
): Sql => sql`INSERT INTO executions
    (run_id, environment_id, function_id, function_version, state, wake_at, execution_seq, attempt, max_attempts,
     lease_hash, worker_id, claimed_at, started_at, step_count, history_count, lost_count, timeout_at,
     seen_position${has.parents ? ofExecution : sql.empty}${has.watched ? sql.raw(", watched_at") : sql.empty})
  SELECT n.id, n.environment_id, n.function_id, n.function_version,
    CASE WHEN n.lease_hash IS NULL THEN 'queued' ELSE 'leased' END, COALESCE(n.lease_until, ${sql.bigint(now)}),
    CASE WHEN n.lease_hash IS NULL THEN 0 ELSE 1 END, 1, n.max_attempts, n.lease_hash, n.worker_id,
    CASE WHEN n.lease_hash IS NULL THEN NULL ELSE ${sql.bigint(now)} END,
    CASE WHEN n.lease_hash IS NULL THEN NULL ELSE ${sql.bigint(now)} END,
    0, CASE WHEN n.lease_hash IS NULL THEN 1 ELSE 2 END, 0, n.timeout_at,
    n.position${has.parents ? ofExecution : sql.empty}${has.watched ? sql`, CASE WHEN n.watched IS NOT NULL THEN ${sql.bigint(now)} END` : sql.empty}
  FROM ${source}`;

export const insertFirstHistory = (source: Sql, now: Instant): Sql => sql`INSERT INTO run_history
    (run_id, sequence, environment_id, type, at, detail)
  SELECT n.id, note.sequence, n.environment_id, note.type, ${sql.bigint(now)}, note.detail
  FROM ${source} CROSS JOIN (
    SELECT 1 AS sequence, 'run.created' AS type, '{}' AS detail
    UNION ALL SELECT 2, 'run.started', '{"attempt":1,"execution_seq":1}') note
  WHERE note.sequence = 1 OR n.lease_hash IS NOT NULL`;
