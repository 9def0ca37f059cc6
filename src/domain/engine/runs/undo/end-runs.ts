import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import type { NewErrorGroup } from "../../errors/rules.ts";
import { undoBits } from "../../functions/rules.ts";
import { countFailures, countForAlerts, groupColumns, groupsOf, noteFailedRuns } from "../error-groups.ts";
import { compensatingMsMax, handInMsMax } from "../limits.ts";
import { readEnding } from "../rules.ts";
import type { QueueHint, RunEnding, RunError } from "../run.ts";

export interface RunEnd {
  runId: string;
  status: RunEnding["status"];
  error: RunError | null;
  /** Why it was cancelled: `user`, `function_deleted`. */
  cause: string | null;
  /** What the caller that cancelled it said: kept in its history. */
  reason?: string;
  /** Who cancelled it: a caller, or a repair. */
  actorId?: string;
}

/** An execution whose run is to end, and what its function asks for before. */
export interface EndingRow {
  state: string;
  /** JSON text; null before the run is compensating. */
  ending: string | null;
  undo_count: number;
  lost_count: number;
  /** `undoOnOf`; null when the function is gone, or asks for nothing. */
  undo_on: number | null;
  /** Compensations that are stored, by how they went. */
  undone_count: number;
  not_undone_count: number;
}

export type EndDecision =
  | { kind: "undo"; ending: RunEnding }
  | { kind: "end"; end: RunEnd; undoFailed: number | null };

/** Whether a run that ends without a report of its worker is undone first: a pure decision. */
export function decideEnd(end: RunEnd, row: EndingRow | undefined): EndDecision {
  if (row === undefined) return { kind: "end", end, undoFailed: null };
  if (row.ending !== null) return { kind: "end", ...endOfUnfinished(end, row, readEnding(row.ending)) };
  // A worker that was lost may have done what it had no time to tell.
  const isCutOff = row.state === "leased" || row.lost_count > 0;
  const hasUndo = row.undo_count > 0 || row.lost_count > 0;
  const bits = row.undo_on ?? 0;
  const asks =
    end.status === "cancelled"
      ? (bits & undoBits.cancel) !== 0 && hasUndo
      : ((bits & undoBits.failure) !== 0 && hasUndo) || (bits & undoBits.onFailure) !== 0;
  if (asks) {
    const { status, error, cause } = end;
    const lost = row.lost_count > 0 && { lostBefore: true as const };
    return { kind: "undo", ending: { status, error, cause, interrupted: isCutOff, ...lost, tries: 0 } };
  }
  const isLeft = end.status === "failed" && row.undo_count > 0;
  return { kind: "end", end, undoFailed: isLeft ? row.undo_count : null };
}

/** The phase ended early: out of time, or its workers were lost. What is not known to be undone is not. */
function endOfUnfinished({ runId }: RunEnd, row: EndingRow, { status, error, cause }: RunEnding) {
  const undoFailed = Math.max(1, row.not_undone_count, row.undo_count - row.undone_count);
  return { end: { runId, status, error, cause }, undoFailed };
}

/** The runs that are undone before they end, and their queues. */
export interface Undoing {
  runIds: ReadonlySet<string>;
  lanes: QueueHint[];
}

const none: Undoing = { runIds: new Set(), lanes: [] };

interface EndingExecution
  extends EndingRow,
    RowOf<"executions", "run_id, environment_id, function_id, lane_id, history_count"> {}

/**
 * Ends runs without a report of their worker. Those that are to be undone first are handed to a worker once
 * more; the answer names them. The caller holds the locks of the executions.
 */
