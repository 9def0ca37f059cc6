import { flowWriteMs } from "../domain/record/flow/limits.ts";
import { flowOperations } from "../domain/record/flow/operations.ts";
import { openFlow } from "../domain/record/flow/service.ts";
import type { Host, PartShape } from "./part.ts";

/** What leads to what in an environment, and how much happens in it. */
export function openFlowPart({ store, clock, log }: Host) {
  const flow = openFlow({ store, clock });
  return {
    flow,
    operations: flowOperations(flow),
    loops: [
      {
        name: "flow.write",
        about:
          "Writes what happened at this node since its last tick, as counts by the hour and by the minute.",
        everyMs: flowWriteMs,
        tick: flow.writeOnce,
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "flow.forget",
        about: "Deletes the counts of flows and rates that are too old.",
        everyMs: 10 * 60_000,
        tick: flow.forgetOnce,
      },
    ],
    // Counts are worth no failed shutdown.
    close: () => flow.writeOnce().catch((error) => log.warn("flow.not_written", { error })),
  } satisfies PartShape;
}
