import { usageWriteMs } from "../domain/record/usage/limits.ts";
import { usageOperations } from "../domain/record/usage/operations.ts";
import { openUsage } from "../domain/record/usage/service.ts";
import type { Host, PartShape } from "./part.ts";

/** How much an environment uses, by day and function. */
export function openUsagePart({ store, clock, log }: Host) {
  const usage = openUsage({ store, clock });
  return {
    usage,
    operations: usageOperations(usage),
    loops: [
      {
        name: "usage.write",
        about: "Adds what this node has counted since its last tick to the counts of the day.",
        everyMs: usageWriteMs,
        tick: usage.writeOnce,
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "usage.forget",
        about: "Deletes counts of days that are too long ago.",
        everyMs: 10 * 60_000,
        tick: usage.forgetOnce,
      },
    ],
    // Counts are worth no failed shutdown.
    close: () => usage.writeOnce().catch((error) => log.warn("usage.not_written", { error })),
  } satisfies PartShape;
}
