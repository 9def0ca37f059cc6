import type { Instant } from "../../../../kit/clock.ts";
import { type Ctes, column, type Sql, sql } from "../../../../kit/sql.ts";
import type { Flush, SyncSession } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/index.ts";
import { attributesSet, setAttributes } from "../attributes/attribute-rows.ts";
import { countFailures, countForAlerts, groupColumns, noteFailedRuns } from "../error-groups.ts";
import { linesStored, storeLines } from "../logs/log-rows.ts";
import { seenBySleep } from "../waits/rank-met.ts";
import type { ExecutionChange, NewStep } from "./execution-change.ts";
import { insertPending, pendingParts } from "./pending-steps.ts";

/** `wake_at` of a held execution: only a resume moves it. */
export const neverWakesAt = Number.MAX_SAFE_INTEGER;
const neverWakes = sql.raw(String(neverWakesAt));

/** Sequence of a step whose worker sent no index: it is appended as the `place`th (from 0). */
export const behindAll = (place: number): number => -1 - place;

const appendedCount = (change: ExecutionChange): number =>
  change.steps.filter((step) => step.sequence < 0).length + (change.pending ? 1 : 0);

/**
 * `stale`: another lease holds the execution. `not_running`: the fence holds, but the run sleeps or waits.
 * `gone`: there is no execution, the row of `runs` says why.
 */
export interface CommittedReport {
  ord: number;
  outcome: "done" | "stale" | "not_running" | "gone";
  /** The parent run that waits for this one; set when this report ended it. */
  parent_run_id: string | null;
  /** Set when the outcome is `done` and the function has a concurrency limit. */
  lane_id: string | null;
  /** Both are set when the outcome is `done`. */
  function_id: string | null;
  claimed_at: number | null;
}

export interface CommitReportsInput {
  now: Instant;
  changes: readonly ExecutionChange[];
}

const texts = (of: (change: ExecutionChange) => string | null) => (list: readonly ExecutionChange[]) =>
  column.text(list.map(of));
const numbers = (of: (change: ExecutionChange) => number | null) => (list: readonly ExecutionChange[]) =>
  column.bigint(list.map(of));

const reportColumns = {
  run_id: texts((s) => s.runId),
  environment_id: texts((s) => s.environmentId),
  execution_seq: numbers((s) => s.executionSeq),
  lease_hash: texts((s) => s.leaseHash),
  ends: texts((s) => s.ends),
  next: texts((s) => s.next),
  wake_at: numbers((s) => s.wakeAt),
  output: texts((s) => s.output),
  error: texts((s) => s.error),
  history_type: texts((s) => s.historyType),
  history_detail: texts((s) => s.historyDetail),
  steps_top: numbers((s) => s.stepsTop),
  waiting_step_id: texts((s) => s.waitingStepId),
  appended: numbers(appendedCount),
  pausable: numbers((s) => (mayPause(s) ? 1 : null)),
};

type ReportColumn = keyof typeof reportColumns;

const columnsOf = (list: readonly ExecutionChange[], names: readonly ReportColumn[]) =>
  Object.fromEntries(names.map((name) => [name, reportColumns[name](list)]));

/**
 * A requested pause takes effect with a report that brings steps or gives the lease up, not with a heartbeat.
 */
const mayPause = (change: ExecutionChange): boolean =>
  change.ends === null && (change.next !== "leased" || change.steps.length > 0);

interface StepOfReport extends NewStep {
  report: number;
  change: ExecutionChange;
}

export const stepsOfReports = (list: readonly ExecutionChange[]): StepOfReport[] =>
  list.flatMap((change, at) => change.steps.map((step) => ({ ...step, report: at + 1, change })));

export const stepColumns = (steps: readonly StepOfReport[]) => ({
  report: column.bigint(steps.map((s) => s.report)),
  run_id: column.text(steps.map((s) => s.change.runId)),
  environment_id: column.text(steps.map((s) => s.change.environmentId)),
  step_id: column.text(steps.map((s) => s.stepId)),
  name: column.text(steps.map((s) => s.name)),
  type: column.text(steps.map((s) => s.type)),
  sequence: column.bigint(steps.map((s) => s.sequence)),
  status: column.text(steps.map((s) => s.status)),
  output: column.text(steps.map((s) => s.output)),
  error: column.text(steps.map((s) => s.error)),
  started_at: column.bigint(steps.map((s) => s.startedAt)),
  ended_at: column.bigint(steps.map((s) => s.endedAt)),
  duration_ms: column.bigint(steps.map((s) => s.durationMs)),
  compensation_for: column.text(steps.map((s) => s.compensationFor)),
  sleep_until: column.bigint(steps.map((s) => s.sleepUntil)),
});

