import type { Instant } from "../../../../kit/clock.ts";
import { workerSilenceMsMax } from "../../../../kit/limits.ts";
import {
  countTurns,
  type DueRows,
  environmentsDue,
  type Slice,
  sliceOf,
  type WorkScope,
} from "../../../../kit/round-robin.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session, Store } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import { neverWakesAt } from "../execution/commit-reports.ts";
import { areLeasesOf, type Silence } from "../execution/leases.ts";
import { refusedLast } from "../execution/refusal.ts";
import { leasesLostMax, wakeSliceMax } from "../limits.ts";
import { moveStranded } from "../pins/pin-rows.ts";
import { timedOut, workerLost } from "../rules.ts";
import type { QueueHint } from "../run.ts";
import { noteSteps, tookUntil } from "../step-moves.ts";
import { endRuns } from "../undo/end-runs.ts";
import { rankOfMet } from "../waits/rank-met.ts";
import { gathering } from "../waits/resolve-steps.ts";
import { finishResumes } from "./finish-resumes.ts";
import { sliceOfWakes, type WakeQueue } from "./wake-queues.ts";

export type { QueueHint };

interface DueExecution
  extends RowOf<
    "executions",
    `run_id, environment_id, function_id, lane_id, pause_requested_at, execution_seq, attempt,
  history_count, lost_count, wake_at, worker_id, waiting_step_id, gather_ms`
  > {
  state: "leased" | "sleeping" | "retrying" | "waiting" | "invoking" | "resuming" | "stranded";
  /** Number of the turn, in a slice by turns. */
  turn: number;
}

export interface WakeOutcome {
  /** Rows found; equal to the slice when there may be more. */
  found: number;
  /** Of each turn, in a slice by turns. */
  counts: number[];
  /** Queues that got runs. */
  lanes: QueueHint[];
  /** Runs that failed because too many workers in a row stopped answering. */
  lost: { runId: string; environmentId: string }[];
  /** Runs that failed because the last report of their worker was refused. */
  refused: WakeOutcome["lost"];
  /** Whether waits or invokes are due too: `timeOutPending` moves them. */
  isPendingDue: boolean;
  /** Environments of the waits among them. */
  waitedIn: Set<string>;
  /** Workers whose leases ended without a report. */
  silent: { environmentId: string; workerId: string }[];
}

const dueColumns =
  sql.raw(`d.run_id, d.environment_id, d.function_id, d.lane_id, d.state, d.execution_seq, d.attempt,
  d.history_count, d.lost_count, d.wake_at, d.worker_id, d.waiting_step_id, d.pause_requested_at, d.gather_ms`);

/**
 * Moves what is due: a sleep has passed, a retry's delay is over, a lease ended without a report. Rows
 * another node holds are skipped. Leases from before `pardon` stay. Locks: executions (never waited for),
 * then steps and runs of the same runs.
 */
export async function wakeDue(
  session: Session,
  now: Instant,
  slice: Slice<WakeQueue> = { oldest: wakeSliceMax },
  pardon?: Instant,
): Promise<WakeOutcome> {
  const which = pardon
    ? sql`d.state <> 'queued' AND (d.state <> 'leased' OR d.claimed_at >= ${pardon})`
    : undefined;
  const due = await session.all<DueExecution>(sliceOfWakes(session, dueColumns, now, slice, which));
  const counts = "turns" in slice ? countTurns(slice.turns, due) : [];
  return { ...(await moveDue(session, due, now)), counts };
}

/**
 * Ends leases of a worker that it has not renewed since `at`, as if their time were over. Locks as `wakeDue`.
 */
export async function endSilent(
  session: Session,
  silence: Silence,
  now: Instant,
): Promise<Omit<WakeOutcome, "counts">> {
  const due = await session.all<DueExecution>(sql`SELECT ${dueColumns} FROM executions d
    WHERE ${areLeasesOf(silence, { claimedBefore: silence.at, endsUntil: silence.at + silence.leaseMs - 1 })}
    ORDER BY d.wake_at LIMIT ${sql.bigint(wakeSliceMax)} ${session.seams.skipLocked}`);
  return moveDue(session, due, now);
}

