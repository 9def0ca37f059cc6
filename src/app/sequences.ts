import type { LogSequences } from "../domain/log/log/sequences.ts";
import type { Waits } from "../domain/state/projections/waits.ts";
import type { Sequences } from "../edge/call.ts";
import type { LogName } from "../kit/sequence.ts";

export interface SequencesNeeds {
  logs: Record<LogName, LogSequences>;
  waits: Pick<Waits, "reached">;
}

/** Positions of all that is written, and of all that may be read too early. */
export function openSequences({ logs, waits }: SequencesNeeds): Sequences {
  return {
    sequenceAt: (environmentId, log, position) => logs[log].sequenceAt(environmentId, position),
    reached(environmentId, { log: name, ...least }, reads) {
      const log = logs[name];
      if (typeof reads === "string") {
        if (reads === "log" && log.has(environmentId, least)) return undefined;
        return (options) => log.reached(environmentId, least, { ...options, ofFeed: reads === "feed" });
      }
      return async (options) => {
        await log.requireEpoch(environmentId, least.epoch);
        // Nothing of topics is ever folded.
        if (name === "topics") return;
        await Promise.all(
          reads.map(({ name: projection, partition = "" }) =>
            waits.reached(
              environmentId,
              { name: projection, partition, minPosition: least.position },
              options,
            ),
          ),
        );
      };
    },
  };
}
