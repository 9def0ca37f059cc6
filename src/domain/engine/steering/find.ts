import { missing } from "../../../kit/fault.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { SteeredRunRow, SteeredStepRow } from "./rows.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";
import { isStep, type StepsAtResume } from "./rules.ts";

export async function requireRun(
  reader: Store | Session,
  environmentId: string,
  runId: string,
): Promise<SteeredRunRow> {
  const run = await rows.runById(reader, environmentId, runId);
  if (!run) throw missing("run", runId);
  return run;
}

/**
 * `stepId` is the SDK's id or the row's; `runId` is undefined when it is neither, and the step is then not
 * found.
 */
export async function findStep(
  store: Store,
  environmentId: string,
  runId: string | undefined,
  stepId: string,
): Promise<SteeredStepRow> {
  const steps = runId === undefined ? [] : await rows.stepsOf(store, environmentId, runId);
  const step = steps.find((one) => isStep(one, stepId));
  if (!step) throw missing("step", stepId);
  return step;
}

/**
 * `fromStep` is the SDK's id, the row's id, or the name of a step: that one and all after it are done again.
 * What was undone is done again in any case, where the run is over.
 */
export async function stepsAtResume(
  reader: Store | Session,
  run: Pick<SteeredRunRow, "environment_id" | "id">,
  { fromStep, isOver }: { fromStep: string | undefined; isOver: boolean },
): Promise<StepsAtResume> {
  const [steps, wasUndone] = await Promise.all([
    rows.stepsOf(reader, run.environment_id, run.id),
    rows.wasUndone(reader, run.id),
  ]);
  if (steps.some(({ redacted_at }) => redacted_at !== null)) throw rules.isRedacted("step");
  const from =
    fromStep === undefined
      ? undefined
      : (steps.find((one) => isStep(one, fromStep)) ?? steps.find((one) => one.name === fromStep));
  if (fromStep !== undefined && !from) throw missing("step", fromStep);
  const isMoved = steps.some(({ is_kept }) => is_kept !== null);
  const places = isMoved ? await rows.placesBefore(reader, run.id) : new Map<string, number>();
  return rules.stepsAtResume(steps, { from, wasUndone: isOver && wasUndone, places });
}
