import { missing } from "../../../kit/fault.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { SteeredRunRow, SteeredStepRow } from "./rows.ts";
import * as rows from "./rows.ts";
import { firstUndone, isStep } from "./rules.ts";

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
 * The steps that are done again: that one and all behind it, never empty; undefined when all stay. `fromStep` is
 * the SDK's id, the row's id, or the name of a step. What was undone (`isUndone`) is done again in any case.
 */
export async function stepsFrom(
  session: Session,
  environmentId: string,
  runId: string,
  { fromStep, isUndone }: { fromStep: string | undefined; isUndone: boolean },
): Promise<SteeredStepRow[] | undefined> {
  const steps = await rows.stepsOf(session, environmentId, runId);
  const first =
    fromStep === undefined
      ? undefined
      : (steps.find((one) => isStep(one, fromStep)) ?? steps.find((one) => one.name === fromStep));
  if (fromStep !== undefined && !first) throw missing("step", fromStep);
  const undone = isUndone ? firstUndone(steps) : undefined;
  const starts = [first?.sequence, undone].filter((sequence) => sequence !== undefined);
  if (starts.length === 0) return undefined;
  const start = Math.min(...starts);
  return steps.filter((one) => one.sequence >= start);
}
