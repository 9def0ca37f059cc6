import type { LogSequences } from "../domain/log/core/sequences.ts";
import type { Waits } from "../domain/state/projections/waits/service.ts";
import type { Sequences, SequenceWait } from "../edge/call.ts";
import { openHolderLimit } from "../kit/holder-limit.ts";
import type { LogName, Sequence } from "../kit/sequence.ts";
import type { ReadFirst } from "../kit/waits-for.ts";

/** Reads of one key or user that wait at a node. */
export const sequenceWaitsOfHolderMax = 1_000;

export interface SequencesNeeds {
  logs: Record<LogName, LogSequences>;
  waits: Pick<Waits, "reached">;
}

/** Positions of all that is written, and of all that may be read too early. */
export function openSequences({ logs, waits }: SequencesNeeds): Sequences {
  const holders = openHolderLimit({
    most: sequenceWaitsOfHolderMax,
    what: "reads that wait for a position",
  });

  async function folded(
    environmentId: string,
    least: Sequence,
    reads: ReadFirst,
    options: SequenceWait,
  ): Promise<void> {
    const { log, epoch, position } = least;
    if (reads === "log") return logs[log].reached(environmentId, least, { ...options, ofFeed: false });
    await logs[log].requireEpoch(environmentId, epoch);
    // Nothing of topics is ever folded.
    if (log === "topics") return;
    await Promise.all(
      reads.map(({ name, partition = "" }) =>
        waits.reached(environmentId, { name, partition, minPosition: position }, options),
      ),
    );
  }

  return {
    sequenceAt: (environmentId, log, position) => logs[log].sequenceAt(environmentId, position),
    reached(environmentId, least, reads) {
      const log = logs[least.log];
      if (reads === "log" && log.has(environmentId, least)) return undefined;
      return async (options) => {
        const leave = holders.acquire(options.holder);
        try {
          if (typeof reads === "function") await folded(environmentId, least, await reads(), options);
          else await log.reached(environmentId, least, { ...options, ofFeed: reads === "feed" });
        } finally {
          leave();
        }
      };
    },
  };
}
