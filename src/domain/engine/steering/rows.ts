import type { Instant } from "../../../kit/clock.ts";
import { sql } from "../../../kit/sql.ts";
import { stepRowId, unranked } from "../../../kit/step-id.ts";
import type { Session, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

export type SteeredRunRow = RowOf<
  "runs",
  `id, environment_id, function_id, function_version, status, error, attempt, max_attempts, worker_id,
  created_at, started_at, ended_at, timeout_at, execution_seq, lease_hash, parent_run_id, event_id,
  undo_failed, error_group, redacted_at`
>;

/** JSON text of the event that started the run; undefined when the event has expired. */
export const triggerOf = async (reader: StoreReader, run: SteeredRunRow): Promise<string | undefined> =>
  (
    await reader.one<{ data: string }>(
      sql`SELECT data FROM events WHERE id = ${run.event_id} AND environment_id = ${run.environment_id}`,
    )
  )?.data;

export interface ExecutionRow
  extends RowOf<
    "executions",
    `run_id, environment_id, function_id, state, wake_at, execution_seq, worker_id, waiting_step_id,
  lane_id, history_count, held_from, held_wake_at, pause_requested_at`
  > {
  /** Set while the run is compensating. */
  ending: string | null;
  /** Set while several things are waited for. */
  gather_ms: number | null;
}

export interface SteeredStepRow
  extends RowOf<
    "steps",
    `run_id, step_id, name, type, sequence, status, output, error, original_output, patched_at,
  started_at, ended_at, duration_ms, updated_at, redacted_at`
  > {
  /** Of a compensation: the name of the step that it undoes. */
  compensation_for: string | null;
  /** 1: a resume ran one before it again, so that its place says nothing of its order. */
  is_kept: number | null;
}

const runFields = sql.raw(
  "id, environment_id, function_id, function_version, status, error, attempt, max_attempts, worker_id, created_at, started_at, ended_at, timeout_at, execution_seq, lease_hash, parent_run_id, event_id, undo_failed, error_group, redacted_at",
);

export const runById = (
  reader: StoreReader,
  environmentId: string,
  runId: string,
): Promise<SteeredRunRow | undefined> =>
  reader.one(sql`SELECT ${runFields} FROM runs WHERE id = ${runId} AND environment_id = ${environmentId}`);

const executionFields = sql.raw(
  "run_id, environment_id, function_id, state, wake_at, execution_seq, worker_id, waiting_step_id, lane_id, history_count, held_from, held_wake_at, pause_requested_at, ending, gather_ms",
);

export const executionOf = (
  reader: StoreReader,
  environmentId: string,
  runId: string,
): Promise<ExecutionRow | undefined> =>
  reader.one(sql`SELECT ${executionFields} FROM executions
    WHERE run_id = ${runId} AND environment_id || '' = ${environmentId}`);

/** Locks: execution, then run. Undefined for a run that is over, or not of this environment. */
export const lockExecution = (
  session: Session,
  environmentId: string,
  runId: string,
): Promise<ExecutionRow | undefined> =>
  session.one(sql`SELECT ${executionFields} FROM executions
    WHERE run_id = ${runId} AND environment_id || '' = ${environmentId} ${session.seams.holdRow}`);

export const lockRun = (
  session: Session,
  environmentId: string,
  runId: string,
): Promise<SteeredRunRow | undefined> =>
  session.one(sql`SELECT ${runFields} FROM runs
    WHERE id = ${runId} AND environment_id = ${environmentId} ${session.seams.holdRow}`);

export const stepsOf = (
  reader: StoreReader,
  environmentId: string,
  runId: string,
): Promise<SteeredStepRow[]> =>
  reader.all(sql`SELECT run_id, step_id, name, type, sequence, status, output, error, original_output, patched_at,
      started_at, ended_at, duration_ms, updated_at, compensation_for, is_kept, redacted_at
    FROM steps WHERE run_id = ${runId} AND environment_id = ${environmentId} ORDER BY sequence, step_id`);

/** The step at which the run sleeps: of several the one that ends first, or the named one (id, or row id). */
export const firstSleep = async (
  session: Session,
  runId: string,
  named: string | undefined,
): Promise<string | undefined> =>
  (
    await session.all<{ step_id: string }>(sql`SELECT step_id FROM steps
      WHERE run_id = ${runId} AND status = 'sleeping' ORDER BY sleep_until, step_id`)
  ).find(({ step_id }) => named === undefined || named === step_id || named === stepRowId(runId, step_id))
    ?.step_id;

export const requestPause = (session: Session, runId: string, at: Instant, by: string): Promise<number> =>
  session.run(sql`UPDATE executions SET pause_requested_at = COALESCE(pause_requested_at, ${sql.bigint(at)}),
    held_by = ${by} WHERE run_id = ${runId}`);

export const holdNow = (
  session: Session,
  row: ExecutionRow,
  { at, by, never }: { at: Instant; by: string; never: number },
): Promise<number> =>
  session.run(sql`UPDATE executions SET state = 'held', held_from = state, held_wake_at = wake_at, wake_at = ${never},
    held_at = ${at}, held_by = ${by}, pause_requested_at = NULL, history_count = history_count + 1
    WHERE run_id = ${row.run_id}`);

/**
 * Appends to the run's history. Without `sequence` the last one is looked up: only an execution counts them.
 */
export async function note(
  session: Session,
  entry: {
    runId: string;
    environmentId: string;
    type: string;
    at: Instant;
    detail: object;
    sequence?: number;
  },
): Promise<void> {
  const { runId, environmentId, type, at } = entry;
  const sequence = entry.sequence ?? (await lastSequence(session, runId)) + 1;
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    VALUES (${runId}, ${sequence}, ${environmentId}, ${type}, ${at}, ${JSON.stringify(entry.detail)})`);
}

export async function lastSequence(reader: StoreReader, runId: string): Promise<number> {
  const row = await reader.one<{ last: number | null }>(
    sql`SELECT max(sequence) AS last FROM run_history WHERE run_id = ${runId}`,
  );
  return row?.last ?? 0;
}

export const countNote = (session: Session, runId: string): Promise<number> =>
  session.run(sql`UPDATE executions SET history_count = history_count + 1 WHERE run_id = ${runId}`);

/**
 * Raises `updated_at` of a run that is over, so that readers of changes see it. The caller holds the run's
 * lock.
 */
export const touchRun = (session: Session, runId: string, at: Instant): Promise<number> =>
  session.run(sql`UPDATE runs SET updated_at = ${at} WHERE id = ${runId} AND updated_at < ${at}`);

/** Rows changed: 0 when the step is not as it was read. */
export const patchStep = (
  session: Session,
  step: SteeredStepRow,
  change: { output: string; at: Instant; by: string },
): Promise<number> =>
  session.run(sql`UPDATE steps SET status = 'completed', error = NULL, output = ${change.output},
      original_output = CASE WHEN patched_at IS NULL THEN output ELSE original_output END,
      patched_at = ${change.at}, patched_by = ${change.by}, updated_at = ${change.at}
    WHERE run_id = ${step.run_id} AND step_id = ${step.step_id} AND status = ${step.status}
      AND updated_at = ${step.updated_at} AND COALESCE(output, '') = ${step.output ?? ""}`);

export const resumedAt = async (reader: StoreReader, runId: string): Promise<number | undefined> =>
  (await reader.one<{ resumed_at: number }>(sql`SELECT resumed_at FROM resumes WHERE run_id = ${runId}`))
    ?.resumed_at;

export const openWindow = (
  session: Session,
  window: { runId: string; environmentId: string; at: Instant; by: string; plan: string },
): Promise<number> =>
  session.run(sql`INSERT INTO resumes (run_id, environment_id, resumed_at, resumed_by, plan)
    VALUES (${window.runId}, ${window.environmentId}, ${window.at}, ${window.by}, ${window.plan})
    ON CONFLICT (run_id) DO UPDATE SET resumed_at = excluded.resumed_at, resumed_by = excluded.resumed_by,
      plan = excluded.plan`);

export const wasUndone = async (reader: StoreReader, runId: string): Promise<boolean> =>
  (await reader.one(sql`SELECT 1 AS found FROM run_history WHERE run_id = ${runId} AND type = 'run.compensating'
    LIMIT 1`)) !== undefined;

/** The places of steps when a resume first ran them again: a handler reaches them in this order. */
export async function placesBefore(reader: StoreReader, runId: string): Promise<Map<string, number>> {
  const found = await reader.all<{ detail: string }>(sql`SELECT detail FROM run_history
    WHERE run_id = ${runId} AND type = 'run.resumed' ORDER BY sequence DESC`);
  const discarded = found.flatMap(
    ({ detail }) =>
      (JSON.parse(detail) as { discarded?: Pick<SteeredStepRow, "step_id" | "sequence">[] }).discarded ?? [],
  );
  return new Map(discarded.map(({ step_id, sequence }) => [step_id, sequence]));
}

export const dropWindow = (session: Session, runId: string): Promise<number> =>
  session.run(sql`DELETE FROM resumes WHERE run_id = ${runId}`);

export const forgetWindows = (session: Session, before: Instant, limit: number): Promise<number> =>
  session.run(sql`DELETE FROM resumes WHERE run_id IN (
    SELECT run_id FROM resumes WHERE resumed_at < ${before} AND plan IS NULL ORDER BY resumed_at LIMIT ${limit})`);

/** `at`: when the wake loop finishes a resume that a crashed node left. */
export const beginResume = (session: Session, runId: string, at: Instant): Promise<number> =>
  session.run(sql`UPDATE executions SET state = 'resuming', wake_at = ${at}, history_count = history_count + 1
    WHERE run_id = ${runId}`);

export const undoResume = (session: Session, row: ExecutionRow): Promise<number> =>
  session.run(
    sql`UPDATE executions SET state = ${row.state}, wake_at = ${row.wake_at} WHERE run_id = ${row.run_id}`,
  );

/**
 * Makes a failed run active again: a new execution continues from the last fence, with one more attempt. At
 * `healAt` the wake loop finishes a resume that a crashed node left.
 */
export async function revive(
  session: Session,
  run: SteeredRunRow,
  revival: {
    at: Instant;
    healAt: Instant;
    timeoutAt: number | null;
    historyCount: number;
    laneId: string | null;
    undoCount: number;
  },
): Promise<void> {
  const { at, healAt, timeoutAt, historyCount, laneId, undoCount } = revival;
  const attempt = run.attempt + 1;
  const most = Math.max(run.max_attempts, attempt);
  await session.run(sql`UPDATE runs SET status = 'active', trouble = NULL, undo_failed = NULL, error = NULL, error_group = NULL,
      ended_at = NULL, max_attempts = ${most}, timeout_at = ${timeoutAt}, updated_at = ${at}
    WHERE id = ${run.id}`);
  await session.run(sql`INSERT INTO executions (run_id, environment_id, function_id, function_version, state, wake_at,
      execution_seq, attempt, max_attempts, started_at, step_count, history_count, lost_count, timeout_at, parent_run_id,
      lane_id, undo_count, seen_position)
    VALUES (${run.id}, ${run.environment_id}, ${run.function_id}, ${run.function_version}, 'resuming', ${healAt},
      ${run.execution_seq}, ${attempt}, ${most}, ${run.started_at},
      COALESCE((SELECT max(sequence) + 1 FROM steps WHERE run_id = ${run.id} AND sequence < ${sql.bigint(unranked)}), 0), ${historyCount}, 0,
      ${timeoutAt}, ${run.parent_run_id}, ${laneId}, ${undoCount}, COALESCE((SELECT position FROM heads WHERE environment_id = ${run.environment_id}), 0))`);
}

export async function unrevive(session: Session, run: SteeredRunRow): Promise<void> {
  await session.run(sql`DELETE FROM executions WHERE run_id = ${run.id} AND state = 'resuming'`);
  await session.run(sql`UPDATE runs SET status = 'failed', trouble = 'failed', error = ${run.error},
      undo_failed = ${run.undo_failed}, error_group = ${run.error_group}, ended_at = ${run.ended_at}, max_attempts = ${run.max_attempts}, timeout_at = ${run.timeout_at}
    WHERE id = ${run.id} AND status = 'active'`);
}
