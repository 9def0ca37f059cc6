import { CallError } from "../../lib/api.ts";
import { shownBytesMax } from "../../lib/cuts.ts";
import {
  getOutputsAt,
  getRun,
  getSteps,
  getTimeline,
  type Moment,
  type RunInFull,
  type StepView,
} from "../../lib/runs.ts";

/** A run with all that its page shows. */
export interface Whole extends RunInFull {
  steps: StepView[];
  moments: Moment[];
}

export async function readWhole(id: string, signal: AbortSignal): Promise<Whole> {
  const [run, steps, moments] = await Promise.all([
    getRun(id, signal, shownBytesMax),
    getSteps(id, signal, { maxValueBytes: shownBytesMax }),
    // A function without recording has no timeline; the run is shown without it.
    getTimeline(id, signal).catch((error) => {
      if (signal.aborted || !(error instanceof CallError)) throw error;
      return [];
    }),
  ]);
  return { ...run, steps, moments };
}

/** The step with its values in full, as it is now or was then. */
export async function wholeStep(
  { runId, step, at }: { runId: string; step: StepView; at: number | undefined },
  signal?: AbortSignal,
): Promise<StepView> {
  const { stepId } = step;
  if (at !== undefined) return { ...step, ...(await getOutputsAt({ runId, stepId, at }, signal)) };
  const [found] = await getSteps(runId, signal, { stepId });
  return found ?? step;
}
