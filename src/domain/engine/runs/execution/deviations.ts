import { sql } from "../../../../kit/sql.ts";
import type { Session } from "../../../../store/store.ts";
import type { DeviatingStep, Fence } from "../run.ts";

/** Stored steps that a run's handler did not reach as before, reported by the worker that holds its lease. */
export interface ReportedDeviations extends Fence {
  environmentId: string;
  steps: readonly DeviatingStep[];
}

/** Notes them on the run; undefined when the fence does not hold. */
export async function noteDeviations(
  session: Session,
  { environmentId, runId, executionSeq, leaseHash, steps }: ReportedDeviations,
): Promise<{ functionId: string; functionVersion: number } | undefined> {
  const [row] = await session.all<{ function_id: string; function_version: number }>(sql`UPDATE runs
    SET nondeterminism = ${JSON.stringify(steps)}
    WHERE id = ${runId} AND environment_id = ${environmentId} AND EXISTS (
      SELECT 1 FROM executions e
      WHERE e.run_id = ${runId} AND e.environment_id || '' = ${environmentId} AND e.state = 'leased'
        AND e.execution_seq = ${executionSeq} AND e.lease_hash = ${leaseHash})
    RETURNING function_id, function_version`);
  return row && { functionId: row.function_id, functionVersion: row.function_version };
}
