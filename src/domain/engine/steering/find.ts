import { missing } from "../../../kit/fault.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { SteeredRunRow, SteeredStepRow } from "./rows.ts";
import * as rows from "./rows.ts";
import { isStep } from "./rules.ts";

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
 * The step and all behind it, never empty. `fromStep` is the SDK's id, the row's id, or the name of a step.
 */
export async function stepsFrom(
  session: Session,
  environmentId: string,
  runId: string,
  fromStep: string,
): Promise<SteeredStepRow[]> {
  const steps = await rows.stepsOf(session, environmentId, runId);
  const first = steps.find((one) => isStep(one, fromStep)) ?? steps.find((one) => one.name === fromStep);
  if (!first) throw missing("step", fromStep);
  return steps.filter((one) => one.sequence >= first.sequence);
}