export const stepTarget =
  sql.raw(`steps (run_id, step_id, environment_id, name, type, sequence, status, output, error,
  attempt, started_at, ended_at, duration_ms, compensation_for, sleep_until, created_at, updated_at, seen_position)`);

// A completed step is never written again: later steps were computed from its output. A step that had failed,
// or a sleep that its worker ended, takes a new place: handlers get results in the order in which they came.
export const stepConflict = sql.raw(`ON CONFLICT (run_id, step_id) DO UPDATE SET
  sequence = CASE WHEN (steps.status = 'failed' AND steps.type <> 'compensate') OR (steps.status = 'sleeping' AND excluded.status = 'completed')
    THEN excluded.sequence ELSE steps.sequence END, seen_position = COALESCE(excluded.seen_position, steps.seen_position), status = excluded.status, output = excluded.output, error = excluded.error, attempt = excluded.attempt,
  started_at = excluded.started_at, ended_at = excluded.ended_at, duration_ms = excluded.duration_ms,
  sleep_until = excluded.sleep_until, updated_at = excluded.updated_at
  WHERE steps.status <> 'completed'`);

/** Columns that only reports of runs with something to undo need. */
const undoColumns = (list: readonly ExecutionChange[]) => ({
  undo_count: column.bigint(list.map((s) => s.undo?.count ?? null)),
  ending: column.text(list.map((s) => s.undo?.ending ?? null)),
  undo_until: column.bigint(list.map((s) => s.undo?.until ?? null)),
  cause: column.text(list.map((s) => s.undo?.cause ?? null)),
  undo_failed: column.bigint(list.map((s) => s.undo?.failed || null)),
});

const hasUndo = (list: readonly ExecutionChange[]): boolean => list.some((change) => change.undo !== null);

const hasFailed = (list: readonly ExecutionChange[]): boolean =>
  list.some(({ errorGroup }) => errorGroup !== null);

interface Ended {
  isUndone: boolean;
  hasFailed: boolean;
}

/** The SET list of a run `r` that ends, from its report `v`; both engines run this text. */
const setEnded = (now: Instant, { isUndone, hasFailed }: Ended): Sql => sql`${
  isUndone ? sql.raw("cancellation_cause = v.cause, undo_failed = v.undo_failed, ") : sql.empty
}${hasFailed ? sql.raw("error_group = v.error_group, ") : sql.empty}status = v.ends,
        trouble = CASE WHEN v.ends <> 'completed' THEN v.ends END, output = v.output, error = v.error,
        attempt = v.attempt, worker_id = v.worker_id, started_at = v.started_at, ended_at = ${sql.bigint(now)},
        updated_at = ${sql.bigint(now)}, execution_seq = v.execution_seq, lease_hash = v.lease_hash`;

/** Ctes of `setStaying` that only such reports need. */
const setUndo = sql.raw(`undo_count = COALESCE(v.undo_count, e.undo_count),
        ending = COALESCE(v.ending, e.ending), timeout_at = COALESCE(v.undo_until, e.timeout_at),`);
const returned = (isUndone: boolean): Sql => (isUndone ? sql.raw("AND v.ending IS NULL") : sql.empty);

/**
 * The SET list of an execution `e` whose run continues, from its report `v`. `v.paused_at` is set where a
 * pause was requested and takes effect with this report: the execution is then held, and keeps its place.
 */
const setStaying = (now: Instant, greatest: "GREATEST" | "MAX", isUndone: boolean): Sql => sql`${
  isUndone ? setUndo : sql.empty
}
        state = CASE WHEN v.paused_at IS NULL THEN v.next ELSE 'held' END,
        wake_at = CASE WHEN v.paused_at IS NULL THEN COALESCE(v.wake_at, e.wake_at) ELSE ${neverWakes} END,
        held_from = CASE WHEN v.paused_at IS NOT NULL THEN v.next END,
        held_wake_at = CASE WHEN v.paused_at IS NOT NULL THEN COALESCE(v.wake_at, e.wake_at) END,
        held_at = CASE WHEN v.paused_at IS NOT NULL THEN ${sql.bigint(now)} END,
        pause_requested_at = CASE WHEN v.paused_at IS NULL THEN e.pause_requested_at END,
        lease_hash = CASE WHEN v.next <> 'queued' THEN e.lease_hash END,
        worker_id = CASE WHEN v.next = 'leased' AND v.paused_at IS NULL THEN e.worker_id END,
        step_count = ${sql.raw(greatest)}(e.step_count, v.steps_top) + v.appended,
        waiting_step_id = v.waiting_step_id, gather_ms = CASE WHEN v.waiting_step_id IS NULL THEN e.gather_ms END,
        lost_count = CASE WHEN v.history_type IS NULL OR (v.next = 'queued' ${returned(isUndone)}) THEN e.lost_count ELSE 0 END,
        started_at = CASE WHEN v.next = 'queued' ${returned(isUndone)} AND e.started_at = e.claimed_at THEN NULL ELSE e.started_at END,
        history_count = e.history_count + CASE WHEN v.history_type IS NULL THEN 0 ELSE 1 END`;