export async function endRuns(session: Session, ends: readonly RunEnd[], now: Instant): Promise<Undoing> {
  if (ends.length === 0) return none;
  const rows = new Map((await askingRows(session, ends)).map((row) => [row.run_id, row]));
  const over: OverRun[] = [];
  const undoing: UndoneRun[] = [];
  for (const end of ends) {
    const row = rows.get(end.runId);
    const decision = decideEnd(end, row);
    if (decision.kind === "end") over.push(decision);
    else undoing.push({ row: row!, ending: decision.ending, told: toldOf(end) });
  }
  if (over.length > 0) await close(session, over, now);
  if (undoing.length === 0) return none;
  await beginUndo(session, undoing, now);
  return {
    runIds: new Set(undoing.map(({ row }) => row.run_id)),
    lanes: undoing.map(({ row: { environment_id, function_id, lane_id } }) => ({
      environmentId: environment_id,
      functionId: function_id,
      ...(lane_id !== null && { laneId: lane_id, freed: true }),
    })),
  };
}

const toldOf = ({ reason, actorId }: RunEnd) => ({ reason, actor_id: actorId });

interface UndoneRun {
  row: EndingExecution;
  ending: RunEnding;
  /** What its history says of who ended it. */
  told: object;
}

/** Of these runs, those that may have something to undo: most have not, and cost one lookup. */
function askingRows({ all, seams }: Session, ends: readonly RunEnd[]): Promise<EndingExecution[]> {
  const run_id = column.text(ends.map((end) => end.runId));
  return all(sql`SELECT e.run_id, e.environment_id, e.function_id, e.lane_id, e.state, e.ending, e.undo_count,
      e.lost_count, e.history_count, f.undo_on,
      ${storedCompensations("completed")} AS undone_count, ${storedCompensations("failed")} AS not_undone_count
    FROM ${seams.rowsFrom("v", { run_id })}
      JOIN executions e ON e.run_id = v.run_id ${seams.byKey("e.run_id", run_id)}
      LEFT JOIN functions f ON f.environment_id = e.environment_id || '' AND f.id = e.function_id
    WHERE e.ending IS NOT NULL OR e.undo_count > 0 OR f.undo_on IS NOT NULL`);
}

const storedCompensations = (status: "completed" | "failed") =>
  sql`CASE WHEN e.ending IS NULL THEN 0 ELSE (SELECT count(*) FROM steps s
    WHERE s.run_id = e.run_id AND s.type = 'compensate' AND s.status = ${status}) END`;

/**
 * Takes the runs from their workers and queues them to be undone. The fence of the last lease stays: a worker
 * that held it may still hand in the steps that it has finished (`handIn`).
 */
