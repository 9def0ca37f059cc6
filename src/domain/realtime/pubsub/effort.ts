import { type Breathe, breather } from "../../../kit/breather.ts";
import { CelBudget, type CelProgram } from "../../../kit/cel/cel.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";

/** What the filter of one replay may look at, as items of kit/cel-bounds, and how much more for every event it is asked about. */
export const replayItemsMax = 250_000;
const itemsAnEvent = 100;

/** What it takes one subscription to read the past: in bursts, and bounded where it has a filter. */
export interface Effort {
  breathe: Breathe;
  /** What there is for the next event; undefined without a filter. */
  next(): CelBudget | undefined;
  /** Throws `resource_exhausted` when that was not enough. */
  check(): void;
}

export interface EffortOptions {
  environmentId: string;
  clock: Pick<Clock, "elapsed" | "sleep">;
  filter: CelProgram | undefined;
}

export function openEffort({ environmentId, clock, filter }: EffortOptions): Effort {
  // Reading and writing what is large takes its time without any filter.
  const breathe = breather(clock, environmentId);
  if (!filter) return { breathe, next: () => undefined, check() {} };
  const budget = new CelBudget(replayItemsMax);
  return {
    breathe,
    next() {
      budget.grant(itemsAnEvent);
      return budget;
    },
    check() {
      if (!budget.isUsedUp) return;
      throw new Fault(
        "resource_exhausted",
        `filter: looks at more than ${replayItemsMax} items of what was logged before; ask for less of it, or for less of each event`,
        { field: "filter", code: "LIMIT_EXCEEDED" },
      );
    },
  };
}
