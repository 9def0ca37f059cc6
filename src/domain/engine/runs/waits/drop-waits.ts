import type { Instant } from "../../../../kit/clock.ts";
import { column, sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";

/**
 * Forgets what runs wait for, in the transaction that moves them to another state by a person's will. What
 * they have seen stays as it is: a wait that is yielded again looks at all that was logged since.
 */
export async function dropWaits(session: Session, runIds: readonly string[]): Promise<void> {
  if (runIds.length === 0) return;
  await session.run(sql`DELETE FROM waits WHERE kind = 'wait' AND run_id IN ${sql.list(runIds)}`);
  await session.run(sql`DELETE FROM invocations WHERE parent_run_id IN ${sql.list(runIds)}`);
}

/** Forgets what these steps wait for; their runs may wait for more. */
export async function dropStepWaits(
  session: Session,
  steps: readonly { runId: string; stepId: string }[],
): Promise<void> {
  if (steps.length === 0) return;
  const { rowsFrom, byKey } = session.seams;
  const run_id = column.text(steps.map((step) => step.runId));
  const list = rowsFrom("v", { run_id, step_id: column.text(steps.map((step) => step.stepId)) });
  await session.run(sql`DELETE FROM waits WHERE kind = 'wait' AND (run_id, COALESCE(of_step, step_id)) IN (
    SELECT v.run_id, v.step_id FROM ${list}) ${byKey("run_id", run_id)}`);
  await session.run(sql`DELETE FROM invocations WHERE (parent_run_id, step_id) IN (
    SELECT v.run_id, v.step_id FROM ${list}) ${byKey("parent_run_id", run_id)}`);
}

/**
 * While a run was held or `resuming`, its unmet waits were skipped. Events since then are compared with them
 * as new ones are, and states are looked at once more. With `stepId` only that step's. Answers their number.
 */
export const compareAgain = (
  session: Session,
  runId: string,
  { at, stepId }: { at: Instant; stepId?: string },
): Promise<number> =>
  session.run(sql`UPDATE waits SET fresh_at = CASE WHEN place IS NULL THEN ${sql.bigint(at)} END,
      due_at = CASE WHEN place IS NOT NULL THEN ${sql.bigint(at)} END, from_position = COALESCE(
      (SELECT s.seen_position FROM steps s WHERE s.run_id = waits.run_id AND s.step_id = COALESCE(waits.of_step, waits.step_id)),
      (SELECT NULLIF(e.seen_position, 0) FROM executions e WHERE e.run_id = waits.run_id), from_position)
    WHERE run_id = ${runId} AND kind = 'wait' AND met IS NULL
      ${stepId === undefined ? sql.empty : sql`AND COALESCE(of_step, step_id) = ${stepId}`}`);
