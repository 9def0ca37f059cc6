import type { Log } from "../../../kit/log.ts";
import { isOfItem } from "../../../store/store.ts";
import type { CompletedStep } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import { UnsentJob } from "./unsent.ts";

/** The completed steps of a run, or why its job cannot be sent without them. */
export type StepsOfRuns = ReadonlyMap<string, readonly CompletedStep[] | UnsentJob>;

export const noSteps: StepsOfRuns = new Map();

/**
 * Reads the completed steps of all runs at once. If that fails, reads them run by run, so that one unreadable
 * step does not keep the jobs of the other runs back.
 */
export async function readCompletedSteps(
  runIds: readonly string[],
  { runs, log }: { runs: Pick<Runs, "completedSteps">; log: Log },
): Promise<StepsOfRuns> {
  try {
    return await runs.completedSteps(runIds);
  } catch (error) {
    log.warn("job.steps_unread", { runCount: runIds.length, error });
    return readOneByOne(runIds, runs, error);
  }
}

async function readOneByOne(
  runIds: readonly string[],
  runs: Pick<Runs, "completedSteps">,
  error: unknown,
): Promise<StepsOfRuns> {
  const steps = new Map<string, readonly CompletedStep[] | UnsentJob>();
  // Where the database is in trouble, reading another run would fail, too.
  let away = isOfItem(error) ? undefined : error;
  for (const runId of runIds) {
    try {
      if (away) throw away;
      steps.set(runId, (await runs.completedSteps([runId])).get(runId) ?? []);
    } catch (cause) {
      if (!isOfItem(cause)) away = cause;
      steps.set(runId, new UnsentJob("STEPS_UNREADABLE", "the run's completed steps cannot be read", cause));
    }
  }
  return steps;
}
