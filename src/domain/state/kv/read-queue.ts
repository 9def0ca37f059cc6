import type { Combiner } from "../../../kit/combine.ts";
import { flushQueue } from "../../../kit/flush-queue.ts";
import { isOfItem, isStuck } from "../../../store/store.ts";
import type { ChangeQueueDeps } from "./change-queue.ts";
import { getPaceMs, readTogetherBytesMax } from "./limits.ts";
import { bucketNameOf, isSame, ReadCache } from "./read-cache.ts";
import {
  type BucketHead,
  bucketHeads,
  type NewestValue,
  newestValue,
  newestValues,
  type ReadValue,
  type ValueAsk,
} from "./rows.ts";

/**
 * Reads of all callers, brought together: one statement reads what waits of a lane. What a node has read before is not
 * read again while its bucket has not changed; of such keys the statement reads their bucket alone.
 */
export function openReadQueue({
  store,
  clock,
  watch,
}: Omit<ChangeQueueDeps, "onChanged">): Pick<
  Combiner<ValueAsk, NewestValue | undefined>,
  "submit" | "drain"
> {
  const cache = new ReadCache();

  async function read(asked: readonly ValueAsk[]): Promise<ReadValue[]> {
    if (asked.length === 0) return [];
    const now = clock.now();
    const found = await newestValues(store, asked, { now, bytesMax: readTogetherBytesMax });
    cache.keep(asked, found, now);
    return found;
  }

  async function headsOf(asked: readonly ValueAsk[]): Promise<Map<string, BucketHead | undefined>> {
    if (asked.length === 0) return new Map();
    const buckets = new Map(asked.map((ask) => [bucketNameOf(ask), ask]));
    const heads = await bucketHeads(store, [...buckets.values()]);
    return new Map([...buckets.keys()].map((name, at) => [name, present(heads[at])]));
  }

  const queue = flushQueue<ValueAsk, NewestValue | ReadValue>({
    name: "kv.get",
    clock,
    watch,
    environmentOf: ({ environmentId }) => environmentId,
    paceMs: getPaceMs,
    async flush(asked, committed) {
      const now = clock.now();
      const cached = asked.map((ask) => cache.find(ask, now));
      const [heads, unknown] = await Promise.all([
        headsOf(asked.filter((_, at) => cached[at])),
        read(asked.filter((_, at) => !cached[at])),
      ]);
      const stands = asked.map((ask, at) => {
        const value = cached[at];
        return value && isSame(value, heads.get(bucketNameOf(ask))) ? value : undefined;
      });
      const moved = await read(asked.filter((_, at) => cached[at] && !stands[at]));
      committed();
      const [firsts, seconds] = [unknown.values(), moved.values()];
      return asked.map((_, at) => ({
        value: stands[at]?.found ?? (cached[at] ? seconds : firsts).next().value!,
      }));
    },
    isOfItem,
    isStuck,
  });
  return {
    async submit(ask) {
      const found = await queue.submit(ask);
      if (found.revision === null || found.value !== null) return found;
      return newestValue(store, ask.environmentId, { ...ask, now: clock.now() });
    },
    drain: queue.drain,
  };
}

const present = (head: BucketHead | { bucket_id: null } | undefined): BucketHead | undefined =>
  head && head.bucket_id !== null ? head : undefined;
