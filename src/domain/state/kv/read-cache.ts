import type { Instant } from "../../../kit/clock.ts";
import { sizedCache } from "../../../kit/sized-cache.ts";
import { cachedCharsMax, cachedKeysMax, cachedMs } from "./limits.ts";
import type { BucketHead, NewestValue, ReadValue, ValueAsk } from "./rows.ts";

/** A value as it was at a revision of its bucket. */
interface CachedValue extends BucketHead {
  found: NewestValue & { expires_at: Instant | null };
  readAt: Instant;
}

export const bucketNameOf = ({ environmentId, bucket }: Omit<ValueAsk, "key">): string =>
  `${environmentId}\n${bucket}`;

/** Where a bucket stood when it was last read. */
interface KnownHead extends BucketHead {
  /** Of the statement that saw it first. */
  read: number;
  /** A later statement has seen it too: the bucket is not written between each two reads. */
  isQuiet: boolean;
}

/**
 * Values that were read, each with the revision of its bucket in the same statement. A value answers nothing before the store
 * has said again that its bucket stands at that revision.
 */
export class ReadCache {
  readonly #heads = sizedCache<KnownHead>({ entriesMax: cachedKeysMax, charsMax: cachedCharsMax });
  readonly #values = sizedCache<CachedValue>({ entriesMax: cachedKeysMax, charsMax: cachedCharsMax });
  #reads = 0;

  /** Worth asking for the head of its bucket. A bucket that is written all the time is read at once instead. */
  find(ask: ValueAsk, now: Instant): CachedValue | undefined {
    const bucketName = bucketNameOf(ask);
    const value = this.#values.get(valueNameOf(bucketName, ask));
    if (!value || now - value.readAt >= cachedMs) return undefined;
    const head = this.#heads.get(bucketName);
    if (!head?.isQuiet || !isSame(value, head)) return undefined;
    const { expires_at } = value.found;
    return expires_at === null || expires_at > now ? value : undefined;
  }

  /** What one statement has found. Keys that are not there, and values that are read alone, are not kept. */
  keep(asked: readonly ValueAsk[], found: readonly ReadValue[], readAt: Instant): void {
    const read = ++this.#reads;
    for (const [at, one] of found.entries()) {
      if (one.revision === null || one.value === null || one.bucket_id === null) continue;
      const ask = asked[at]!;
      const bucketName = bucketNameOf(ask);
      const head = { bucket_id: one.bucket_id, bucket_revision: one.bucket_revision };
      this.#see(bucketName, head, read);
      const valueName = valueNameOf(bucketName, ask);
      this.#values.set(valueName, { ...head, found: one, readAt }, valueName.length + one.value.length);
    }
  }

  #see(bucketName: string, head: BucketHead, read: number): void {
    const known = this.#heads.get(bucketName);
    if (!known || !isSame(head, known))
      this.#heads.set(bucketName, { ...head, read, isQuiet: false }, bucketName.length);
    else if (known.read !== read) known.isQuiet = true;
  }
}

const valueNameOf = (bucketName: string, { key }: ValueAsk): string => `${bucketName}\n${key}`;

export const isSame = (one: BucketHead, other: BucketHead | undefined): boolean =>
  other !== undefined && one.bucket_id === other.bucket_id && one.bucket_revision === other.bucket_revision;
