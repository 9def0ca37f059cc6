import type { Clock } from "../../../kit/clock.ts";
import { isRunId } from "../../../kit/ids.ts";
import { sql } from "../../../kit/sql.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import type { Store } from "../../../store/store.ts";

/** Runs that a node knows to exist, for the events they emit. */
const runsRememberedMax = 10_000;

/** A cached answer cannot become wrong: a run never changes its environment. */
const keptMs = 60_000;

/** A run that emits, and the function that it runs. */
export interface EmittingRun {
  runId: string;
  functionId: string;
}

/**
 * The run an event may name as its origin (`X-Svc-Run-ID`). A header that names no run of the caller's
 * environment is ignored, not refused: clients send it by themselves, and a foreign id must look like a
 * missing one.
 */
export function openProvenance({ store, clock }: { store: Store; clock: Clock }) {
  const known = ttlCache<EmittingRun>({
    clock,
    keptMs,
    entriesMax: runsRememberedMax,
    async read(key) {
      const [environmentId, runId] = key.split("\n") as [string, string];
      const found = await store.one<{ function_id: string }>(
        sql`SELECT function_id FROM runs WHERE id = ${runId} AND environment_id = ${environmentId}`,
      );
      return found && { runId, functionId: found.function_id };
    },
  });
  return async (environmentId: string, runId: string): Promise<EmittingRun | undefined> =>
    isRunId(runId) ? known.get(`${environmentId}\n${runId}`) : undefined;
}
