import type { Clock } from "./clock.ts";

interface TokenBucket {
  /** Of `clock.elapsed()`. */
  filledAt: number;
  left: number;
}

export interface TokenBucketsOptions {
  clock: Pick<Clock, "elapsed">;
  perSecond: number;
  burst: number;
  /** Beyond it the oldest bucket is dropped; at worst its holder gets a new burst. */
  holdersMax: number;
}

/**
 * A token bucket for each holder, filled at the rate up to the burst. Takes a token and answers 0, or the
 * seconds until there is one.
 */
export function tokenBuckets(options: TokenBucketsOptions): (holder: string) => number {
  const { clock, perSecond, burst, holdersMax } = options;
  const buckets = new Map<string, TokenBucket>();
  const perMs = perSecond / 1_000;
  return (holder) => {
    const now = clock.elapsed();
    let bucket = buckets.get(holder);
    if (!bucket) {
      if (buckets.size >= holdersMax) buckets.delete(buckets.keys().next().value!);
      bucket = { filledAt: now, left: burst };
      buckets.set(holder, bucket);
    }
    bucket.left = Math.min(burst, bucket.left + (now - bucket.filledAt) * perMs);
    bucket.filledAt = now;
    if (bucket.left < 1) return Math.max(1, Math.ceil((1 - bucket.left) / perSecond));
    bucket.left--;
    return 0;
  };
}
