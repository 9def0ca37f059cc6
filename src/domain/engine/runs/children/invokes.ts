import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { countTurns, type Slice } from "../../../../kit/round-robin.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import { type InvokeError, invokeTimedOut, waitTimedOut } from "../rules.ts";
import type { QueueHint, RunError } from "../run.ts";
import { noteSteps, stepKey, tookUntil } from "../step-moves.ts";
import { endRuns, type Undoing } from "../undo/end-runs.ts";
import { dropStepWaits } from "../waits/drop-waits.ts";
import {
  type ComparedWith,
  dueWaits,
  putOff,
  queueHintsOfRows,
  type Resolution,
  resolveSteps,
  type WaitingRow,
} from "../waits/resolve-steps.ts";
import { sliceOfWakes, type WakeQueue } from "../wakes/wake-queues.ts";

/** A step that waits for its child, or for its event. */
export interface PendingRow
  extends RowOf<
    "steps",
    "run_id, step_id, name, wait_event_name, child_run_id, failure_told_at, wait_timeout_at"
  > {
  on_timeout: "null" | "throw" | null;
  function_id: string | null;
}

/** Keyed by `stepKey`. */
export async function pendingRows(
  session: Session,
  steps: readonly { runId: string; stepId: string }[],
): Promise<Map<string, PendingRow>> {
  const { rowsFrom, byKey } = session.seams;
  const run_id = column.text(steps.map((s) => s.runId));
  const rows =
    await session.all<PendingRow>(sql`SELECT s.run_id, s.step_id, s.name, s.wait_event_name, s.child_run_id,
      s.failure_told_at, s.on_timeout, s.wait_timeout_at,
      COALESCE(i.function_id, (SELECT c.function_id FROM runs c WHERE c.id = s.child_run_id)) AS function_id
    FROM ${rowsFrom("v", { run_id, step_id: column.text(steps.map((s) => s.stepId)) })}
      JOIN steps s ON s.run_id = v.run_id AND s.step_id = v.step_id ${byKey("s.run_id", run_id)}
      LEFT JOIN invocations i ON i.parent_run_id = v.run_id AND i.step_id = v.step_id
        ${byKey("i.parent_run_id", run_id)}`);
  return new Map(rows.map((row) => [stepKey(row.run_id, row.step_id), row]));
}

export interface FailedInvoke {
  row: WaitingRow;
  step: PendingRow;
  error: InvokeError;
}

export interface ResolvedRuns {
  lanes: QueueHint[];
  failed: { runId: string; environmentId: string }[];
}

/**
 * Fails invoke steps. The handler continues with an error that is not retryable when its worker understands
 * failed steps. A handler of an older worker would yield the same step for ever, so its run fails. The caller
 * holds the executions' locks.
 */
export async function failInvokes(
  session: Session,
  list: readonly FailedInvoke[],
  now: Instant,
): Promise<ResolvedRuns> {
  const accepting = list.filter(({ step }) => step.failure_told_at !== null);
  const ending = list.filter(({ step }) => step.failure_told_at === null);
  await resolveSteps(
    session,
    accepting.map(
      ({ row, step, error }): Resolution => ({
        row,
        stepId: step.step_id,
        status: "failed",
        output: null,
        error: JSON.stringify(error),
        seenPosition: null,
        detail: JSON.stringify({ step_id: step.step_id, error }),
      }),
    ),
    [],
    now,
  );
  const undoing = await endWaiting(
    session,
    ending.map(({ row, step, error }) => ({ row, stepId: step.step_id, status: "failed", error })),
    now,
  );
  return {
    lanes: [...queueHintsOfRows(accepting.map(({ row }) => row)), ...undoing.lanes],
    failed: runsOf(ending, undoing),
  };
}

/** Fails steps, and their runs with the same error; answers the runs that are undone first. */
async function endWaiting(
  session: Session,
  list: readonly { row: WaitingRow; stepId: string; status: "failed" | "timed_out"; error: RunError }[],
  now: Instant,
): Promise<Undoing> {
  const at = sql.bigint(now);
  if (list.length > 0)
    await session.run(sql`UPDATE steps SET status = v.status, error = v.error, ended_at = ${at}, updated_at = ${at},
      duration_ms = ${tookUntil(now)}
    FROM ${session.seams.rowsFrom("v", {
      ...columnsOf(list, { text: "stepId status" }),
      run_id: column.text(list.map(({ row }) => row.run_id)),
      error: column.text(list.map(({ error }) => JSON.stringify(error))),
    })} WHERE steps.run_id = v.run_id AND steps.step_id = v.step_id AND steps.status = 'waiting'`);
  noteSteps(
    session,
    list.map(({ row, stepId }) => ({ ...row, step_id: stepId })),
    now,
  );
  const byRun = new Map(list.map((one) => [one.row.run_id, one]));
  return endRuns(
    session,
    [...byRun.values()].map(({ row, error: { message, code } }) => ({
      runId: row.run_id,
      status: "failed",
      error: { message, ...(code && { code }), retryable: false },
      cause: null,
    })),
    now,
  );
}

const runsOf = (list: readonly { row: WaitingRow }[], { runIds }: Undoing) =>
  list.flatMap(({ row }) =>
    runIds.has(row.run_id) ? [] : { runId: row.run_id, environmentId: row.environment_id },
  );

const pendingColumns = sql.raw(
  "d.run_id, d.environment_id, d.function_id, d.state, d.waiting_step_id, d.history_count, d.wake_at, d.gather_ms",
);

