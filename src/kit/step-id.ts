import { createHash } from "node:crypto";

/** The row id of a step follows from run and step id, so that it needs no index of its own. */
export function stepRowId(runId: string, stepId: string): string {
  const digest = createHash("sha256").update(stepId).digest("hex").slice(0, 16);
  return `step_${runId.slice("run_".length)}_${digest}`;
}
