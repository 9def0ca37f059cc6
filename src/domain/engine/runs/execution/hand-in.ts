import type { Instant } from "../../../../kit/clock.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";
import type { RowOf } from "../../../../store/tables/row.ts";
import { storeLateLines } from "../logs/log-rows.ts";
import { readEnding } from "../rules.ts";
import { seenBySleep } from "../waits/rank-met.ts";
import { stepColumns, stepConflict, stepsOfReports, stepTarget } from "./commit-reports.ts";
import type { ExecutionChange } from "./execution-change.ts";

interface EndedLease extends RowOf<"executions", "run_id, attempt, step_count, execution_seq, worker_id"> {
  ending: string;
}

/**
 * Stores the steps of workers whose runs were ended while they worked on them: what they finished is to be
 * undone with the rest. A last report says that nothing more will come, so that the undoing begins at once.
 * Nothing changes when another worker has the run by now. Locks: executions, sorted by run.
 */
export async function handIn(
  session: Session,
  changes: readonly ExecutionChange[],
  now: Instant,
): Promise<void> {
  for (const change of [...changes].sort((a, b) => (a.runId < b.runId ? -1 : 1))) {
    const lease =
      await session.one<EndedLease>(sql`SELECT run_id, ending, attempt, step_count, execution_seq, worker_id FROM executions
      WHERE run_id = ${change.runId} AND environment_id || '' = ${change.environmentId} AND state = 'queued'
        AND ending IS NOT NULL AND execution_seq = ${change.executionSeq} AND lease_hash = ${change.leaseHash}
      ${session.seams.holdRow}`);
    if (lease) await storeLate(session, change, lease, now);
  }
}

async function storeLate(
  session: Session,
  change: ExecutionChange,
  lease: EndedLease,
  now: Instant,
): Promise<void> {
  // What the handler waited for is of no interest any more.
  const own = { ...change, steps: change.steps.filter((step) => step.status !== "sleeping") };
  const steps = stepsOfReports([own]);
  const first = Math.max(lease.step_count, change.stepsTop);
  if (steps.length > 0)
    await session.run(sql`INSERT INTO ${stepTarget}
      SELECT s.run_id, s.step_id, s.environment_id, s.name, s.type, s.sequence, s.status, s.output, s.error,
        ${sql.bigint(lease.attempt)}, s.started_at, s.ended_at, s.duration_ms, s.compensation_for, s.sleep_until,
        ${sql.bigint(now)}, ${sql.bigint(now)}, ${seenBySleep}
      FROM ${session.seams.rowsFrom("s", {
        ...stepColumns(steps),
        sequence: column.bigint(steps.map((s) => (s.sequence < 0 ? first - s.sequence - 1 : s.sequence))),
      })} WHERE true ${stepConflict}`);
  await storeLateLines(session, { change, row: lease }, now);
  const isLast = change.next !== "leased" || change.ends !== null;
  const count = change.undo?.count ?? 0;
  const ending = readEnding(lease.ending);
  const interrupted = ending.lostBefore === true && own.steps.length === 0;
  await session.run(sql`UPDATE executions SET step_count = ${first + own.steps.filter((step) => step.sequence < 0).length},
      undo_count = CASE WHEN undo_count < ${sql.bigint(count)} THEN ${sql.bigint(count)} ELSE undo_count END
      ${
        isLast
          ? sql`, wake_at = ${now}, lease_hash = NULL,
            ending = ${JSON.stringify({ ...ending, interrupted })}`
          : sql.empty
      }
    WHERE run_id = ${change.runId}`);
}
