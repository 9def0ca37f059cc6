import type { Log } from "../../../kit/log.ts";
import { StoreError } from "../../../store/store.ts";
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
  let away = isAway(error) ? error : undefined;
  for (const runId of runIds) {
    try {
      if (away) throw away;
      steps.set(runId, (await runs.completedSteps([runId])).get(runId) ?? []);
    } catch (cause) {
      if (isAway(cause)) away = cause;
      steps.set(runId, new UnsentJob("STEPS_UNREADABLE", "the run's completed steps cannot be read", cause));
    }
  }
  return steps;
}

/** The database is in trouble, not the run: reading another run would fail, too. */
const isAway = (error: unknown): error is StoreError =>
  error instanceof StoreError && error.trouble !== "refused";