const pendingStates = sql.raw("d.state <> 'queued' AND d.state IN ('waiting', 'invoking')");

/** A step whose time is over, with the execution that waits at it. */
interface DueStep {
  row: WaitingRow;
  stepId: string;
  /** Of a wait; an invoke fails in any case. */
  isWait: boolean;
}

/** The handlers of these waits asked for a result when none came in time. */
async function goOnWithout(
  session: Session,
  list: readonly DueStep[],
  steps: ReadonlyMap<string, PendingRow>,
  now: Instant,
): Promise<void> {
  await resolveSteps(
    session,
    list.map(({ row, stepId }): Resolution => {
      const error = waitTimedOut(steps.get(stepKey(row.run_id, stepId))?.wait_event_name ?? "");
      return {
        ...{ row, stepId, status: "timed_out", output: null, error: JSON.stringify(error) },
        // What came meanwhile and was not waited for may end the next wait.
        seenPosition: "kept",
        detail: JSON.stringify({ step_id: stepId, timed_out: true }),
      };
    }),
    [],
    now,
  );
  await dropStepWaits(
    session,
    list.map(({ row, stepId }) => ({ runId: row.run_id, stepId })),
  );
}

/** Of runs with several waits: all whose time is over by now, and not only the one that is due first. */
async function dueSteps(
  session: Session,
  due: readonly (WaitingRow & { waiting_step_id: string })[],
  now: Instant,
): Promise<DueStep[]> {
  const first = due.map(
    (row): DueStep => ({ row, stepId: row.waiting_step_id, isWait: row.state === "waiting" }),
  );
  const several = new Map(due.flatMap((row) => (row.gather_ms === null ? [] : [[row.run_id, row] as const])));
  if (several.size === 0) return first;
  const others = await session.all<{
    run_id: string;
    step_id: string;
    type: string;
  }>(sql`SELECT run_id, step_id, type
    FROM steps WHERE run_id ${session.seams.among(column.text([...several.keys()]))}
      AND status = 'waiting' AND wait_timeout_at <= ${sql.bigint(now)}`);
  return [
    ...first,
    ...others.flatMap(({ run_id, step_id: stepId, type }) => {
      const row = several.get(run_id)!;
      return row.waiting_step_id === stepId ? [] : { row, stepId, isWait: type === "wait_for_event" };
    }),
  ];
}

/**
 * Times out waits and invokes. A wait fails its run without a retry, unless its handler asked for a result,
 * and only once all that could have met it before its deadline is compared (`dueWaits`). An invoke fails its
 * step, and the child continues. Locks: executions (never waited for), then their rows.
 */
export async function timeOutPending(
  session: Session,
  now: Instant,
  slice: Slice<WakeQueue>,
  compared: ComparedWith,
): Promise<ResolvedRuns & { counts: number[] }> {
  const found = await session.all<WaitingRow & { waiting_step_id: string; wake_at: Instant; turn: number }>(
    sliceOfWakes(session, pendingColumns, now, slice, pendingStates),
  );
  const counts = "turns" in slice ? countTurns(slice.turns, found) : [];
  if (found.length === 0) return { lanes: [], failed: [], counts };
  const due = await dueSteps(session, found, now);
  const steps = await pendingRows(
    session,
    due.map(({ row, stepId }) => ({ runId: row.run_id, stepId })),
  );
  const stepOf = ({ row, stepId }: DueStep) => steps.get(stepKey(row.run_id, stepId));
  const wakesAt = new Map(found.map((row) => [row.run_id, row.wake_at]));
  const { over: waits, later } = await dueWaits(
    session,
    due.flatMap((one) => {
      if (!one.isWait) return [];
      // `wake_at` is later where the wait was put off.
      const wakeAt = wakesAt.get(one.row.run_id)!;
      return { ...one, deadline: Math.min(stepOf(one)?.wait_timeout_at ?? wakeAt, wakeAt) };
    }),
    compared,
  );
  await putOff(session, later, now);
  // A run that one of its waits ends needs no other.
  const ending = [
    ...new Map(waits.filter((one) => !stepOf(one)?.on_timeout).map((one) => [one.row.run_id, one])).values(),
  ];
  const ended = new Set(ending.map(({ row }) => row.run_id));
  const told = waits.filter((one) => !ended.has(one.row.run_id));
  await goOnWithout(session, told, steps, now);
  const undoing = await endWaiting(
    session,
    ending.map((one) => ({
      ...{ row: one.row, stepId: one.stepId, status: "timed_out" },
      error: waitTimedOut(stepOf(one)?.wait_event_name ?? ""),
    })),
    now,
  );
  const invokes = due.flatMap((one): FailedInvoke[] => {
    const step = stepOf(one);
    if (one.isWait || !step || ended.has(one.row.run_id)) return [];
    return [{ row: one.row, step, error: invokeTimedOut(step.function_id ?? step.name, step.child_run_id) }];
  });
  const moved = await failInvokes(session, invokes, now);
  await dropStepWaits(
    session,
    invokes.map(({ row, step }) => ({ runId: row.run_id, stepId: step.step_id })),
  );
  const failed = [...runsOf(ending, undoing), ...moved.failed];
  const lanes = queueHintsOfRows(told.map(({ row }) => row));
  return { lanes: [...moved.lanes, ...undoing.lanes, ...lanes], failed, counts };
}
