import type { Instant } from "../../../kit/clock.ts";
import { usageFunctionsMax, usageUnnamedMax } from "./limits.ts";
import { dayOf } from "./rules.ts";

/** What is counted of a function on a day. The last two are of its environment, and never of a function. */
export const measures = [
  ...["started", "completed", "failed", "cancelled"],
  ...["steps", "worker_ms", "events", "event_bytes"],
] as readonly Measure[];
export type UsedEnding = "completed" | "failed" | "cancelled";
export type Measure = UsedEnding | "started" | "steps" | "worker_ms" | "events" | "event_bytes";
export type UsedCounts = Record<Measure, number>;

export interface UsageRow extends UsedCounts {
  environmentId: string;
  day: Instant;
  /** Empty: the environment itself, and all functions that found no room. */
  functionId: string;
}

/** A run that ended, and whose function was not at hand. */
export interface UnnamedEnd {
  environmentId: string;
  day: Instant;
  runId: string;
  ends: UsedEnding;
}

export const noCounts = (): UsedCounts => ({
  ...{ started: 0, completed: 0, failed: 0, cancelled: 0 },
  ...{ steps: 0, worker_ms: 0, events: 0, event_bytes: 0 },
});

/** One day of one environment. */
class DayCounts {
  readonly own = noCounts();
  readonly functions = new Map<string, UsedCounts>();

  of(functionId: string): UsedCounts {
    const known = this.functions.get(functionId);
    if (known) return known;
    if (functionId === "" || this.functions.size >= usageFunctionsMax) return this.own;
    const counts = noCounts();
    this.functions.set(functionId, counts);
    return counts;
  }
}

/** What happened at this node since its last write, in memory: counting takes few look-ups, no promise. */
export class UsageCounts {
  #days = new Map<Instant, Map<string, DayCounts>>();
  #unnamed = new Map<string, UnnamedEnd[]>();

  of(environmentId: string, at: Instant, functionId = ""): UsedCounts {
    const day = dayOf(at);
    let environments = this.#days.get(day);
    if (!environments) {
      environments = new Map();
      this.#days.set(day, environments);
    }
    let counts = environments.get(environmentId);
    if (!counts) {
      counts = new DayCounts();
      environments.set(environmentId, counts);
    }
    return counts.of(functionId);
  }

  /** Its function is looked up later, while there is room to remember it. */
  endedUnnamed(
    environmentId: string,
    at: Instant,
    { runId, ends }: { runId: string; ends: UsedEnding },
  ): void {
    const known = this.#unnamed.get(environmentId) ?? [];
    if (known.length === 0) this.#unnamed.set(environmentId, known);
    if (known.length < usageUnnamedMax) known.push({ environmentId, day: dayOf(at), runId, ends });
    else this.of(environmentId, at)[ends]++;
  }

  /** All of these, which the counts then no longer hold. */
  takeUnnamed(): UnnamedEnd[] {
    const ends = [...this.#unnamed.values()].flat();
    this.#unnamed = new Map();
    return ends;
  }

  /** Everything else, which the counts then no longer hold. */
  take(): UsageRow[] {
    const rows: UsageRow[] = [];
    for (const [day, environments] of this.#days)
      for (const [environmentId, { own, functions }] of environments) {
        if (measures.some((measure) => own[measure] > 0))
          rows.push({ environmentId, day, functionId: "", ...own });
        for (const [functionId, counts] of functions)
          rows.push({ environmentId, day, functionId, ...counts });
      }
    this.#days = new Map();
    return rows;
  }

  /** What was not written is written with what happens next. */
  putBack(rows: readonly UsageRow[]): void {
    for (const { environmentId, day, functionId, ...counts } of rows) {
      const own = this.of(environmentId, day, functionId);
      for (const measure of measures) own[measure] += counts[measure];
    }
  }
}
