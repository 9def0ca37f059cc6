import type { AssignedJob } from "../../src/domain/engine/jobs/rules.ts";
import type { ReportBody } from "../../src/domain/engine/workers/report-body.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import type { Chance } from "../support/chance.ts";

/** The last report of a job whose run is to be undone: each compensation goes well, or fails, by chance. */
export function undoOf(
  { runId, completedSteps, stepSequenceBase, compensating }: AssignedJob,
  chance: Chance,
): Omit<ReportBody, "execution_seq" | "lease_token"> {
  const stored = new Map(completedSteps.map((step) => [step.step_id, step.status]));
  const done = completedSteps.filter(({ type, status }) => type === "invoke" && status === "completed");
  const left = done.filter(({ name }) => stored.get(`${runId}:compensate:${name}:0`) !== "completed");
  const steps = left.toReversed().map(({ name }) => ({
    id: `${runId}:compensate:${name}:0`,
    name: `compensate:${name}`,
    type: "compensate" as const,
    compensation_for: name,
    ...(chance.happens(0.3)
      ? { status: "failed" as const, error: { message: "not now", retryable: true } }
      : { status: "completed" as const, output: null }),
  }));
  const failed = steps.filter(({ status }) => status === "failed").length;
  const retryable = failed > 0 && (compensating?.tries_left ?? 0) > 0;
  const error = { message: "undone", retryable };
  const counts = { compensations: done.length, ...(!retryable && { compensations_failed: failed }) };
  return { status: "failed", error, steps, step_offset: stepSequenceBase, ...counts };
}

/** Of each run that ended without success every step is undone, or the run says that one is not. */
export async function checkUndone(store: Store): Promise<string[]> {
  const rows = await store.all<{ id: string; name: string }>(sql`SELECT r.id, s.name
    FROM runs r JOIN steps s ON s.run_id = r.id AND s.type = 'invoke' AND s.status = 'completed'
    WHERE r.status IN ('failed', 'cancelled') AND r.undo_failed IS NULL AND NOT EXISTS (
      SELECT 1 FROM steps c WHERE c.run_id = r.id AND c.type = 'compensate' AND c.status = 'completed'
        AND c.compensation_for = s.name)`);
  return rows.map(({ id, name }) => `${name} of ${id} is neither undone nor listed`);
}
