import type { Instant } from "../../../../kit/clock.ts";
import { sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";

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
