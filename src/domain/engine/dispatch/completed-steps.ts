import type { Log } from "../../../kit/log.ts";
import { isOfItem } from "../../../store/store.ts";
import type { CompletedStep } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import { jobCharsMax, jobTooLarge, UnsentJob } from "./unsent.ts";

/** The completed steps of a run, or why its job cannot be sent without them. */
export type StepsOfRuns = ReadonlyMap<string, readonly CompletedStep[] | UnsentJob>;

export const noSteps: StepsOfRuns = new Map();

/**
 * Reads the completed steps of all runs at once. If that fails, reads them run by run, so that one unreadable
 * step does not keep the jobs of the other runs back.
 */
export async function readCompletedSteps(
  claimed: readonly { run_id: string; step_count: number }[],
  { runs, log }: { runs: Pick<Runs, "completedSteps" | "completedBytes">; log: Log },
): Promise<StepsOfRuns> {
  const runIds = claimed.map(({ run_id }) => run_id);
  try {
    const large = await tooLarge(claimed, runs);
    if (large.size === 0) return await runs.completedSteps(runIds);
    return new Map<string, readonly CompletedStep[] | UnsentJob>([
      ...(await runs.completedSteps(runIds.filter((id) => !large.has(id)))),
      ...large,
    ]);
  } catch (error) {
    log.warn("job.steps_unread", { runCount: runIds.length, error });
    return readOneByOne(runIds, runs, error);
  }
}

/** Of so few steps no run holds more than is sent: none is asked for its size. */
const stepsUnaskedMax = 32;
/** No character of JSON takes more bytes. */
const charBytesMax = 3;

/** Runs that are never sent are not read either: a node has no room for what some hold. */
async function tooLarge(
  claimed: readonly { run_id: string; step_count: number }[],
  runs: Pick<Runs, "completedBytes">,
): Promise<Map<string, UnsentJob>> {
  const asked = claimed.filter((row) => row.step_count > stepsUnaskedMax).map((row) => row.run_id);
  const sizes = asked.length === 0 ? [] : await runs.completedBytes(asked);
  return new Map(
    sizes
      .filter(({ bytes }) => bytes > charBytesMax * jobCharsMax)
      .map(({ run_id, bytes }) => [run_id, jobTooLarge(`${bytes} bytes`)]),
  );
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
