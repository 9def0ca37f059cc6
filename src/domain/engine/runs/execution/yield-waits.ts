import type { Instant } from "../../../../kit/clock.ts";
import { invalid } from "../../../../kit/fault.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import type { StepStatus } from "../run.ts";
import { noteSteps } from "../step-moves.ts";
import { dropStepWaits } from "../waits/drop-waits.ts";
import { rankOfMet } from "../waits/rank-met.ts";
import { gathering } from "../waits/resolve-steps.ts";
import { neverWakesAt, stepColumns, stepConflict, stepsOfReports, stepTarget } from "./commit-reports.ts";
import type { AwaitedStep, ExecutionChange } from "./execution-change.ts";
import { pendingStatements } from "./pending-steps.ts";
import type { RunReport } from "./report.ts";

/** Nodes that keep several waits of a run announce this: others would lose those they do not look at. */
export const knowsOpenWaits = "open_waits";

/** A wait, and what it would change if it were the only one; undefined of one that the server knows. */
export interface PlannedWait extends AwaitedStep {
  change: ExecutionChange | undefined;
}

export type YieldOutcome =
  | { outcome: "stale" | "not_running" | "gone" }
  | {
      outcome: "done";
      /** When the run continues at the latest; now, when it has been queued. */
      wakeAt: Instant;
      isQueued: boolean;
      functionId: string;
      claimedAt: Instant | null;
      laneId: string | null;
      /** What began to be waited for. */
      begun: ExecutionChange[];
    };

type HeldExecution = RowOf<
  "executions",
  `run_id, environment_id, function_id, lane_id, state, execution_seq, lease_hash, attempt,
  step_count, history_count, seen_position, pause_requested_at, claimed_at`
>;

interface KnownStep
  extends RowOf<"steps", "step_id, type, sleep_until, wait_timeout_at, child_run_id, seen_position"> {
  status: StepStatus;
}

interface WaitEnd {
  stepId: string;
  state: "sleeping" | "waiting" | "invoking" | "retrying";
  at: Instant;
}

/** What meets waits of one run within a time is handed out together: the more they are, the longer. */
const gatherMsOf = (open: number): number | null => (open < 2 ? null : Math.min(Math.max(open, 20), 1_000));

/** Of those that a run waits for or gives up so many stand in each row of its history. */
const stepsTold = 20;

/** An invoke that does not wait for its child has no deadline of its own. */
const noDeadline = neverWakesAt - 1;

const stateOf = ({ type }: KnownStep): WaitEnd["state"] =>
  type === "sleep" ? "sleeping" : type === "wait_for_event" ? "waiting" : "invoking";

/**
 * Commits all that a handler waits for: what is new is stored, with the deadline that it had if it was stored
 * before; what the handler waits for no longer is dropped; and the run continues at once if one of them is
 * met already. Otherwise it sleeps until the earliest deadline. Locks: the execution, then its rows.
 */
