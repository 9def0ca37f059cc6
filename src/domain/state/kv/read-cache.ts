import type { Instant } from "../../../kit/clock.ts";
import { sizedCache } from "../../../kit/sized-cache.ts";
import { cachedCharsMax, cachedEnvironmentsMax, cachedKeysMax, cachedMs } from "./limits.ts";
import type { BucketHead, ReadValue, StoredValue, ValueAsk } from "./rows.ts";

/** A value as it was at the revision of its bucket. */
export interface CachedValue {
  found: BucketHead & StoredValue;
  bucket: CachedBucket;
  readAt: Instant;
}

/** Where a bucket stood when it was last read, and what was read of it there. */
export interface CachedBucket extends BucketHead {
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

export const isSame = (one: BucketHead, other: BucketHead | { bucket_id: null }): boolean =>
  other.bucket_id !== null &&
  one.bucket_id === other.bucket_id &&
  one.bucket_revision === other.bucket_revision;
