import type { Clock } from "../kit/clock.ts";
import { Fault } from "../kit/fault.ts";
import type { Caller } from "../kit/operation.ts";

/** Keys whose requests one node counts at a time. */
const rateLimitedKeysMax = 10_000;

interface TokenBucket {
  /** Of `clock.elapsed()`. */
  filledAt: number;
  left: number;
}

export interface RateLimitOptions {
  clock: Pick<Clock, "elapsed">;
  /** Requests a second of one key or user, at this node. */
  perSecond: number;
  burst: number;
}

/** A token bucket for each caller, filled at the rate up to the burst. */
export function rateLimit({ clock, perSecond, burst }: RateLimitOptions): (caller: Caller) => void {
  const buckets = new Map<string, TokenBucket>();
  const perMs = perSecond / 1_000;
  return ({ id }) => {
    if (id === "") return;
    const now = clock.elapsed();
    let bucket = buckets.get(id);
    if (!bucket) {
      // The oldest bucket is dropped; at worst its caller gets a new burst.
      if (buckets.size >= rateLimitedKeysMax) buckets.delete(buckets.keys().next().value!);
      bucket = { filledAt: now, left: burst };
      buckets.set(id, bucket);
    }
    bucket.left = Math.min(burst, bucket.left + (now - bucket.filledAt) * perMs);
    bucket.filledAt = now;
    if (bucket.left < 1) {
      const seconds = Math.max(1, Math.ceil((1 - bucket.left) / perSecond));
      throw new Fault("resource_exhausted", "too many requests of this key, try again later", {
        headers: { "Retry-After": String(seconds) },
      });
    }
    bucket.left--;
  };
}
