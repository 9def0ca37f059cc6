import type { Clock } from "./clock.ts";
import { tryAgain } from "./fault.ts";

/** Of one holder: this share of the time, after a pause so much at once. */
const share = 0.2;
const burstMs = 1_000;
const holdersMax = 10_000;

/** Runs a holder's work on this shared thread. Throws `resource_exhausted` once its share of time is used. */
export function openComputeShares(clock: Pick<Clock, "elapsed">) {
  const all = new Map<string, { at: number; leftMs: number }>();
  return <T>(holder: string, what: string, work: () => T): T => {
    const now = clock.elapsed();
    const own = all.get(holder) ?? { at: now, leftMs: burstMs };
    own.leftMs = Math.min(burstMs, own.leftMs + (now - own.at) * share);
    own.at = now;
    if (own.leftMs <= 0)
      throw tryAgain("resource_exhausted", `${what} of this key take too long, try again later`);
    if (!all.has(holder) && all.size >= holdersMax) all.delete(all.keys().next().value!);
    all.set(holder, own);
    try {
      return work();
    } finally {
      own.leftMs -= clock.elapsed() - now;
    }
  };
}
