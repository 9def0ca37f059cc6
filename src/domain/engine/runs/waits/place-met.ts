import type { Instant } from "../../../../kit/clock.ts";
import { column, sql } from "../../../../kit/sql.ts";
import { unplaced } from "../../../../kit/step-id.ts";
import type { Session } from "../../../../store/store.ts";

/** In the order in which they are met, to a millisecond. */
export const placeOfMet = (now: Instant): number => unplaced + (now % (unplaced / 2));

/** A step as it is handed over. */
interface MetStep {
  run_id: string;
  step_id: string;
  sequence: number;
}

/** Gives the steps of each run the next places, in the order of the list; writes them into it. Locks: executions. */
export async function placeMet(session: Session, met: readonly MetStep[]): Promise<void> {
  const { rowsFrom, byKey } = session.seams;
  const byRun = Map.groupBy(met, ({ run_id }) => run_id);
  const executions = await session.all<{ run_id: string; step_count: number }>(sql`SELECT run_id, step_count
    FROM executions WHERE run_id ${session.seams.among(column.text([...byRun.keys()]))}
    ORDER BY run_id ${session.seams.holdRow}`);
  const placed: MetStep[] = [];
  for (const one of executions)
    for (const step of byRun.get(one.run_id)!) placed.push({ ...step, sequence: one.step_count++ });
  if (placed.length === 0) return;
  const run_id = column.text(placed.map((step) => step.run_id));
  await session.run(
    sql`UPDATE steps SET sequence = v.sequence FROM ${rowsFrom("v", {
      run_id,
      step_id: column.text(placed.map((step) => step.step_id)),
      sequence: column.bigint(placed.map((step) => step.sequence)),
    })} WHERE steps.run_id = v.run_id AND steps.step_id = v.step_id ${byKey("steps.run_id", run_id)}`,
  );
  const ids = column.text(executions.map((one) => one.run_id));
  await session.run(
    sql`UPDATE executions SET step_count = v.step_count FROM ${rowsFrom("v", {
      run_id: ids,
      step_count: column.bigint(executions.map((one) => one.step_count)),
    })} WHERE executions.run_id = v.run_id ${byKey("executions.run_id", ids)}`,
  );
  const sequenceOf = new Map(placed.map((step) => [`${step.run_id}\n${step.step_id}`, step.sequence]));
  for (const step of met) step.sequence = sequenceOf.get(`${step.run_id}\n${step.step_id}`) ?? step.sequence;
}
