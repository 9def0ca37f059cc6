import { type InCamelCase, inCamelCase } from "../../../kit/cases.ts";
import type { Instant } from "../../../kit/clock.ts";
import { columnsOf, readAs } from "../../../kit/columns.ts";
import { countOf, type Sql, type SqlArray, sql } from "../../../kit/sql.ts";
import type { Seams, Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { ownPrefix } from "./limits.ts";

export type Bucket = InCamelCase<BucketRow>;

/** A value that can be read. */
export interface StoredValue {
  revision: number;
  /** In base64. */
  value: string;
  created_at: Instant;
  expires_at: Instant | null;
  /** Its answer in JSON, once it was written: a value that a node keeps is answered often. */
  text?: string;
}

export type BucketRow = RowOf<"kv_buckets", typeof bucketNames>;

type KvReads = Pick<Store, "one" | "all">;

const bucketNames = `environment_id, id, name, description, ttl_ms, value_bytes_max, bytes_max, history_max, revision,
  value_count, bytes, created_at`;
export const bucketColumns = sql.raw(bucketNames);

export const toBucket = (row: BucketRow): Bucket => inCamelCase(row);

const read = readAs(toBucket);

/** Buckets of the product's own are in no list, and count for no limit. */
const isShown = sql`${sql.raw(`substr(name, 1, ${ownPrefix.length})`)} <> ${ownPrefix}`;

export const bucketsOf = (reads: KvReads, environmentId: string) =>
  read.all(
    reads,
    sql`SELECT ${bucketColumns} FROM kv_buckets
    WHERE environment_id = ${environmentId} AND deleted_at IS NULL AND ${isShown} ORDER BY name`,
  );

export const bucketNamed = (reads: KvReads, environmentId: string, name: string) =>
  read.one(
    reads,
    sql`SELECT ${bucketColumns} FROM kv_buckets
    WHERE environment_id = ${environmentId} AND name = ${name} AND deleted_at IS NULL`,
  );

export const countBuckets = (session: Session, environmentId: string): Promise<number> =>
  countOf(
    session,
    sql`FROM kv_buckets
    WHERE environment_id = ${environmentId} AND deleted_at IS NULL AND ${isShown}`,
  );

/** False when the name is taken. */
export async function insertBucket(session: Session, bucket: Bucket): Promise<boolean> {
  const { environmentId, id, name, description, ttlMs, valueBytesMax, bytesMax, historyMax } = bucket;
  const inserted = await session.run(sql`INSERT INTO kv_buckets (${bucketColumns})
    VALUES (${environmentId}, ${id}, ${name}, ${description}, ${ttlMs}, ${valueBytesMax}, ${bytesMax}, ${historyMax},
      ${bucket.revision}, ${bucket.valueCount}, ${bucket.bytes}, ${bucket.createdAt})
    ON CONFLICT (environment_id, name) WHERE deleted_at IS NULL DO NOTHING`);
  return inserted === 1;
}

/** From here on the bucket is not there; loop `kv.expire` deletes what it held. */
export const markDeleted = (
  session: Session,
  environmentId: string,
  name: string,
  at: Instant,
): Promise<{ id: string } | undefined> =>
  session.one(sql`UPDATE kv_buckets SET deleted_at = ${at}
    WHERE environment_id = ${environmentId} AND name = ${name} AND deleted_at IS NULL RETURNING id`);

const isAliveAt = (now: Instant) => sql`(e.expires_at IS NULL OR e.expires_at > ${now})`;

/** Without a bucket's id when there is no bucket, without a revision when there is no key. */
export type NewestValue =
  | { bucket_id: null; revision: null }
  | ({ bucket_id: string } & (StoredValue | { revision: null }));

/** One caller's question for the newest value of a key. */
export interface ValueAsk {
  environmentId: string;
  bucket: string;
  key: string;
}

const ofBucket = sql.raw(
  "b.environment_id = i.environment_id AND b.name = i.bucket AND b.deleted_at IS NULL",
);

/** Where a bucket stands; nothing is in it that a later revision has not told. */
export interface BucketHead {
  bucket_id: string;
  bucket_revision: number;
}

/** The heads of these buckets, in their order; without an id where there is none. */
export function bucketHeads(
  reads: KvReads & Pick<Store, "seams">,
  asked: readonly Omit<ValueAsk, "key">[],
): Promise<(BucketHead | { bucket_id: null })[]> {
  const { rowOf, rowsFrom } = reads.seams;
  const buckets = rowsFrom("i", {
    ...columnsOf(asked, { text: "environmentId bucket" }),
  });
  return reads.all(
    sql`SELECT b.id AS bucket_id, b.revision AS bucket_revision
      FROM ${buckets} ${rowOf("kv_buckets", "b", ofBucket, "left")} ORDER BY i.ord`,
  );
}

/** `FROM` these keys `i`, each with its bucket `b` and the row `e` of its newest value, or null. */
export function newestOf(
  { rowOf, rowsFrom }: Seams,
  asked: readonly ValueAsk[],
  { also, more = {} }: { also?: Sql; more?: Record<string, SqlArray> } = {},
): Sql {
  const keys = rowsFrom("i", {
    ...columnsOf(asked, { text: "environmentId bucket key" }),
    ...more,
  });
  const same = sql`e.environment_id = i.environment_id AND e.bucket_id = b.id AND e.key = i.key`;
  const ofKey = also ? sql`${same} AND ${also}` : same;
  return sql`FROM ${keys} ${rowOf("kv_buckets", "b", ofBucket, "left")} ${rowOf("kv_keys", "e", ofKey, "left")}`;
}

/** Too large to be read with others. */
export type LargeValue = BucketHead & { revision: number; value: null };

/** With the head of its bucket. */
export type ReadValue =
  | { bucket_id: null; revision: null }
  | (BucketHead & ({ revision: null } | LargeValue | StoredValue));

/** The newest values of these keys, in order. One of more than `bytesMax` is null: it must be read alone. */
export function newestValues(
  reads: KvReads & Pick<Store, "seams">,
  asked: readonly ValueAsk[],
  { now, bytesMax }: { now: Instant; bytesMax: number },
): Promise<ReadValue[]> {
  return reads.all(sql`
    SELECT b.id AS bucket_id, b.revision AS bucket_revision, e.revision, CASE WHEN e.bytes <= ${bytesMax} THEN e.value END AS value,
      e.created_at, e.expires_at
    ${newestOf(reads.seams, asked, { also: sql`e.operation = 'put' AND ${isAliveAt(now)}` })} ORDER BY i.ord`);
}

/**
 * The newest value of a key; without a bucket's id when there is none, without a revision when there is no
 * key. The bucket is a value and no table, so that every planner goes by the whole primary key.
 */
export const newestValue = (
  reads: KvReads,
  environmentId: string,
  { bucket, key, now }: Omit<ValueAsk, "environmentId"> & { now: Instant },
): Promise<NewestValue | undefined> =>
  reads.one(sql`SELECT b.bucket_id, e.revision, e.value, e.created_at, e.expires_at
    FROM (SELECT (SELECT id FROM kv_buckets
        WHERE environment_id = ${environmentId} AND name = ${bucket} AND deleted_at IS NULL) AS bucket_id) b
      LEFT JOIN kv_keys e ON e.environment_id = ${environmentId} AND e.bucket_id = b.bucket_id
        AND e.key = ${key} AND e.operation = 'put' AND ${isAliveAt(now)}`);

/** A value that was replaced. */
export const pastValue = (
  reads: KvReads,
  environmentId: string,
  { bucketId, key, revision, now }: { bucketId: string; key: string; revision: number; now: Instant },
): Promise<StoredValue | undefined> =>
  reads.one(sql`SELECT e.revision, e.value, e.created_at, e.expires_at FROM kv_history e
    WHERE e.environment_id = ${environmentId} AND e.bucket_id = ${bucketId} AND e.key = ${key}
      AND e.revision = ${revision} AND ${isAliveAt(now)}`);

/** A revision of a key without its value. */
export interface KeyRevision {
  revision: number;
  operation: "put" | "delete";
  bytes: number;
  created_at: Instant;
  expires_at: Instant | null;
}

/** What is kept of a key, newest first: its row, also of a deletion, and the values before it. */
export const revisionsOf = (
  reads: KvReads,
  environmentId: string,
  { bucketId, key, now }: { bucketId: string; key: string; now: Instant },
): Promise<KeyRevision[]> => {
  const ofKey = sql`e.environment_id = ${environmentId} AND e.bucket_id = ${bucketId} AND e.key = ${key}
    AND ${isAliveAt(now)}`;
  return reads.all(sql`SELECT e.revision, e.operation, e.bytes, e.created_at, e.expires_at FROM kv_keys e WHERE ${ofKey}
    UNION ALL SELECT e.revision, 'put', e.bytes, e.created_at, e.expires_at FROM kv_history e WHERE ${ofKey}
    ORDER BY revision DESC`);
};

/** Keys in order, from `from` on and after `after`, also expired and deleted ones: a look is bounded. */
export const keysFrom = (
  reads: KvReads,
  { environmentId, id }: Pick<Bucket, "environmentId" | "id">,
  { from, after, now, limit }: { from: string; after: string; now: Instant; limit: number },
): Promise<{ key: string; alive: number }[]> =>
  reads.all(sql`SELECT e.key, CASE WHEN e.operation = 'put' AND ${isAliveAt(now)} THEN 1 ELSE 0 END AS alive
    FROM kv_keys e WHERE e.environment_id = ${environmentId} AND e.bucket_id = ${id}
      AND e.key >= ${from} AND e.key > ${after} ORDER BY e.key LIMIT ${limit}`);
