import type { Log } from "../../../kit/log.ts";
import type { DeviatingStep } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import { deviationsToldMax } from "./limits.ts";

type Told = Parameters<Runs["noteDeviations"]>[0];

/** Notes on runs how their handlers deviated; the log gets one line for each version of a function. */
export function openDeviations({ runs, log }: { runs: Pick<Runs, "noteDeviations">; log: Log }) {
  const told = new Set<string>();
  return async (reported: Told): Promise<void> => {
    const noted = await runs.noteDeviations(reported);
    if (!noted) return;
    const { environmentId, runId, steps } = reported;
    const key = `${environmentId}\n${noted.functionId}\n${noted.functionVersion}`;
    if (told.has(key)) return;
    if (told.size >= deviationsToldMax) told.clear();
    told.add(key);
    log.warn("run.nondeterminism", { environmentId, runId, ...noted, steps: steps.map(namesOf) });
  };
}

const namesOf = ({ name, kind }: DeviatingStep): string => `${name}: ${kind}`;