const heldReports =
  sql.raw(`SELECT r.*, e.state, e.held_seq, e.held_hash, e.attempt, e.history_count, e.step_count,
        e.started_at, e.worker_id, e.seen_position, e.watched_at, e.parent_run_id, e.lane_id, e.function_id, e.claimed_at,
        CASE WHEN r.pausable IS NOT NULL THEN e.pause_requested_at END AS paused_at
      FROM report r CROSS JOIN LATERAL (
        SELECT x.state, x.execution_seq AS held_seq, x.lease_hash AS held_hash, x.attempt, x.history_count, x.step_count,
          x.started_at, x.worker_id, x.seen_position, x.watched_at, x.parent_run_id, x.pause_requested_at, x.lane_id,
          x.function_id, x.claimed_at
        FROM executions x WHERE x.run_id = r.run_id AND x.environment_id || '' = r.environment_id
        ORDER BY x.run_id FOR UPDATE) e`);

const endingRuns = sql.raw("SELECT v.run_id FROM valid v WHERE v.ends IS NOT NULL");

const runsEnded = (now: Instant, how: Ended): Ctes => ({
  "closed AS": sql`DELETE FROM executions WHERE run_id = ANY (ARRAY(${endingRuns}))`,
  "unwatched AS": sql`DELETE FROM waits WHERE run_id = ANY (ARRAY(${endingRuns} AND v.watched_at IS NOT NULL))`,
  "parted AS": sql`INSERT INTO child_ends (child_run_id, environment_id, ended_at)
      SELECT v.run_id, v.environment_id, ${now}::bigint FROM valid v
      WHERE v.ends IS NOT NULL AND v.parent_run_id IS NOT NULL ON CONFLICT DO NOTHING`,
  "ended AS": sql`UPDATE runs AS r SET ${setEnded(now, how)}
      FROM valid v WHERE r.id || '' = v.run_id AND r.id = ANY (ARRAY(${endingRuns}))`,
});

/** PostgreSQL runs the last of these first, so that groups are locked before counts, as `endRuns` does. */
const failuresNoted = (now: Instant): Ctes => ({
  "told AS": noteFailedRuns(sql.raw("valid v"), now),
  "alerted AS": countForAlerts(sql.raw("valid v"), now),
  "counted AS": countFailures(sql.raw("valid v"), now),
});

/**
 * Reports of any number of workers in one round trip: the fence of each is checked under its row's lock, and
 * steps, run, execution and history change together or not at all. Locks: executions, sorted by run.
 */
