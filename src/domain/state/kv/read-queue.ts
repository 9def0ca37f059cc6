import type { Instant } from "../../../kit/clock.ts";
import type { Combiner } from "../../../kit/combine.ts";
import { flushQueue } from "../../../kit/flush-queue.ts";
import { sizedCache } from "../../../kit/ttl-cache.ts";
import { isOfItem, isStuck } from "../../../store/store.ts";
import type { ChangeQueueDeps } from "./change-queue.ts";
import {
  cachedCharsMax,
  cachedEnvironmentsMax,
  cachedKeysMax,
  cachedMs,
  getPaceMs,
  getShare,
  readTogetherBytesMax,
} from "./limits.ts";
import {
  type BucketHead,
  bucketHeads,
  newestValues,
  type ReadValue,
  type StoredValue,
  type ValueAsk,
} from "./rows.ts";

/** A value as it was at the revision of its bucket. */
interface CachedValue {
  found: BucketHead & StoredValue;
  bucket: CachedBucket;
  readAt: Instant;
}

/** Where a bucket stood when it was last read, and what was read of it there. */
interface CachedBucket extends BucketHead {
  environmentId: string;
  bucket: string;
  /** Of the statement that saw this head first. */
  read: number;
  /** A later statement has seen it too: the bucket is not written between each two reads. */
  isQuiet: boolean;
  values: Map<string, CachedValue>;
  chars: number;
}

class CachedEnvironment {
  readonly #environmentId: string;
  readonly #buckets = new Map<string, CachedBucket>();
  #keys = 0;
  #chars = 0;

  constructor(environmentId: string) {
    this.#environmentId = environmentId;
  }

  bucket(name: string): CachedBucket | undefined {
    return this.#buckets.get(name);
  }

  /** The bucket at this head: what was read at another one is dropped. */
  seen(name: string, { bucket_id, bucket_revision }: BucketHead, read: number): CachedBucket {
    const known = this.#buckets.get(name);
    if (known && isSame(known, { bucket_id, bucket_revision })) {
      if (known.read !== read) known.isQuiet = true;
      return known;
    }
    if (known) {
      this.#keys -= known.values.size;
      this.#chars -= known.chars;
    }
    const at = { environmentId: this.#environmentId, bucket: name, bucket_id, bucket_revision };
    const bucket = { ...at, read, isQuiet: false, values: new Map(), chars: 0 };
    this.#buckets.set(name, bucket);
    return bucket;
  }

  /** A full environment starts empty again. */
  keep(bucket: CachedBucket, key: string, value: CachedValue): void {
    const isNew = !bucket.values.has(key);
    bucket.values.set(key, value);
    if (!isNew) return;
    const chars = key.length + value.found.value.length;
    bucket.chars += chars;
    this.#chars += chars;
    this.#keys++;
    if (this.#keys <= cachedKeysMax && this.#chars <= cachedCharsMax) return;
    this.#buckets.clear();
    this.#keys = 0;
    this.#chars = 0;
  }
}

/**
 * Values that were read, each with the revision of its bucket in the same statement. A value answers nothing
 * before the store has said again that its bucket stands at that revision.
 */
export class ReadCache {
  readonly #environments = sizedCache<CachedEnvironment>({
    entriesMax: cachedEnvironmentsMax,
    charsMax: Number.POSITIVE_INFINITY,
  });
  #reads = 0;

  /** Worth asking for its bucket's head. A bucket that is written all the time is read at once instead. */
  find({ environmentId, bucket, key }: ValueAsk, now: Instant): CachedValue | undefined {
    const known = this.#environments.get(environmentId)?.bucket(bucket);
    const value = known?.isQuiet ? known.values.get(key) : undefined;
    if (!value || now - value.readAt >= cachedMs) return undefined;
    const { expires_at } = value.found;
    return expires_at === null || expires_at > now ? value : undefined;
  }

  /** What one statement has found. Keys that are not there, and values that are read alone, are not kept. */
  keep(asked: readonly ValueAsk[], found: readonly ReadValue[], readAt: Instant): void {
    const read = ++this.#reads;
    for (const [at, one] of found.entries()) {
      if (one.revision === null || one.value === null || one.bucket_id === null) continue;
      const { environmentId, bucket: name, key } = asked[at]!;
      const environment = this.#of(environmentId);
      const bucket = environment.seen(name, one, read);
      environment.keep(bucket, key, { found: one, bucket, readAt });
    }
  }

  #of(environmentId: string): CachedEnvironment {
    const known = this.#environments.get(environmentId);
    if (known) return known;
    const environment = new CachedEnvironment(environmentId);
    this.#environments.set(environmentId, environment, 0);
    return environment;
  }
}

const isSame = (one: BucketHead, other: BucketHead | { bucket_id: null }): boolean =>
  other.bucket_id !== null &&
  one.bucket_id === other.bucket_id &&
  one.bucket_revision === other.bucket_revision;

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
