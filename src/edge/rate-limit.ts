import type { Caller } from "../kit/caller.ts";
import type { Clock } from "../kit/clock.ts";
import { Fault } from "../kit/fault.ts";
import { tokenBuckets } from "../kit/token-buckets.ts";

/** Keys whose requests one node counts at a time. */
const rateLimitedKeysMax = 10_000;

export interface RateLimitOptions {
  clock: Pick<Clock, "elapsed">;
  /** Requests a second of one key or user, at this node. */
  perSecond: number;
  burst: number;
}

/** Throws `resource_exhausted` for a caller that asks more often than its rate and burst allow. */
export function rateLimit(options: RateLimitOptions): (caller: Caller) => void {
  const take = tokenBuckets({ ...options, holdersMax: rateLimitedKeysMax });
  return ({ id }) => {
    if (id === "") return;
    const seconds = take(id);
    if (seconds > 0)
      throw new Fault("resource_exhausted", "too many requests of this key, try again later", {
        headers: { "Retry-After": String(seconds) },
      });
  };
}