export const commitReportsFlush: Flush<CommitReportsInput, CommittedReport> = {
  name: "runs.settle",

  postgres({ changes, now }, seams) {
    const steps = stepsOfReports(changes);
    const isUndone = hasUndo(changes);
    const failed = hasFailed(changes);
    const reports = {
      ...columnsOf(changes, Object.keys(reportColumns) as ReportColumn[]),
      ...(isUndone && undoColumns(changes)),
      ...(failed && groupColumns(changes)),
    };
    // `id || ''` hides a column from the planner, `= ANY (ARRAY(...))` offers the primary key: with old
    // statistics the planner would scan a whole index instead. Reports are sorted first, so that locks are
    // taken in the order of run ids. An expression that no report needs is left out: it would join them all.
    const parts = sql.ctes(
      {
        "report AS MATERIALIZED": sql`SELECT * FROM ${seams.rowsFrom("item", reports)} ORDER BY run_id`,
        "held AS MATERIALIZED": heldReports,
        "valid AS MATERIALIZED": sql.raw(
          "SELECT * FROM held WHERE state = 'leased' AND held_seq = execution_seq AND held_hash = lease_hash",
        ),
      },
      steps.length > 0 && {
        "stored AS": sql`INSERT INTO ${stepTarget}
          SELECT s.run_id, s.step_id, s.environment_id, s.name, s.type,
            CASE WHEN s.sequence < 0 THEN GREATEST(v.step_count, v.steps_top) - s.sequence - 1 ELSE s.sequence END, s.status, s.output, s.error,
            v.attempt, s.started_at, s.ended_at, s.duration_ms, s.compensation_for, s.sleep_until, ${now}::bigint, ${now}::bigint, ${seenBySleep}
          FROM ${seams.rowsFrom("s", stepColumns(steps))} JOIN valid v ON v.ord = s.report
          ORDER BY s.run_id, s.step_id
          ${stepConflict}`,
      },
      pendingParts(changes, now, seams),
      changes.some(({ ends }) => ends !== null) && runsEnded(now, { isUndone, hasFailed: failed }),
      changes.some(({ ends }) => ends === null) && {
        "moved AS": sql`UPDATE executions AS e SET ${setStaying(now, "GREATEST", isUndone)}
          FROM valid v WHERE e.run_id || '' = v.run_id AND e.run_id = ANY (ARRAY(
            SELECT v.run_id FROM valid v WHERE v.ends IS NULL))`,
      },
      attributesSet(changes, seams),
      linesStored(changes, now, seams),
      failed && failuresNoted(now),
      {
        "noted AS": sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
          SELECT v.run_id, v.history_count + 1, v.environment_id, CASE WHEN v.paused_at IS NULL THEN v.history_type
            ELSE 'run.paused' END, ${now}::bigint, v.history_detail
          FROM valid v WHERE v.history_type IS NOT NULL`,
      },
    );
    return sql`WITH ${parts}
    SELECT r.ord, CASE WHEN v.ord IS NOT NULL THEN 'done' WHEN h.ord IS NULL THEN 'gone'
      WHEN h.held_seq = h.execution_seq AND h.held_hash = h.lease_hash THEN 'not_running' ELSE 'stale' END AS outcome,
      CASE WHEN v.ends IS NOT NULL THEN v.parent_run_id END AS parent_run_id, v.lane_id, v.function_id, v.claimed_at
    FROM report r LEFT JOIN held h ON h.ord = r.ord LEFT JOIN valid v ON v.ord = r.ord`;
  },

  libsql(session, { changes, now }) {
    const locked =
      session.all<LockedExecution>(sql`SELECT i.ord, e.state, e.execution_seq, e.lease_hash, e.attempt, e.history_count,
        e.step_count, e.started_at, e.worker_id, e.seen_position, e.watched_at, e.parent_run_id, e.pause_requested_at, e.lane_id, e.function_id, e.claimed_at
      FROM ${session.seams.rowsFrom("i", columnsOf(changes, ["run_id", "environment_id"]))} JOIN executions e ON e.run_id = i.run_id AND e.environment_id = i.environment_id`);
    const byOrd = new Map(locked.map((row) => [row.ord, row]));
    const answers: CommittedReport[] = [];
    const valid: Valid[] = [];
    for (const [at, change] of changes.entries()) {
      const row = byOrd.get(at + 1);
      const outcome = judge(change, row);
      if (row && outcome === "done") valid.push({ change, row });
      const parent = outcome === "done" && change.ends !== null ? row?.parent_run_id : null;
      const done = outcome === "done" ? row : undefined;
      answers.push({
        ord: at + 1,
        outcome,
        parent_run_id: parent ?? null,
        lane_id: done?.lane_id || null,
        function_id: done?.function_id ?? null,
        claimed_at: done?.claimed_at ?? null,
      });
    }
    if (valid.length > 0) commitValid(session, valid, now);
    return answers;
  },
};

function judge(change: ExecutionChange, row: LockedExecution | undefined): CommittedReport["outcome"] {
  if (row === undefined) return "gone";
  if (row.execution_seq !== change.executionSeq || row.lease_hash !== change.leaseHash) return "stale";
  return row.state === "leased" ? "done" : "not_running";
}

interface LockedExecution
  extends RowOf<
    "executions",
    `state, execution_seq, lease_hash, attempt, history_count, step_count, started_at, worker_id,
  seen_position, watched_at, parent_run_id, pause_requested_at, lane_id, function_id, claimed_at`
  > {
  ord: number;
}

/** A report whose fence holds, with the execution it was checked against. */
interface Valid {
  change: ExecutionChange;
  row: LockedExecution;
}

const isPaused = ({ change, row }: Valid): boolean => row.pause_requested_at !== null && mayPause(change);

function commitValid(session: SyncSession, valid: readonly Valid[], now: Instant): void {
  const { rowsFrom } = session.seams;
  const changes = valid.map((v) => v.change);
  const steps = stepsOfReports(changes);
  if (steps.length > 0)
    session.run(sql`INSERT INTO ${stepTarget}
      SELECT s.run_id, s.step_id, s.environment_id, s.name, s.type, s.sequence, s.status, s.output, s.error,
        s.attempt, s.started_at, s.ended_at, s.duration_ms, s.compensation_for, s.sleep_until, ${now}, ${now}, ${seenBySleep}
      FROM ${rowsFrom("s", {
        ...stepColumns(steps),
        sequence: column.bigint(
          steps.map((s) => {
            const { row } = valid[s.report - 1]!;
            return s.sequence < 0 ? Math.max(row.step_count, s.change.stepsTop) - s.sequence - 1 : s.sequence;
          }),
        ),
        attempt: column.bigint(steps.map((s) => valid[s.report - 1]!.row.attempt)),
      })} WHERE true ${stepConflict}`);

  insertPending(session, valid, now);
  setAttributes(session, changes);
  storeLines(session, valid, now);

  const ending = valid.filter((v) => v.change.ends !== null);
  if (ending.length > 0) endRuns(session, ending, now);

  const stayingRows = valid.filter((v) => v.change.ends === null);
  const staying = stayingRows.map((v) => v.change);
  const isUndone = hasUndo(staying);
  if (staying.length > 0)
    session.run(sql`UPDATE executions AS e SET ${setStaying(now, "MAX", isUndone)}
      FROM ${rowsFrom("v", {
        ...(isUndone && undoColumns(staying)),
        ...columnsOf(staying, ["run_id", "next", "wake_at", "steps_top", "waiting_step_id"]),
        ...columnsOf(staying, ["history_type", "appended"]),
        paused_at: column.bigint(stayingRows.map((v) => (isPaused(v) ? v.row.pause_requested_at : null))),
      })} WHERE e.run_id = v.run_id`);

  const noted = valid.filter((v) => v.change.historyType !== null);
  if (noted.length > 0)
    session.run(sql`INSERT INTO run_history (run_id, sequence, environment_id, type, at, detail)
      SELECT v.run_id, v.sequence, v.environment_id, v.type, ${now}, v.history_detail
      FROM ${rowsFrom("v", {
        ...columnsOf(
          noted.map((v) => v.change),
          ["run_id", "environment_id", "history_detail"],
        ),
        sequence: column.bigint(noted.map((v) => v.row.history_count + 1)),
        type: column.text(noted.map((v) => (isPaused(v) ? "run.paused" : v.change.historyType))),
      })}`);
}

function endRuns(session: SyncSession, ending: readonly Valid[], now: Instant): void {
  const { rowsFrom, among } = session.seams;
  const ids = (some: readonly Valid[]) => among(column.text(some.map((v) => v.change.runId)));
  const list = ending.map((v) => v.change);
  const isUndone = hasUndo(list);
  const watched = ending.filter((v) => v.row.watched_at !== null);
  if (watched.length > 0) session.run(sql`DELETE FROM waits WHERE run_id ${ids(watched)}`);
  const children = ending.filter((v) => v.row.parent_run_id !== null).map((v) => v.change);
  if (children.length > 0)
    session.run(sql`INSERT INTO child_ends (child_run_id, environment_id, ended_at)
      SELECT run_id, environment_id, ${now} FROM ${rowsFrom("c", columnsOf(children, ["run_id", "environment_id"]))}
      WHERE true ON CONFLICT DO NOTHING`);
  session.run(sql`DELETE FROM executions WHERE run_id ${ids(ending)}`);
  const failed = list.filter(({ errorGroup }) => errorGroup !== null);
  if (failed.length > 0) {
    const failures = { ...groupColumns(failed), ...columnsOf(failed, ["run_id", "environment_id"]) };
    for (const note of [countFailures, countForAlerts, noteFailedRuns])
      session.run(note(rowsFrom("v", failures), now));
  }
  session.run(sql`UPDATE runs AS r SET ${setEnded(now, { isUndone, hasFailed: failed.length > 0 })}
    FROM ${rowsFrom("v", {
      ...(isUndone && undoColumns(list)),
      ...(failed.length > 0 && { error_group: column.text(list.map((s) => s.errorGroup?.id ?? null)) }),
      ...columnsOf(list, ["run_id", "ends", "output", "error", "execution_seq", "lease_hash"]),
      attempt: column.bigint(ending.map((v) => v.row.attempt)),
      worker_id: column.text(ending.map((v) => v.row.worker_id)),
      started_at: column.bigint(ending.map((v) => v.row.started_at)),
    })} WHERE r.id = v.run_id`);
}
