import type { Combiner } from "../../../kit/combine.ts";
import type { Expected } from "../../../kit/expected.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Basics, Session } from "../../../store/store.ts";
import type { Changed, PutValue, ValueChange } from "./changes.ts";
import { historyMax, ownKeysMax } from "./limits.ts";
import * as rows from "./rows.ts";
import { type ChangeHead, changesAfter, type ToldChange, valuesAfter } from "./watch-rows.ts";
import type { Watches } from "./watches.ts";

/** A bucket for the product itself: every environment has one by its name, and no caller can see it. */
export type OwnBucket = ReturnType<typeof openOwnBucket>;

export interface OwnBucketSpec {
  name: string;
  /** What refusals call a key. */
  called: string;
  valueBytesMax: number;
}

export interface OwnChange {
  expected: Expected;
  /** Left out, the key is deleted. */
  from?: (current: string | undefined) => PutValue;
}

export interface OwnBucketDeps extends Basics<"store" | "clock" | "ids"> {
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  changes: Combiner<ValueChange, Changed>;
  watches: Watches;
}

export function openOwnBucket(
  { store, clock, ids, shareEnvironment, changes, watches }: OwnBucketDeps,
  { name, called, valueBytesMax }: OwnBucketSpec,
) {
  const bucketOf = (environmentId: string) => rows.bucketNamed(store, environmentId, name);

  const ofOne = (key: string) => ({ after: 0, key, limit: historyMax + 1, now: clock.now() });

  async function ensure(environmentId: string): Promise<void> {
    if (await bucketOf(environmentId)) return;
    const draft = { environmentId, id: ids.uuid(), name, valueBytesMax, historyMax, createdAt: clock.now() };
    await store.write(async (session) => {
      await shareEnvironment(session, environmentId);
      await rows.insertBucket(session, {
        ...draft,
        ...{ description: null, ttlMs: null, bytesMax: null, revision: 0, valueCount: 0, bytes: 0 },
      });
    });
  }

  return {
    /** The newest value of a key, or that of a revision which is still kept. */
    async get(environmentId: string, key: string, revision?: number): Promise<rows.StoredValue | undefined> {
      const now = clock.now();
      const newest = await rows.newestValue(store, environmentId, { bucket: name, key, now });
      if (!newest?.bucket_id) return undefined;
      if (newest.revision !== null && (revision === undefined || revision === newest.revision)) return newest;
      if (revision === undefined) return undefined;
      return rows.pastValue(store, environmentId, { bucketId: newest.bucket_id, key, revision, now });
    },

    /** Makes the value from the one that is there, or deletes the key. */
    async change(environmentId: string, key: string, { expected, from }: OwnChange): Promise<Changed> {
      const asked = { environmentId, bucket: name, key, expected, called, ...(from && { put: { from } }) };
      if (!(await bucketOf(environmentId))) {
        if (!from && typeof expected !== "number") return undefined;
        await ensure(environmentId);
      }
      return changes.submit(asked);
    },

    /** Keys with a value, at most `ownKeysMax`. */
    async list(environmentId: string): Promise<ChangeHead[]> {
      const bucket = await bucketOf(environmentId);
      if (!bucket) return [];
      const all = { after: 0, key: undefined, limit: ownKeysMax, upTo: bucket.revision, now: clock.now() };
      return valuesAfter(store, bucket, all);
    },

    /** Changes of a key that are kept, oldest first. */
    async history(environmentId: string, key: string): Promise<ChangeHead[]> {
      const bucket = await bucketOf(environmentId);
      if (!bucket) return [];
      return changesAfter(store, bucket, ofOne(key));
    },

    /** First the newest change, a deletion too, then each one. */
    async *watch(
      environmentId: string,
      key: string,
      ask: { signal: AbortSignal; admitted: () => void },
    ): AsyncGenerator<ToldChange> {
      await ensure(environmentId);
      const bucket = await bucketOf(environmentId);
      if (!bucket) throw new Fault("unavailable", `the ${called} cannot be watched now`);
      const newest = (await changesAfter(store, bucket, ofOne(key))).at(-1);
      const after = newest ? newest.revision - 1 : bucket.revision;
      const filter = { exact: key, start: key, matches: (one: string) => one === key };
      yield* watches.watch(bucket, { ...ask, filter, after, forgets: true });
    },
  };
}
