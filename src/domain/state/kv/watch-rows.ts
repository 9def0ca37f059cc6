import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import { watchBytesAtOnce } from "./limits.ts";
import type { Bucket } from "./rows.ts";

/** A change of a key as a watch tells it. */
export interface ToldChange {
  key: string;
  revision: number;
  operation: "put" | "delete";
  createdAt: Instant;
  /** In base64; empty of a deletion. */
  value: string;
}

/** Without its value. */
export interface ChangeHead {
  key: string;
  revision: number;
  operation: "put" | "delete";
  bytes: number;
  created_at: Instant;
}

/** How far a bucket is. */
export interface BucketEnd {
  revision: number;
  /** Deletions up to this revision may have left no marker any more. */
  forgotten_revision: number;
}

type Address = Pick<Bucket, "environmentId" | "id">;
type WatchReads = Pick<Store, "one" | "all" | "seams">;

/** Which changes: of one key, or of all. */
export interface Asked {
  after: number;
  key: string | undefined;
  limit: number;
  /** What has expired by then is not there. */
  now: Instant;
}

export const bucketEnd = (
  reads: WatchReads,
  { environmentId, id }: Address,
): Promise<BucketEnd | undefined> =>
  reads.one(sql`SELECT revision, forgotten_revision FROM kv_buckets
    WHERE environment_id = ${environmentId} AND id = ${id} AND deleted_at IS NULL`);

const isAliveAt = (now: Instant) => sql`(expires_at IS NULL OR expires_at > ${now})`;
/** Of all keys it must not begin at the primary key, in which revisions have no order. */
const within = ({ environmentId, id }: Address, key: string | undefined) =>
  key === undefined
    ? sql`environment_id || '' = ${environmentId} AND bucket_id || '' = ${id}`
    : sql`environment_id = ${environmentId} AND bucket_id = ${id} AND key = ${key}`;

/** Keys with the values that they have, by the revision of those. */
export const valuesAfter = (
  reads: WatchReads,
  bucket: Address,
  { after, key, limit, upTo, now }: Asked & { upTo: number },
): Promise<ChangeHead[]> =>
  reads.all(sql`SELECT key, revision, operation, bytes, created_at FROM kv_keys
    WHERE ${within(bucket, key)} AND revision > ${after} AND revision <= ${upTo} AND operation = 'put' AND ${isAliveAt(now)}
    ORDER BY revision LIMIT ${limit}`);

/** Every change that is kept, by its revision. Replaced values are kept as the bucket's history. */
export function changesAfter(
  reads: WatchReads,
  bucket: Address,
  { after, key, limit, now }: Asked,
): Promise<ChangeHead[]> {
  const found = sql`${within(bucket, key)} AND revision > ${after}`;
  const inOrder = sql`ORDER BY revision LIMIT ${limit}`;
  return reads.all(sql`SELECT key, revision, operation, bytes, created_at FROM (
      SELECT * FROM (SELECT key, revision, operation, bytes, created_at FROM kv_keys
        WHERE ${found} AND (operation = 'delete' OR ${isAliveAt(now)}) ${inOrder}) newest
      UNION ALL
      SELECT * FROM (SELECT key, revision, 'put' AS operation, bytes, created_at FROM kv_history
        WHERE ${found} AND ${isAliveAt(now)} ${inOrder}) past
    ) changes ${inOrder}`);
}

async function valuesOf(
  reads: WatchReads,
  { environmentId, id }: Address,
  heads: readonly ChangeHead[],
): Promise<Map<number, string>> {
  const wanted = reads.seams.rowsFrom("i", {
    ...columnsOf(heads, { text: "key", bigint: "revision" }),
  });
  const same = sql`e.environment_id = ${environmentId} AND e.bucket_id = ${id} AND e.key = i.key
    AND e.revision = i.revision`;
  // Change by change, whatever the statistics say: a young table's plan read all values of the bucket.
  const each = (table: string) => sql`${wanted} ${reads.seams.rowOf(table, "e", same)}`;
  const rows = await reads.all<{ revision: number; value: string }>(sql`
    SELECT e.revision, e.value FROM ${each("kv_keys")} WHERE e.value IS NOT NULL
    UNION ALL
    SELECT e.revision, e.value FROM ${each("kv_history")}`);
  return new Map(rows.map(({ revision, value }) => [revision, value]));
}

/**
 * The changes with their values, some at a time, so that their values fit in memory. One that was replaced
 * since is left out, as a newer one follows.
 */
export async function* withValues(
  reads: WatchReads,
  bucket: Address,
  heads: readonly ChangeHead[],
): AsyncGenerator<ToldChange[]> {
  for (let from = 0; from < heads.length; ) {
    let bytes = 0;
    let to = from;
    do bytes += heads[to++]!.bytes;
    while (to < heads.length && bytes + heads[to]!.bytes <= watchBytesAtOnce);
    const some = heads.slice(from, to);
    from = to;
    const puts = some.filter(({ operation }) => operation === "put");
    const values = puts.length === 0 ? new Map<number, string>() : await valuesOf(reads, bucket, puts);
    yield some.flatMap(({ key, revision, operation, created_at: createdAt }): ToldChange[] => {
      const value = operation === "delete" ? "" : values.get(revision);
      return value === undefined ? [] : [{ key, revision, operation, createdAt, value }];
    });
  }
}

/** Buckets among these that are somewhere else than the reader, or gone. */
export async function movedAmong(
  reads: WatchReads,
  watched: readonly (Address & { at: number })[],
): Promise<string[]> {
  const wanted = reads.seams.rowsFrom("i", {
    ...columnsOf(watched, { text: "environmentId id", bigint: "at" }),
  });
  const rows = await reads.all<{ id: string }>(sql`SELECT i.id FROM ${wanted} LEFT JOIN kv_buckets b
      ON b.environment_id = i.environment_id AND b.id = i.id AND b.deleted_at IS NULL
    WHERE b.id IS NULL OR b.revision <> i.at`);
  return rows.map(({ id }) => id);
}
