import type { Instant } from "../../../kit/clock.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import { type Basics, type Store, StoreError } from "../../../store/store.ts";
import {
  measures,
  noCounts,
  UsageCounts,
  type UsageRow,
  type UsedCounts,
  type UsedEnding,
} from "./counts.ts";
import { usageKeptDays, usageNamedMax, usageRowsMax } from "./limits.ts";
import * as rows from "./rows.ts";
import { dayMs, dayOf, daysAsked, groupingOf } from "./rules.ts";

/** What was used on one day, by one function, or both; by the functions that are not told apart. */
export interface UsageLine extends UsedCounts {
  day?: Instant;
  functionId?: string;
  isOther?: true;
}

export interface UsageAnswer {
  from: Instant;
  to: Instant;
  lines: UsageLine[];
  total: UsedCounts;
}

export interface UsageAsked {
  from?: string | undefined;
  to?: string | undefined;
  functionId?: string | undefined;
  groupBy?: string | undefined;
}

interface UsedEvent {
  environmentId: string;
  data: string;
  metadata: string | null;
}

/** A run that ended; its function where the commit has said it. */
interface UsedEnd {
  environmentId: string;
  runId: string;
  ends: UsedEnding;
  functionId?: string;
}

/** A report that was committed. */
interface UsedReport {
  environmentId: string;
  ends: UsedEnding | null;
  next: string;
  historyType: string | null;
  steps: readonly { type: string }[];
  functionId?: string;
  claimedAt?: Instant;
}

/** What workers run; sleeps and waits are none. */
const runsInWorkers = ({ type }: { type: string }): boolean => type === "invoke" || type === "compensate";

/** Of a report after which its worker has the run no longer. A run that it gave back was not worked on. */
const leaves = ({ ends, next, historyType }: UsedReport): boolean =>
  (ends !== null || next !== "leased") && historyType !== "run.released";

/** The connection was lost before the answer: the store may have written the rows, or not. */
const mayBeWritten = (error: unknown): boolean =>
  error instanceof StoreError && error.trouble === "unavailable";

export const sumOf = (lines: readonly UsedCounts[]): UsedCounts => {
  const total = noCounts();
  for (const line of lines) for (const measure of measures) total[measure] += line[measure];
  return total;
};

const countsOf = (row: { [M in keyof UsedCounts]: number | null } | undefined): UsedCounts => {
  const counts = noCounts();
  for (const measure of measures) counts[measure] = row?.[measure] ?? 0;
  return counts;
};

/** What is called after a commit counts in memory and answers at once. */
export type Usage = ReturnType<typeof openUsage>;

export function openUsage({ store, clock }: Basics<"store" | "clock">) {
  const counts = new UsageCounts();

  /** UsedCounts the ends whose runs were named alone; what of them is gone counts for its environment. */
  async function nameEnds(): Promise<void> {
    const ends = counts.takeUnnamed();
    const functionOf = new Map<string, string>();
    try {
      for (let from = 0; from < ends.length; from += usageNamedMax) {
        const some = ends.slice(from, from + usageNamedMax).map(({ runId }) => runId);
        for (const run of await rows.functionsOf(store, some))
          functionOf.set(`${run.environment_id}\n${run.id}`, run.function_id);
      }
    } catch (error) {
      for (const end of ends) counts.endedUnnamed(end.environmentId, end.day, end);
      throw error;
    }
    for (const { environmentId, day, runId, ends: how } of ends)
      counts.of(environmentId, day, functionOf.get(`${environmentId}\n${runId}`))[how]++;
  }

  return {
    logged({ environmentId, data, metadata }: UsedEvent, at: Instant) {
      const own = counts.of(environmentId, at);
      own.events++;
      own.event_bytes += Buffer.byteLength(data) + (metadata === null ? 0 : Buffer.byteLength(metadata));
    },
    started(runs: readonly { environmentId: string; functionId: string }[], at: Instant) {
      for (const { environmentId, functionId } of runs) counts.of(environmentId, at, functionId).started++;
    },
    reported(changes: readonly UsedReport[], now: Instant) {
      for (const change of changes) {
        const { functionId, claimedAt, steps } = change;
        if (functionId === undefined) continue;
        const own = counts.of(change.environmentId, now, functionId);
        for (const step of steps) if (runsInWorkers(step)) own.steps++;
        if (claimedAt !== undefined && leaves(change)) own.worker_ms += Math.max(0, now - claimedAt);
      }
    },
    ended(runs: readonly UsedEnd[], now: Instant) {
      for (const run of runs)
        if (run.functionId === undefined) counts.endedUnnamed(run.environmentId, now, run);
        else counts.of(run.environmentId, now, run.functionId)[run.ends]++;
    },

    /**
     * The tick of loop `usage.write`. What is refused is written with the next tick; what may be written
     * already is not repeated: counts are lost rather than doubled.
     */
    async writeOnce() {
      await nameEnds();
      const left = counts.take();
      while (left.length > 0) {
        const some: UsageRow[] = left.splice(0, usageRowsMax);
        try {
          await store.write((session) => rows.addUsage(session, some));
        } catch (error) {
          counts.putBack(mayBeWritten(error) ? left : [...some, ...left]);
          throw error;
        }
      }
    },

    /** Part of the duty `retention`. */
    async forgetOnce(write: Store["write"]) {
      const before = dayOf(clock.now()) - usageKeptDays * dayMs;
      while ((await write((session) => rows.forgetUsage(session, before, purgeSliceMax))) === purgeSliceMax);
    },

    /** By day, the first one first, days without anything left out; or by function, most runs first. */
    async of(environmentId: string, asked: UsageAsked): Promise<UsageAnswer> {
      const span = daysAsked(asked, clock.now());
      const { functionId } = asked;
      const of = { environmentId, ...span, ...(functionId && { functionId }) };
      if (groupingOf(asked.groupBy) === "day") {
        const lines = (await rows.usageByDay(store, of)).map(
          ({ day, ...row }): UsageLine => ({
            ...{ day, ...countsOf(row) },
            ...(functionId && { functionId }),
          }),
        );
        return { ...span, lines, total: sumOf(lines) };
      }
      const found = await rows.usageByFunction(store, of);
      const total = countsOf(found.find(({ function_id }) => function_id === null));
      const lines = found.flatMap(({ function_id, ...row }): UsageLine[] =>
        function_id === null ? [] : [{ functionId: function_id, ...countsOf(row) }],
      );
      const told = sumOf(lines);
      const other: UsageLine = { isOther: true, ...noCounts() };
      for (const measure of measures) other[measure] = total[measure] - told[measure];
      // What is of the environment is no function's.
      other.events = 0;
      other.event_bytes = 0;
      if (measures.some((measure) => other[measure] > 0)) lines.push(other);
      return { ...span, lines, total };
    },
  };
}
