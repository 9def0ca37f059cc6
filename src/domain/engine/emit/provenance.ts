import type { Clock } from "../../../kit/clock.ts";
import { isRunId } from "../../../kit/ids.ts";
import { sql } from "../../../kit/sql.ts";
import { type TraceContext, traceIn } from "../../../kit/trace-context.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import type { Store } from "../../../store/store.ts";

/** Runs that a node knows to exist, for the events they emit. */
const runsRememberedMax = 10_000;

/** A cached answer cannot become wrong: a run never changes its environment. */
const keptMs = 60_000;

/** A run that emits, the function that it runs, and the trace that it goes on. */
export interface EmittingRun {
  runId: string;
  functionId: string;
  trace: TraceContext | undefined;
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
      const found = await store.one<{ function_id: string; metadata: string | null }>(
        sql`SELECT r.function_id, v.metadata FROM runs r LEFT JOIN events v ON v.id = r.event_id
          WHERE r.id = ${runId} AND r.environment_id = ${environmentId}`,
      );
      return found && { runId, functionId: found.function_id, trace: traceIn(found.metadata) };
    },
  });
  return async (environmentId: string, runId: string): Promise<EmittingRun | undefined> =>
    isRunId(runId) ? known.get(`${environmentId}\n${runId}`) : undefined;
}
