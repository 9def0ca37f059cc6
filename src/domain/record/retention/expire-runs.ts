import type { Cursor } from "../../../kit/page.ts";
import { SliceSize } from "../../../kit/slice-size.ts";
import type { Basics } from "../../../store/store.ts";
import type { FunctionDefinition } from "../../engine/functions/definition.ts";
import * as rows from "./rows.ts";
import { cutoff, recordedMsMin, runKeptMs } from "./rules.ts";
import type { ExpireTurn } from "./turns.ts";

export type DefinitionOf = (
  environmentId: string,
  functionId: string,
  version: number,
) => Promise<FunctionDefinition>;

/** Deletes runs that are older than their environment, or the recording of their function, keeps them. */
export function openRunExpiry(
  deps: Basics<"store" | "clock" | "log"> & { definitionOf: DefinitionOf },
): ExpireTurn {
  const { store, clock, log, definitionOf } = deps;
  const size = new SliceSize(clock);
  /**
   * Where the next turn of an environment begins. Runs before that were kept; they come again in the next
   * round.
   */
  const places = new Map<string, Cursor>();

  return async (write, environmentId, keptMs, slices) => {
    const now = clock.now();
    // A recording may keep runs for less time than the environment, but never for less than this.
    const before = now - (keptMs === 0 ? recordedMsMin : Math.min(keptMs, recordedMsMin));
    let gone = 0;
    let used = 0;
    for (; used < slices; used++) {
      const after = places.get(environmentId);
      const limit = size.rows;
      const found = await rows.oldRuns(store, environmentId, { after, before, limit });
      const old: string[] = [];
      for (const run of found) {
        if (run.status === "active" || run.ended_at === null) continue;
        const definition = await definitionOf(environmentId, run.function_id, run.function_version).catch(
          (error: unknown) => void log.warn("retention.run_kept", { environmentId, runId: run.id, error }),
        );
        // The definition says how long the run is kept. When it cannot be read, the run stays and the others
        // go.
        if (!definition) continue;
        const horizon = cutoff(runKeptMs(definition, keptMs), now);
        if (horizon !== undefined && run.ended_at < horizon) old.push(run.id);
      }
      if (old.length > 0)
        gone += await size.delete(write, async (session) => {
          const deleted = await rows.deleteRuns(session, old);
          await rows.deleteErrorGroups(session, { environmentId, before, limit });
          return deleted;
        });
      const last = found.at(-1);
      if (found.length < limit || !last) {
        places.delete(environmentId);
        break;
      }
      places.set(environmentId, { at: last.created_at, id: last.id });
      await size.rest();
    }
    return { gone, slices: used + 1, isMore: used === slices };
  };
}
