import type { Instant } from "../../../../kit/clock.ts";
import { columnsOf } from "../../../../kit/columns.ts";
import { column, sql } from "../../../../kit/sql.ts";
import { unranked } from "../../../../kit/step-id.ts";
import type { Session } from "../../../../store/store.ts";
import { stepKey } from "../step-moves.ts";

/** In the order in which they are met, to a millisecond. */
export const rankOfMet = (now: Instant): number => unranked + (now % (unranked / 2));

/** The same for several of a run that are met at once, in the order of the calls. */
export function countedRanks(now: Instant): (runId: string) => number {
  const counts = new Map<string, number>();
  return (runId) => {
    const count = counts.get(runId) ?? 0;
    counts.set(runId, count + 1);
    return rankOfMet(now) + count;
  };
}

/** For a reported step `s`. Events logged during a sleep do not meet what its branch waits for next. */
export const seenBySleep = sql.raw(`CASE WHEN s.type = 'sleep' AND s.status = 'completed' THEN
  (SELECT h.position FROM heads h WHERE h.environment_id = s.environment_id) END`);

/** A step as it is handed over. */
interface MetStep {
  run_id: string;
  step_id: string;
  sequence: number;
}

/** Gives the steps of each run the next ranks, in list order, and writes these into it. Locks: executions. */
export async function rankMet(session: Session, met: readonly MetStep[]): Promise<void> {
  const { rowsFrom, byKey } = session.seams;
  const byRun = Map.groupBy(met, ({ run_id }) => run_id);
  const executions = await session.all<{ run_id: string; step_count: number }>(sql`SELECT run_id, step_count
    FROM executions WHERE run_id ${session.seams.among(column.text([...byRun.keys()]))}
    ORDER BY run_id ${session.seams.holdRow}`);
  const asked = column.text(met.map((step) => step.run_id));
  // Another node may have handed them over while this one stood still.
  const stored = await session.all<MetStep>(
    sql`SELECT s.run_id, s.step_id, s.sequence FROM ${rowsFrom("v", {
      run_id: asked,
      step_id: column.text(met.map((step) => step.step_id)),
    })} JOIN steps s ON s.run_id = v.run_id AND s.step_id = v.step_id ${byKey("s.run_id", asked)}`,
  );
  const sequenceOf = new Map(stored.map((step) => [keyOf(step), step.sequence]));
  const ranked: MetStep[] = [];
  for (const one of executions)
    for (const step of byRun.get(one.run_id)!)
      if (sequenceOf.get(keyOf(step))! >= unranked) ranked.push({ ...step, sequence: one.step_count++ });
  for (const step of ranked) sequenceOf.set(keyOf(step), step.sequence);
  for (const step of met) step.sequence = sequenceOf.get(keyOf(step)) ?? step.sequence;
  if (ranked.length === 0) return;
  const run_id = column.text(ranked.map((step) => step.run_id));
  await session.run(
    sql`UPDATE steps SET sequence = v.sequence FROM ${rowsFrom("v", {
      run_id,
      ...columnsOf(ranked, { text: "step_id", bigint: "sequence" }),
    })} WHERE steps.run_id = v.run_id AND steps.step_id = v.step_id ${byKey("steps.run_id", run_id)}`,
  );
  const ids = column.text(executions.map((one) => one.run_id));
  await session.run(
    sql`UPDATE executions SET step_count = v.step_count FROM ${rowsFrom("v", {
      run_id: ids,
      step_count: column.bigint(executions.map((one) => one.step_count)),
    })} WHERE executions.run_id = v.run_id ${byKey("executions.run_id", ids)}`,
  );
}

const keyOf = ({ run_id, step_id }: MetStep) => stepKey(run_id, step_id);