async function beginUndo(session: Session, list: readonly UndoneRun[], now: Instant): Promise<void> {
  const { rowsFrom, byKey, among } = session.seams;
  const run_id = column.text(list.map(({ row }) => row.run_id));
  await session.run(sql`UPDATE executions SET state = 'queued', wake_at = v.wake_at, ending = v.ending,
      timeout_at = ${sql.bigint(now + compensatingMsMax)}, waiting_step_id = NULL, lost_count = 0, watched_at = NULL,
      pause_requested_at = NULL, held_from = NULL, held_wake_at = NULL, held_at = NULL, held_by = NULL,
      history_count = executions.history_count + 1
    FROM ${rowsFrom("v", {
      run_id,
      ending: column.text(list.map(({ ending }) => JSON.stringify(ending))),
      wake_at: column.bigint(list.map(({ row }) => (row.state === "leased" ? now + handInMsMax : now))),
    })} WHERE executions.run_id = v.run_id ${byKey("executions.run_id", run_id)}`);
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    SELECT run_id, sequence, environment_id, 'run.compensating', ${sql.bigint(now)}, detail FROM ${rowsFrom(
      "v",
      {
        run_id,
        sequence: column.bigint(list.map(({ row }) => row.history_count + 1)),
        environment_id: column.text(list.map(({ row }) => row.environment_id)),
        detail: column.text(list.map(({ ending, told }) => JSON.stringify({ ending, ...told }))),
      },
    )}`);
  await session.run(sql`DELETE FROM waits WHERE run_id ${among(run_id)}`);
  await session.run(sql`DELETE FROM invocations WHERE parent_run_id ${among(run_id)}`);
}

interface OverRun {
  end: RunEnd;
  undoFailed: number | null;
}

/**
 * The run keeps the last fence, so that the worker that held it is answered `RUN_NOT_RUNNING` and any other
 * `STALE_EXECUTION`. Its waits are deleted, its parent gets a row of `child_ends`.
 */
async function close(session: Session, list: readonly OverRun[], now: Instant): Promise<void> {
  const { rowsFrom, byKey, among } = session.seams;
  const ends = list.map(({ end }) => end);
  const ids = column.text(ends.map((end) => end.runId));
  const held = sql`JOIN executions e ON e.run_id = v.run_id ${byKey("e.run_id", ids)}`;
  const groups = await countEnds(session, ends, now);
  await session.run(sql`UPDATE runs SET status = v.status, trouble = v.status, error = v.error, cancellation_cause = v.cause,
      undo_failed = v.undo_failed, ${groups ? sql.raw("error_group = v.error_group, ") : sql.empty}ended_at = ${now}, updated_at = ${now}, attempt = e.attempt,
      worker_id = e.worker_id, started_at = e.started_at, execution_seq = e.execution_seq, lease_hash = e.lease_hash
    FROM ${rowsFrom("v", {
      run_id: ids,
      ...columnsOf(ends, { text: "status cause" }),
      error: column.text(ends.map((end) => end.error && JSON.stringify(end.error))),
      undo_failed: column.bigint(list.map(({ undoFailed }) => undoFailed)),
      ...(groups && { error_group: column.text(ends.map(({ runId }) => groups.get(runId)?.id ?? null)) }),
    })} ${held} WHERE runs.id = v.run_id ${byKey("runs.id", ids)}`);
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    SELECT e.run_id, e.history_count + 1, e.environment_id, v.type, ${sql.bigint(now)}, v.detail
    FROM ${rowsFrom("v", {
      run_id: ids,
      type: column.text(ends.map((end) => `run.${end.status}`)),
      detail: column.text(
        ends.map((end) => JSON.stringify({ error: end.error, cause: end.cause, ...toldOf(end) })),
      ),
    })} ${held}`);
  await session.run(sql`INSERT INTO child_ends (child_run_id, environment_id, ended_at)
    SELECT e.run_id, e.environment_id, ${sql.bigint(now)}
    FROM ${rowsFrom("v", { run_id: ids })} ${held}
    WHERE e.parent_run_id IS NOT NULL ON CONFLICT DO NOTHING`);
  await session.run(sql`DELETE FROM waits WHERE run_id ${among(ids)}`);
  await session.run(sql`DELETE FROM executions WHERE run_id ${among(ids)}`);
}

/** Counts the failures among the ends; answers their groups by run, undefined when there are none. */
async function countEnds(
  session: Session,
  ends: readonly RunEnd[],
  now: Instant,
): Promise<Map<string, NewErrorGroup> | undefined> {
  const errors = new Map(
    ends.flatMap(({ runId, status, error }) =>
      status === "failed" && error !== null ? [[runId, error] as const] : [],
    ),
  );
  if (errors.size === 0) return undefined;
  const { rowsFrom, byKey } = session.seams;
  const run_id = column.text([...errors.keys()]);
  const held = await session.all<{ run_id: string; environment_id: string; function_id: string }>(
    sql`SELECT e.run_id, e.environment_id, e.function_id
      FROM ${rowsFrom("v", { run_id })} JOIN executions e ON e.run_id = v.run_id ${byKey("e.run_id", run_id)}`,
  );
  if (held.length === 0) return undefined;
  const groups = await groupsOf(
    session,
    held.map((row) => ({
      ...{ runId: row.run_id, environmentId: row.environment_id, functionId: row.function_id },
      error: errors.get(row.run_id)!,
    })),
  );
  const failures = {
    ...groupColumns(held.map((row) => ({ errorGroup: groups.get(row.run_id)! }))),
    ...columnsOf(held, { text: "run_id environment_id" }),
  };
  for (const note of [countFailures, countForAlerts, noteFailedRuns])
    await session.run(note(rowsFrom("v", failures), now));
  return groups;
}