async function moveDue(
  session: Session,
  due: readonly DueExecution[],
  now: Instant,
): Promise<Omit<WakeOutcome, "counts">> {
  const refusals = await refusedLast(
    session,
    due.filter((row) => row.state === "leased"),
  );
  const isRefused = (row: DueExecution) => refusals.has(row.run_id);
  const isLost = (row: DueExecution) => row.state === "leased" && row.lost_count + 1 >= leasesLostMax;
  const failing = due.filter((row) => isRefused(row) || isLost(row));
  const undoing = await endRuns(
    session,
    failing.map((row) => ({
      runId: row.run_id,
      status: "failed",
      error: refusals.get(row.run_id) ?? workerLost(leasesLostMax),
      cause: null,
    })),
    now,
  );
  const ended = failing.filter((row) => !undoing.runIds.has(row.run_id));
  // Finishes a resume whose node crashed between its two transactions.
  const resuming = due.filter((row) => row.state === "resuming").map((row) => row.run_id);
  if (resuming.length > 0) await finishResumes(session, resuming, now);
  const stranded = due.filter((row) => row.state === "stranded").map((row) => row.run_id);
  if (stranded.length > 0) await moveStranded(session, stranded, { now, since: now - workerSilenceMsMax });
  const queued = due.filter(
    (row): row is QueuedRow => !failing.includes(row) && !isPending(row) && row.state in historyTypes,
  );
  if (queued.length > 0) await requeue(session, queued, now);
  return {
    found: due.length,
    lanes: [...queueHintsOf(due.filter((row) => !isPending(row))), ...undoing.lanes],
    isPendingDue: due.some(isPending),
    waitedIn: new Set(due.flatMap((row) => (row.state === "waiting" ? row.environment_id : []))),
    lost: ended.filter((row) => !isRefused(row)).map(nameOf),
    refused: ended.filter(isRefused).map(nameOf),
    silent: silentWorkers(due),
  };
}

const nameOf = (row: DueExecution) => ({ runId: row.run_id, environmentId: row.environment_id });

type QueuedRow = DueExecution & { state: keyof typeof historyTypes };

const isPending = ({ state }: DueExecution): boolean => state === "waiting" || state === "invoking";

type SleptStep = Pick<DueExecution, "run_id" | "environment_id" | "gather_ms"> & { step_id: string | null };

/** The sleeps that are over: of a run with several waits all that are due by now. */
async function sleptSteps(
  session: Session,
  rows: readonly DueExecution[],
  now: Instant,
): Promise<SleptStep[]> {
  const slept = rows.map((row): SleptStep => ({ ...row, step_id: row.waiting_step_id }));
  const several = rows.filter((row) => row.gather_ms !== null).map((row) => row.run_id);
  if (several.length === 0) return slept;
  const due = await session.all<{ run_id: string; step_id: string }>(sql`SELECT run_id, step_id FROM steps
    WHERE run_id ${session.seams.among(column.text(several))} AND status = 'sleeping' AND sleep_until <= ${sql.bigint(now)}`);
  const byRun = new Map(slept.map((one) => [one.run_id, one]));
  return [
    ...slept,
    ...due.flatMap(({ run_id, step_id }) => {
      const own = byRun.get(run_id)!;
      return own.step_id === step_id ? [] : { ...own, step_id };
    }),
  ];
}

