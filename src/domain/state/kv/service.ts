import type { Instant } from "../../../kit/clock.ts";
import { requireStorable } from "../../../kit/event-names.ts";
import type { Expected } from "../../../kit/expected.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { expireSliceMax, integrityEnvironmentsMax, integrityRowsMax } from "../../../kit/limits.ts";
import { readNameCursor, writeNameCursor } from "../../../kit/page.ts";
import { sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import type { RequireRoom } from "../../engine/quotas/service.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
import { type ChangeQueueDeps, openChangeQueue } from "./change-queue.ts";
import * as changeRows from "./change-rows.ts";
import {
  bucketsMax,
  keysPageMax,
  keysScanMax,
  keysSlice,
  ownPrefix,
  valueBytesDefault,
  valueBytesMax,
} from "./limits.ts";
import { type OwnBucketSpec, openOwnBucket } from "./own-bucket.ts";
import { openReadQueue } from "./read-queue.ts";
import type { Bucket } from "./rows.ts";
import * as rows from "./rows.ts";
import { type KeyFilter, keyFilter, requireBucketName, requireKey, segmentFilter } from "./rules.ts";
import { openWatches, type WatchAsk, type WatchesDeps } from "./watches.ts";

export type { OwnBucket } from "./own-bucket.ts";
export type { Bucket, KeyRevision, StoredValue } from "./rows.ts";
export type { ToldChange } from "./watches.ts";

/** What a bucket is made with; 0 and left out mean the default. */
export interface BucketDraft {
  name: string;
  description?: string;
  ttlSeconds?: number;
  valueBytesMax?: number;
  bytesMax?: number;
  historyMax?: number;
}

export interface KeysQuery {
  filter?: string;
  prefix?: string;
  limit?: number;
  cursor?: string;
}

export type Kv = ReturnType<typeof openKv>;

export interface PutInput {
  value: Uint8Array;
  expected: Expected;
  /** Instead of the bucket's. */
  ttlSeconds?: number;
}

export interface RemoveInput {
  expected: Expected;
  /** The values before it go too. */
  dropsHistory: boolean;
}

export interface WatchInput extends Omit<WatchAsk, "filter"> {
  /** A key, or a pattern as of a list; left out, all keys. */
  key: string | undefined;
}

export interface KvDeps extends Omit<ChangeQueueDeps, "onChanged">, WatchesDeps {
  ids: Ids;
  /** Locks the environment against deletion until the transaction ends; throws `not_found` if it is gone. */
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  requireRoom: RequireRoom;
  /** Of a request: no larger value could ever be sent. */
  bodyBytesMax: number;
}

export function openKv(deps: KvDeps) {
  const { store, clock, ids, moved, shareEnvironment } = deps;
  const changes = openChangeQueue({ ...deps, onChanged: moved.publish });
  const reads = openReadQueue(deps);
  const watches = openWatches(deps);
  const sendableBytesMax = Math.min(valueBytesMax, deps.bodyBytesMax);

  async function requireBucket(environmentId: string, name: string): Promise<Bucket> {
    const bucket = await rows.bucketNamed(store, environmentId, shown(name));
    if (!bucket) throw missing("bucket", name);
    return bucket;
  }

  return {
    async createBucket(environmentId: string, draft: BucketDraft): Promise<Bucket> {
      const bucket = bucketOf(environmentId, draft, { id: ids.uuid(), at: clock.now(), sendableBytesMax });
      await store.write(async (session) => {
        await shareEnvironment(session, environmentId);
        if ((await rows.countBuckets(session, environmentId)) >= bucketsMax)
          throw new Fault("resource_exhausted", `an environment holds at most ${bucketsMax} buckets`);
        if (!(await rows.insertBucket(session, bucket)))
          throw new Fault("already_exists", `a bucket named "${draft.name}" exists already`, {
            field: "name",
          });
      });
      return bucket;
    },

    /** By name. */
    buckets: (environmentId: string) => rows.bucketsOf(store, environmentId),

    bucket: requireBucket,

    async deleteBucket(environmentId: string, name: string) {
      const at = clock.now();
      const gone = await store.write((session) => rows.markDeleted(session, environmentId, shown(name), at));
      if (!gone) throw missing("bucket", name);
      moved.publish({ environmentId, bucketId: gone.id });
    },

    /** Keys that can be read, in the order of their bytes. */
    async keys(environmentId: string, name: string, { filter, prefix, limit = 0, cursor }: KeysQuery) {
      const wanted = keyFilter(filter, prefix);
      const after = cursor ? readNameCursor("cursor", cursor) : "";
      const bucket = await requireBucket(environmentId, name);
      if (!wanted) return { keys: [], nextCursor: undefined };
      const most = limit > 0 ? Math.min(limit, keysPageMax) : keysPageMax;
      return keysPage(deps, bucket, wanted, { after, most });
    },

    /** The newest value, or the one of a revision that is still kept. */
    async get(environmentId: string, bucket: string, key: string, revision?: number) {
      requireKey(key);
      const now = clock.now();
      const read = await reads.submit({ environmentId, bucket: shown(bucket), key });
      const newest = isLarge(read)
        ? await rows.newestValue(store, environmentId, { bucket, key, now })
        : read;
      if (!newest?.bucket_id) throw missing("bucket", bucket);
      if (newest.revision !== null && (revision === undefined || revision === newest.revision)) return newest;
      if (revision === undefined) throw missing("key", key);
      const past = { bucketId: newest.bucket_id, key, revision, now };
      const found = await rows.pastValue(store, environmentId, past);
      if (!found) throw new Fault("not_found", `revision ${revision} of key ${key} not found`);
      return found;
    },

    /** What is kept of a key, newest first; `not_found` without any. */
    async revisions(environmentId: string, name: string, key: string): Promise<rows.KeyRevision[]> {
      requireKey(key);
      const { id: bucketId } = await requireBucket(environmentId, name);
      const found = await rows.revisionsOf(store, environmentId, { bucketId, key, now: clock.now() });
      if (found.length === 0) throw missing("key", key);
      return found;
    },

    /** Answers the revision, once it is durable. */
    async put(environmentId: string, bucket: string, key: string, { value, expected, ttlSeconds }: PutInput) {
      requireKey(key);
      const put = {
        value: Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("base64"),
        bytes: value.byteLength,
        ttlMs: msOf(ttlSeconds),
      };
      await deps.requireRoom(environmentId, put.bytes, async () => {
        const { id: bucketId, historyMax } = await requireBucket(environmentId, bucket);
        const found = await rows.revisionsOf(store, environmentId, { bucketId, key, now: clock.now() });
        const kept = found.filter(({ operation }) => operation === "put");
        return put.bytes - (kept.length < historyMax ? 0 : (kept.at(-1)?.bytes ?? 0));
      });
      return (await changes.submit({ environmentId, bucket: shown(bucket), key, expected, put }))!.revision;
    },

    /** A key that does not exist is deleted already. */
    async remove(environmentId: string, name: string, key: string, { expected, dropsHistory }: RemoveInput) {
      requireKey(key);
      await changes.submit({ environmentId, bucket: shown(name), key, expected, dropsHistory });
    },

    /**
     * What happens to the keys of a pattern, in the order of their revisions: first the values that there
     * are, or what changed after a revision.
     */
    async *watch(environmentId: string, name: string, { key, ...ask }: WatchInput) {
      const filter = segmentFilter("key", key || ">");
      yield* watches.watch(await requireBucket(environmentId, name), { ...ask, filter });
    },

    lookOnce: watches.lookOnce,
    expireOnce: (write: Store["write"]) => expireDue(deps, write),

    /** A bucket that no caller of the store sees. */
    own: (spec: OwnBucketSpec) => openOwnBucket({ ...deps, changes, watches }, spec),

    /** Resolves once nothing is on its way to the store. */
    drain: async () => void (await Promise.all([changes.drain(), reads.drain()])),
  };
}

/** The tick of loop `kv.expire`. */
async function expireDue({ store, clock }: KvDeps, write: Store["write"]): Promise<void> {
  const now = clock.now();
  for (;;) {
    const bucket = await changeRows.firstExpired(store, now);
    if (!bucket) break;
    await write((session) => changeRows.dropExpired(session, bucket, now, expireSliceMax));
  }
  for (;;) {
    const bucket = await changeRows.firstDeleted(store);
    if (!bucket) break;
    while (!(await write((session) => changeRows.dropDeleted(session, bucket, expireSliceMax))));
  }
}

const isLarge = (read: rows.ReadValue): read is rows.LargeValue =>
  read.revision !== null && read.value === null;

/** Buckets of the product's own are not there. */
function shown(name: string): string {
  if (name.startsWith(ownPrefix)) throw missing("bucket", name);
  return name;
}

const msOf = (seconds: number | undefined): number | undefined => (seconds ? seconds * 1_000 : undefined);

function bucketOf(
  environmentId: string,
  draft: BucketDraft,
  { id, at, sendableBytesMax }: { id: string; at: number; sendableBytesMax: number },
): Bucket {
  requireBucketName(draft.name);
  requireStorable("description", draft.description);
  const wantedBytes = draft.valueBytesMax || Math.min(valueBytesDefault, sendableBytesMax);
  if (wantedBytes > sendableBytesMax)
    throw invalid("max_value_size", `must be at most ${sendableBytesMax} bytes`);
  return {
    environmentId,
    id,
    name: draft.name,
    description: draft.description || null,
    ttlMs: msOf(draft.ttlSeconds) ?? null,
    valueBytesMax: wantedBytes,
    bytesMax: draft.bytesMax || null,
    historyMax: draft.historyMax || 1,
    revision: 0,
    valueCount: 0,
    bytes: 0,
    createdAt: at,
  };
}

/** Reads on until the page is full, the keys leave the filter's start, or too many keys were looked at. */
async function keysPage(
  { store, clock }: Pick<KvDeps, "store" | "clock">,
  bucket: Bucket,
  { start, matches }: KeyFilter,
  page: { after: string; most: number },
): Promise<{ keys: string[]; nextCursor: string | undefined }> {
  const keys: string[] = [];
  let { after } = page;
  for (let read = 0; read < keysScanMax; read += keysSlice) {
    const look = { from: start, after, now: clock.now(), limit: keysSlice };
    const found = await rows.keysFrom(store, bucket, look);
    for (const { key, alive } of found) {
      if (!key.startsWith(start)) return { keys, nextCursor: undefined };
      if (alive === 1 && matches(key)) {
        if (keys.length === page.most) return { keys, nextCursor: writeNameCursor(after) };
        keys.push(key);
      }
      after = key;
    }
    if (found.length < keysSlice) return { keys, nextCursor: undefined };
  }
  return { keys, nextCursor: writeNameCursor(after) };
}

type CheckReads = Pick<Store, "all">;

/** Buckets compared in one look, and rows read of each; of a larger one nothing is said. */
const bucketsAtOnce = 10;
const rowsEachMax = integrityRowsMax / 2;

interface CountedBucket extends RowOf<"kv_buckets", "id, name, value_count, bytes, revision"> {
  at: Instant;
  is_wrong: number;
}

/** The order lets every planner go by the primary key, and no further than the limit. */
const compare = (store: CheckReads, environmentId: string, after: string): Promise<CountedBucket[]> =>
  store.all(sql`SELECT b.id, b.name, b.created_at AS at, b.value_count, b.bytes, b.revision, CASE WHEN b.value_count <= ${rowsEachMax} AND EXISTS (SELECT 1 FROM (
        SELECT count(*) AS row_count, count(CASE WHEN l.operation = 'put' THEN 1 END) AS value_count,
          COALESCE(sum(l.bytes), 0) AS bytes, COALESCE(max(l.revision), 0) AS revision
        FROM (SELECT e.operation, e.bytes, e.revision FROM kv_keys e
          WHERE e.environment_id = b.environment_id AND e.bucket_id = b.id
          ORDER BY e.key LIMIT ${rowsEachMax + 1}) l) c
      WHERE c.row_count <= ${rowsEachMax}
        AND (c.value_count <> b.value_count OR c.bytes <> b.bytes OR c.revision > b.revision))
      THEN 1 ELSE 0 END AS is_wrong
    FROM kv_buckets b WHERE b.environment_id = ${environmentId} AND b.id > ${after} AND b.deleted_at IS NULL
    ORDER BY b.id LIMIT ${bucketsAtOnce}`);

/** It is reported, never repaired: a count that is wrong says that rows are. */
export function bucketCheck(store: CheckReads): IntegrityCheck {
  /** The bucket that the last look came to, by environment. */
  const walks = new Map<string, string>();
  return {
    name: "kv.buckets",
    about:
      "Buckets whose values are not as many as they count, or newer than their revision; of ten buckets a look.",
    async run(environmentId) {
      const walked = walks.get(environmentId) ?? "";
      walks.delete(environmentId);
      let buckets = await compare(store, environmentId, walked);
      if (buckets.length === 0 && walked !== "") buckets = await compare(store, environmentId, "");
      const wrong = buckets.filter(({ is_wrong }) => is_wrong === 1);
      if (walks.size >= integrityEnvironmentsMax) walks.delete(walks.keys().next().value!);
      // It stays where something is wrong, so that this is seen until it is put right.
      const last = wrong.length > 0 ? walked : buckets.length < bucketsAtOnce ? "" : buckets.at(-1)!.id;
      if (last !== "") walks.set(environmentId, last);
      return violationsOf(
        wrong.map(({ name, at, value_count, bytes, revision }) => ({
          ...{ id: `bucket ${name}`, at, values: value_count, bytes, revision },
        })),
      );
    },
  };
}