export async function yieldWaits(
  session: Session,
  report: RunReport,
  planned: readonly PlannedWait[],
  now: Instant,
): Promise<YieldOutcome> {
  const { runId, environmentId } = report;
  const row =
    await session.one<HeldExecution>(sql`SELECT run_id, environment_id, function_id, lane_id, state, execution_seq, lease_hash,
      attempt, step_count, history_count, seen_position, pause_requested_at, claimed_at
    FROM executions WHERE run_id = ${runId} AND environment_id = ${environmentId} ${session.seams.holdRow}`);
  if (!row) return { outcome: "gone" };
  if (row.execution_seq !== report.executionSeq || row.lease_hash !== report.leaseHash)
    return { outcome: "stale" };
  if (row.state !== "leased") return { outcome: "not_running" };

  const known = await knownSteps(session, row, planned);
  const deadlines: WaitEnd[] = [];
  const begun: { wait: PlannedWait; change: ExecutionChange; from: number }[] = [];
  let met: string | undefined;
  for (const [at, wait] of planned.entries()) {
    const step = known.steps.get(wait.stepId);
    if (step && isOver(step)) {
      met ??= step.step_id;
      continue;
    }
    const isOpen = step?.status === "sleeping" || step?.status === "waiting";
    // One that does not wait for its child has no time of its own, and is begun again: its child is the same.
    const hasChild = step?.child_run_id != null && step.wait_timeout_at !== null;
    if (isOpen && (step.type === "sleep" || hasChild || known.live.has(wait.stepId))) {
      const until = step.sleep_until ?? step.wait_timeout_at ?? noDeadline;
      deadlines.push({ stepId: wait.stepId, state: stateOf(step), at: until });
      continue;
    }
    const { change } = wait;
    if (!change) throw invalid(`yields[${at}].type`, "required: the server knows no such wait of the run");
    const first = isOpen ? (step.sleep_until ?? step.wait_timeout_at) : null;
    const kept = first === null ? change : withDeadline(change, first);
    const after = wait.after === null ? undefined : known.steps.get(wait.after);
    begun.push({ wait, change: kept, from: after?.seen_position ?? row.seen_position });
    deadlines.push({ stepId: wait.stepId, state: kept.next as WaitEnd["state"], at: kept.wakeAt! });
  }

  const count = await begin(session, row, begun, now);
  // The last one that is left stands where it was asked for, and others have come since.
  if (deadlines.length === 1 && begun.length === 0)
    await session.run(sql`UPDATE steps SET sequence = ${sql.bigint(rankOfMet(now))}
      WHERE run_id = ${runId} AND step_id = ${deadlines[0]!.stepId}`);
  const wanted = new Set(planned.map(({ stepId }) => stepId));
  const lost = known.open.filter(({ step_id }) => !wanted.has(step_id));
  if (lost.length > 0) await dropLost(session, row, lost, now);
  if (known.open.some(({ child_run_id }) => child_run_id !== null)) await tellEnded(session, runId, now);
  const first = deadlines.toSorted((a, b) => a.at - b.at)[0];
  const gatherMs = gatherMsOf(deadlines.length);
  const queued = { state: "queued", at: now, stepId: null };
  // From here on the run's own position counts.
  const last = gatherMs === null && deadlines.length === 1 ? deadlines[0]!.stepId : undefined;
  const lastSeen =
    last === undefined ? null : (begun[0]?.from ?? known.steps.get(last)?.seen_position ?? null);
  const goingOn = gatherMs === null ? queued : { state: "retrying", at: now + gatherMs, stepId: gathering };
  const next = !first ? queued : met === undefined ? first : goingOn;
  const isQueued = next.state === "queued";
  const isPaused = row.pause_requested_at !== null;
  const sequence = row.history_count + 1;
  const wakeAt = sql.bigint(next.at);
  await session.run(sql`UPDATE executions SET state = ${isPaused ? "held" : next.state},
      wake_at = ${isPaused ? sql.bigint(neverWakesAt) : wakeAt}, worker_id = NULL, waiting_step_id = CAST(${next.stepId} AS TEXT),
      lease_hash = ${isQueued && !isPaused ? sql.raw("NULL") : sql.raw("lease_hash")}, lost_count = 0,
      held_from = CAST(${isPaused ? next.state : null} AS TEXT), held_wake_at = CAST(${isPaused ? next.at : null} AS BIGINT),
      held_at = CAST(${isPaused ? now : null} AS BIGINT), pause_requested_at = NULL,
      step_count = step_count + ${sql.bigint(count)}, history_count = ${sql.bigint(sequence)},
      watched_at = COALESCE(watched_at, ${sql.bigint(now)}), gather_ms = CAST(${gatherMs} AS BIGINT),
      seen_position = COALESCE(CAST(${lastSeen} AS BIGINT), seen_position)
    WHERE run_id = ${runId}`);
  const detail = {
    state: next.state,
    steps: deadlines.slice(0, stepsTold).map(({ stepId, at }) => ({ step_id: stepId, until: at })),
    ...(deadlines.length > stepsTold && { open: deadlines.length }),
    ...(met !== undefined && { met }),
    ...(lost.length > 0 && { lost: lost.slice(0, stepsTold).map(({ step_id }) => step_id) }),
  };
  const type = isPaused ? "run.paused" : met !== undefined ? "run.woken" : "run.waiting";
  await session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
    VALUES (${runId}, ${sql.bigint(sequence)}, ${environmentId}, ${type}, ${sql.bigint(now)}, ${JSON.stringify(detail)})`);
  return {
    ...{ outcome: "done", wakeAt: next.at, isQueued: isQueued && !isPaused },
    ...{ functionId: row.function_id, claimedAt: row.claimed_at, laneId: row.lane_id },
    begun: begun.map(({ change }) => change),
  };
}

/** Its result is handed to the handler with the next job. */
const isOver = ({ status, type }: KnownStep): boolean =>
  status === "completed" || status === "timed_out" || (status === "failed" && type !== "invoke");

/** The steps that the report names, and those that are open; a run without any step has none. */
async function knownSteps(
  session: Session,
  { run_id, step_count }: HeldExecution,
  planned: readonly PlannedWait[],
) {
  const ids = [
    ...new Set(planned.flatMap(({ stepId, after }) => (after === null ? [stepId] : [stepId, after]))),
  ];
  const steps =
    step_count === 0
      ? []
      : await session.all<KnownStep>(sql`SELECT step_id, type, status, sleep_until, wait_timeout_at, child_run_id, seen_position
    FROM steps WHERE run_id = ${run_id}
      AND (step_id ${session.seams.among(column.text(ids))} OR status IN ('waiting', 'sleeping'))`);
  const open = steps.filter(({ status }) => status === "waiting" || status === "sleeping");
  const live =
    open.length === 0
      ? []
      : await session.all<{ step_id: string }>(sql`SELECT COALESCE(of_step, step_id) AS step_id FROM waits
      WHERE run_id = ${run_id} AND kind = 'wait'
    UNION SELECT step_id FROM invocations WHERE parent_run_id = ${run_id}`);
  return {
    steps: new Map(steps.map((step) => [step.step_id, step])),
    open,
    live: new Set(live.map(({ step_id }) => step_id)),
  };
}

/** A wait that was stored before keeps its first deadline. */
function withDeadline(change: ExecutionChange, at: Instant): ExecutionChange {
  const { pending, steps } = change;
  return {
    ...change,
    wakeAt: at,
    pending: pending && { ...pending, timeoutAt: at },
    steps: steps.map((step) => (step.status === "sleeping" ? { ...step, sleepUntil: at } : step)),
  };
}

/** Stores the waits that are new; answers how many steps that made. */
async function begin(
  session: Session,
  row: HeldExecution,
  begun: readonly { wait: PlannedWait; change: ExecutionChange; from: number }[],
  now: Instant,
): Promise<number> {
  const { seams } = session;
  const made = begun.filter(({ change }) => change.pending !== null || change.steps.length > 0);
  const placed = made.map((one, at) => ({ ...one, sequence: row.step_count + at }));
  const pending = placed.flatMap(({ change, from, sequence }) =>
    change.pending
      ? [
          {
            ...{ step: change.pending, runId: change.runId, environmentId: change.environmentId },
            ...{ attempt: row.attempt, seenPosition: from, sequence },
          },
        ]
      : [],
  );
  if (pending.length > 0)
    for (const statement of pendingStatements(seams, pending, now)) await session.run(statement);
  const sleeps = placed.filter(({ change }) => change.pending === null);
  if (sleeps.length > 0) {
    const steps = stepsOfReports(sleeps.map(({ change }) => change));
    await session.run(sql`INSERT INTO ${stepTarget}
      SELECT s.run_id, s.step_id, s.environment_id, s.name, s.type, s.sequence, s.status, s.output, s.error,
        ${sql.bigint(row.attempt)}, s.started_at, s.ended_at, s.duration_ms, s.compensation_for, s.sleep_until, ${sql.bigint(now)}, ${sql.bigint(now)}, CAST(NULL AS BIGINT)
      FROM ${seams.rowsFrom("s", {
        ...stepColumns(steps),
        sequence: column.bigint(steps.map(({ report }) => sleeps[report - 1]!.sequence)),
      })} WHERE true ${stepConflict}`);
  }
  noteSteps(
    session,
    made.map(({ wait, change }) => ({
      ...{ run_id: change.runId, environment_id: change.environmentId, step_id: wait.stepId },
    })),
    now,
  );
  return made.length;
}

/** What the handler waits for no longer. A child that was started continues, and its step keeps it. */
async function dropLost(
  session: Session,
  { run_id, environment_id }: HeldExecution,
  lost: readonly KnownStep[],
  now: Instant,
): Promise<void> {
  await dropStepWaits(
    session,
    lost.map(({ step_id: stepId }) => ({ runId: run_id, stepId })),
  );
  const gone = lost.filter(({ child_run_id }) => child_run_id === null).map(({ step_id }) => step_id);
  if (gone.length === 0) return;
  await session.run(sql`DELETE FROM steps WHERE run_id = ${run_id}
    AND step_id ${session.seams.among(column.text(gone))} AND status IN ('waiting', 'sleeping')`);
  noteSteps(
    session,
    gone.map((step_id) => ({ run_id, environment_id, step_id })),
    now,
  );
}

/** A child may have ended while its parent was held: its notice of that end is gone. */
async function tellEnded(session: Session, runId: string, now: Instant): Promise<void> {
  await session.run(sql`INSERT INTO child_ends (child_run_id, environment_id, ended_at)
    SELECT r.id, r.environment_id, ${sql.bigint(now)} FROM steps s JOIN runs r ON r.id = s.child_run_id
    WHERE s.run_id = ${runId} AND s.status = 'waiting' AND r.status <> 'active' ON CONFLICT DO NOTHING`);
}