async function requeue(session: Session, rows: readonly QueuedRow[], now: Instant): Promise<void> {
  const { rowsFrom, byKey } = session.seams;
  const run_id = column.text(rows.map((row) => row.run_id));
  const slept = await sleptSteps(
    session,
    rows.filter((row) => row.state === "sleeping"),
    now,
  );
  if (slept.length > 0) {
    const sleepers = column.text(slept.map((row) => row.run_id));
    await session.run(sql`UPDATE steps SET status = 'completed', output = 'null', ended_at = ${now}, updated_at = ${now},
        duration_ms = ${tookUntil(now)}, seen_position = (SELECT h.position FROM heads h WHERE h.environment_id = steps.environment_id),
        sequence = COALESCE(v.sequence, steps.sequence)
      FROM ${rowsFrom("v", {
        run_id: sleepers,
        sequence: column.bigint(slept.map((row) => (row.gather_ms === null ? null : rankOfMet(now)))),
        step_id: column.text(slept.map((row) => row.step_id)),
      })} WHERE steps.run_id = v.run_id AND steps.step_id = v.step_id AND steps.status = 'sleeping'
        ${byKey("steps.run_id", sleepers)}`);
  }
  noteSteps(session, slept, now);
  // A requested pause takes effect also when the lease ends without a report.
  await session.run(sql`UPDATE executions SET state = CASE WHEN pause_requested_at IS NULL THEN 'queued' ELSE 'held' END,
      wake_at = CASE WHEN pause_requested_at IS NULL THEN ${sql.bigint(now)} ELSE ${sql.bigint(neverWakesAt)} END,
      held_from = CASE WHEN pause_requested_at IS NOT NULL THEN 'queued' END,
      held_wake_at = CASE WHEN pause_requested_at IS NOT NULL THEN ${sql.bigint(now)} END,
      held_at = CASE WHEN pause_requested_at IS NOT NULL THEN ${sql.bigint(now)} END, pause_requested_at = NULL,
      lease_hash = NULL, worker_id = NULL,
      waiting_step_id = NULL, attempt = v.attempt, lost_count = v.lost_count, history_count = executions.history_count + 1
      ${slept.length === 0 ? sql.empty : headSeen}
    FROM ${rowsFrom("v", {
      run_id,
      slept: column.bigint(rows.map((row) => (row.state === "sleeping" ? 1 : null))),
      attempt: column.bigint(rows.map(attemptOf)),
      lost_count: column.bigint(rows.map((row) => row.lost_count + (row.state === "leased" ? 1 : 0))),
    })} WHERE executions.run_id = v.run_id ${byKey("executions.run_id", run_id)}`);
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    SELECT run_id, sequence, environment_id, type, ${sql.bigint(now)}, detail FROM ${rowsFrom("v", {
      run_id,
      sequence: column.bigint(rows.map((row) => row.history_count + 1)),
      environment_id: column.text(rows.map((row) => row.environment_id)),
      type: column.text(rows.map(historyTypeOf)),
      detail: column.text(rows.map(wakeDetail)),
    })}`);
}

/** Events logged while a run slept do not resolve its next wait; beside other waits only its branch's. */
const headSeen =
  sql.raw(`, seen_position = CASE WHEN v.slept IS NULL OR executions.gather_ms IS NOT NULL THEN executions.seen_position ELSE COALESCE(
        (SELECT h.position FROM heads h WHERE h.environment_id = executions.environment_id),
        executions.seen_position) END`);

const historyTypes = { leased: "run.lease_expired", sleeping: "run.woken", retrying: "run.retried" };

/** A step that is tried by itself is tried within the attempt. */
const attemptOf = (row: QueuedRow): number =>
  row.attempt + (row.state === "retrying" && row.waiting_step_id === null ? 1 : 0);

const historyTypeOf = ({ pause_requested_at, state, waiting_step_id }: QueuedRow): string => {
  if (pause_requested_at !== null) return "run.paused";
  return waiting_step_id === gathering ? "run.woken" : historyTypes[state];
};

function wakeDetail(row: QueuedRow): string {
  if (row.waiting_step_id === gathering) return JSON.stringify({ gathered: true });
  if (row.waiting_step_id !== null) return JSON.stringify({ step_id: row.waiting_step_id });
  if (row.state === "retrying") return JSON.stringify({ attempt: row.attempt + 1 });
  return JSON.stringify({ worker_id: row.worker_id, execution_seq: row.execution_seq });
}

export interface TimedOut {
  runId: string;
  environmentId: string;
  hint: QueueHint | undefined;
  /** The run is undone before it ends. */
  isUndone: boolean;
}

const dueTimeouts = (now: Instant): DueRows => ({
  table: "executions",
  columns: sql.raw(`d.run_id, d.environment_id, d.function_id, d.lane_id,
    d.timeout_at - (SELECT r.created_at FROM runs r WHERE r.id = d.run_id) AS timeout_ms`),
  where: sql`d.timeout_at IS NOT NULL`,
  dueAt: "timeout_at",
  until: now,
});

/** Environments with runs whose `timeout_at` has passed. */
export const timeoutEnvironments = (store: Store, now: Instant): Promise<WorkScope[]> =>
  store.all(environmentsDue(dueTimeouts(now)));

/** Ends runs whose `timeout_at` has passed, in any state; answers them. */
export async function endTimedOut(
  session: Session,
  now: Instant,
  slice: Slice,
): Promise<{ ended: TimedOut[]; counts: number[] }> {
  const due = await session.all<{
    run_id: string;
    environment_id: string;
    function_id: string;
    lane_id: string | null;
    timeout_ms: number;
    turn: number;
  }>(sliceOf(session.seams, { ...dueTimeouts(now), lock: session.seams.skipLocked }, slice));
  const undoing = await endRuns(
    session,
    due.map((row) => ({
      runId: row.run_id,
      status: "failed",
      error: timedOut(row.timeout_ms),
      cause: null,
    })),
    now,
  );
  const ended = due.map(({ run_id, environment_id, function_id, lane_id }) => {
    const isUndone = undoing.runIds.has(run_id);
    const hint = isUndone
      ? {
          environmentId: environment_id,
          functionId: function_id,
          ...(lane_id !== null && { laneId: lane_id }),
        }
      : freedLaneHint(environment_id, function_id, lane_id);
    return { runId: run_id, environmentId: environment_id, hint, isUndone };
  });
  return { ended, counts: "turns" in slice ? countTurns(slice.turns, due) : [] };
}

/** The hint that a lease of a concurrency queue ended; undefined for a run without one. */
export const freedLaneHint = (
  environmentId: string,
  functionId: string,
  laneId: string | null,
): QueueHint | undefined =>
  laneId === null ? undefined : { environmentId, functionId, laneId, freed: true, queued: false };

/**
 * Cancels the runs of a function that no worker has begun; answers their ids. Locks: executions sorted
 * by run.
 */
export async function cancelQueued(
  session: Session,
  {
    environmentId,
    functionId,
    cause,
    now,
  }: { environmentId: string; functionId: string; cause: string; now: Instant },
): Promise<string[]> {
  const rows = await session.all<{ run_id: string }>(sql`SELECT run_id FROM executions
    WHERE environment_id = ${environmentId} AND function_id = ${functionId} AND state = 'queued' AND started_at IS NULL
    ORDER BY run_id ${session.seams.holdRow}`);
  const ends = rows.map((row) => ({ runId: row.run_id, status: "cancelled" as const, error: null, cause }));
  for (let from = 0; from < ends.length; from += 1000)
    await endRuns(session, ends.slice(from, from + 1000), now);
  return ends.map((end) => end.runId);
}

const silentWorkers = (rows: readonly DueExecution[]) =>
  rows.flatMap(({ state, environment_id, worker_id }) =>
    state === "leased" && worker_id !== null ? { environmentId: environment_id, workerId: worker_id } : [],
  );

/** The hints for rows that were queued, and for leases that ended. */
function queueHintsOf(rows: readonly DueExecution[]): QueueHint[] {
  const lanes = new Map<string, QueueHint>();
  for (const { environment_id, function_id, lane_id, state } of rows) {
    const key = lane_id ?? `${environment_id}\n${function_id}`;
    const freed = state === "leased" || lanes.get(key)?.freed === true;
    lanes.set(key, {
      environmentId: environment_id,
      functionId: function_id,
      ...(lane_id !== null && { laneId: lane_id, freed }),
    });
  }
  return [...lanes.values()];
}
