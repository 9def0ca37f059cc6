import { breather } from "../../../kit/breather.ts";
import { CelBudget, type CelProgram } from "../../../kit/cel/cel.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";

/**
 * Cost limit of the filter of one replay, in items as `kit/cel/cel-bounds.ts` counts them; each event adds a
 * little.
 */
export const replayItemsMax = 250_000;
const itemsAnEvent = 100;

/** The computing of one subscription's replay: in bursts, and bounded where it has a filter. */
export type Effort = ReturnType<typeof openEffort>;

export interface EffortOptions {
  environmentId: string;
  clock: Pick<Clock, "elapsed" | "sleep">;
  filter: CelProgram | undefined;
}

export function openEffort({ environmentId, clock, filter }: EffortOptions) {
  // Large events take time to read and to write without any filter.
  const breathe = breather(clock, environmentId);
  if (!filter) return { breathe, next: () => undefined, check() {} };
  const budget = new CelBudget(replayItemsMax);
  return {
    breathe,
    /** The budget for the next event; undefined without a filter. */
    next(): CelBudget | undefined {
      budget.grant(itemsAnEvent);
      return budget;
    },
    /** Throws `resource_exhausted` when the budget is used up. */
    check() {
      if (!budget.isUsedUp) return;
      throw new Fault(
        "resource_exhausted",
        `filter: cost limit of ${replayItemsMax} items for the replay exceeded; replay fewer events, or use a simpler filter`,
        { field: "filter", code: "LIMIT_EXCEEDED" },
      );
    },
  };
}
