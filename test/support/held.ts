import { closeSync, openSync, readSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";
import { percentile } from "../bench/figures.ts";

/** What the scheduler says of this thread: milliseconds on a processor, and ready to run without one; 0 where it says nothing. */
function scheduledOf(): (place: 0 | 1) => number {
  try {
    const file = openSync(`/proc/self/task/${process.pid}/schedstat`, "r");
    const bytes = Buffer.alloc(128);
    process.once("exit", () => closeSync(file));
    return (place) =>
      Number(bytes.toString("latin1", 0, readSync(file, bytes, 0, 128, 0)).split(" ", 2)[place]) / 1e6;
  } catch {
    return () => 0;
  }
}

const scheduled = scheduledOf();
/** How long this thread has computed, in milliseconds; 0 where the kernel does not tell. */
export const onProcessor = () => scheduled(0);
const waited = () => scheduled(1);

async function longestTurn(work: () => Promise<unknown>, now: () => number): Promise<number> {
  let longest = 0;
  let on = true;
  const watching = (async () => {
    while (on) {
      const since = now();
      await new Promise((done) => setImmediate(done));
      longest = Math.max(longest, now() - since);
    }
  })();
  await work();
  on = false;
  await watching;
  return longest;
}

/** The longest time for which this process held its event loop while the work went on, in milliseconds. */
export const longestHold = (work: () => Promise<unknown>): Promise<number> =>
  longestTurn(work, () => performance.now() - waited());

/**
 * The longest of it that this thread computed: what it slept for (a disk, a processor for the collector's threads) is no doing
 * of a computation, and the longer the work takes, the more of it is met. By the wall clock where the kernel does not tell.
 */
export const longestComputation = (work: () => Promise<unknown>): Promise<number> =>
  onProcessor() > 0 ? longestTurn(work, onProcessor) : longestHold(work);

/** What this process, all its threads together, has computed, in milliseconds. */
function computed(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
}

export interface Held {
  p50: number;
  p99: number;
  max: number;
  /** How often a minute longer than `longMs`. */
  longPerMinute: number;
  /**
   * The longest, and what the whole process computed in each. Where that is little, this thread slept: for the disk, or for a
   * thread of the collector's that others kept off the processor. A control without the work in question tells whose it is.
   */
  longest: { ms: number; computedMs: number }[];
}

const longestTold = 5;

/**
 * How long this process holds its own event loop, a look every millisecond: how late a timer is, less the time for which
 * other processes had the processor. The answered function ends it, and tells milliseconds.
 */
export function watchHeld(longMs: number): () => Promise<Held> {
  const held: number[] = [];
  let longest: Held["longest"] = [];
  const startedAt = performance.now();
  let on = true;
  const watching = (async () => {
    while (on) {
      const waitedBefore = waited();
      const computedBefore = computed();
      const due = performance.now() + 1;
      await pause(1);
      const ms = Math.max(0, performance.now() - due - (waited() - waitedBefore));
      held.push(ms);
      if (longest.length === longestTold && ms <= longest.at(-1)!.ms) continue;
      longest.push({ ms, computedMs: computed() - computedBefore });
      longest = longest.sort((one, other) => other.ms - one.ms).slice(0, longestTold);
    }
  })();
  return async () => {
    on = false;
    await watching;
    const minutes = (performance.now() - startedAt) / 60_000;
    const sorted = held.sort((one, other) => one - other);
    const round = (value: number) => Math.round(value * 100) / 100;
    return {
      p50: round(percentile(sorted, 0.5)),
      p99: round(percentile(sorted, 0.99)),
      max: round(sorted.at(-1) ?? 0),
      longPerMinute: round(sorted.filter((ms) => ms > longMs).length / minutes),
      longest: longest.map(({ ms, computedMs }) => ({ ms: round(ms), computedMs: round(computedMs) })),
    };
  };
}
