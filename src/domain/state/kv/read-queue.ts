import type { Combiner } from "../../../kit/combine.ts";
import { flushQueue } from "../../../kit/flush-queue.ts";
import { isOfItem, isStuck } from "../../../store/store.ts";
import type { ChangeQueueDeps } from "./change-queue.ts";
import { getPaceMs, getShare, readTogetherBytesMax } from "./limits.ts";
import { type CachedBucket, type CachedValue, isSame, ReadCache } from "./read-cache.ts";
import { bucketHeads, newestValues, type ReadValue, type ValueAsk } from "./rows.ts";

/**
 * Reads of all callers together: one statement reads what waits in a lane. What a node has read is not read
 * again until its bucket changes; for such keys the statement reads only their bucket.
 */
export function openReadQueue({
  store,
  clock,
  watch,
}: Omit<ChangeQueueDeps, "onChanged">): Combiner<ValueAsk, ReadValue> {
  const cache = new ReadCache();

  async function read(asked: readonly ValueAsk[]): Promise<ReadValue[]> {
    if (asked.length === 0) return [];
    const now = clock.now();
    const found = await newestValues(store, asked, { now, bytesMax: readTogetherBytesMax });
    cache.keep(asked, found, now);
    return found;
  }

  /** Those of the buckets that stand where they stood. */
  async function unmoved(buckets: ReadonlySet<CachedBucket>): Promise<Set<CachedBucket>> {
    if (buckets.size === 0) return new Set();
    const known = [...buckets];
    const heads = await bucketHeads(store, known);
    return new Set(known.filter((bucket, at) => isSame(bucket, heads[at]!)));
  }

  return flushQueue<ValueAsk, ReadValue>({
    name: "kv.get",
    clock,
    watch,
    environmentOf: ({ environmentId }) => environmentId,
    paceMs: getPaceMs,
    share: getShare,
    async flush(asked, committed) {
      const now = clock.now();
      const cached = asked.map((ask) => cache.find(ask, now));
      const buckets = new Set<CachedBucket>();
      for (const value of cached) if (value) buckets.add(value.bucket);
      const [standing, unknown] = await Promise.all([
        unmoved(buckets),
        read(asked.filter((_, at) => !cached[at])),
      ]);
      const stands = (value: CachedValue | undefined) => value !== undefined && standing.has(value.bucket);
      const moved = await read(asked.filter((_, at) => cached[at] && !stands(cached[at])));
      committed();
      const [firsts, seconds] = [unknown.values(), moved.values()];
      return cached.map((value) => {
        if (!value) return { value: firsts.next().value! };
        return { value: stands(value) ? value.found : seconds.next().value! };
      });
    },
    isOfItem,
    isStuck,
  });
}
