import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Seams, Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { noteGrown } from "../../engine/quotas/rows.ts";
import type { HeldBucket, KeyAddress, KeyState, ValueChange, ValueChanges, WrittenKey } from "./changes.ts";
import { type Bucket, type BucketRow, bucketColumns, newestOf, toBucket } from "./rows.ts";

interface KeyRow
  extends RowOf<"kv_keys", "environment_id, bucket_id, key, revision, bytes, created_at, expires_at"> {
  operation: "put" | "delete";
  /** Null also where it was not asked for. */
  value: string | null;
}

const unique = <T>(list: readonly T[], nameOf: (one: T) => string): T[] => [
  ...new Map(list.map((one) => [nameOf(one), one])).values(),
];

const addressesFrom = ({ rowsFrom }: Seams, addresses: readonly KeyAddress[], named = "i"): Sql =>
  rowsFrom(named, {
    ...columnsOf(addresses, { text: "environmentId bucketId key" }),
  });

/** Rows of `kv_keys`, one for each address. */
const eachKey = ({ rowOf }: Seams): Sql => rowOf("kv_keys", "e", sameKey);

const sameKey = sql.raw(
  "e.environment_id = i.environment_id AND e.bucket_id = i.bucket_id AND e.key = i.key",
);

/**
 * Locks the buckets of the changes until the transaction ends, so that revisions have no gaps; with the
 * newest of every key that the changes are about, as the lock found it.
 */
export async function holdBuckets(
  session: Session,
  changes: readonly ValueChange[],
): Promise<{ buckets: HeldBucket[]; states: KeyState[] }> {
  const [buckets, states] = await session.together([
    bucketsHeld(session.seams, changes),
    statesOf(session.seams, changes),
  ]);
  return {
    buckets: (buckets as unknown as BucketRow[]).map(toBucket),
    states: toStates(states as unknown as KeyRow[]),
  };
}

function bucketsHeld({ rowsFrom, holdRow }: Seams, changes: readonly ValueChange[]): Sql {
  const named = unique(changes, ({ environmentId, bucket }) => `${environmentId}\n${bucket}`);
  const wanted = rowsFrom("i", {
    environment_id: column.text(named.map(({ environmentId }) => environmentId)),
    name: column.text(named.map(({ bucket }) => bucket)),
  });
  return sql`SELECT ${bucketColumns} FROM kv_buckets
    WHERE (environment_id, name) IN (SELECT i.environment_id, i.name FROM ${wanted}) AND deleted_at IS NULL
    ORDER BY environment_id, id ${holdRow}`;
}

/** With the values of those keys alone that a change is made from. */
function statesOf(seams: Seams, changes: readonly ValueChange[]): Sql {
  const isRead = ({ put }: ValueChange) => put !== undefined && "from" in put;
  const nameOf = ({ environmentId, bucket, key }: ValueChange) => `${environmentId}\n${bucket}\n${key}`;
  const read = new Set(changes.filter(isRead).map(nameOf));
  const wanted = unique(changes, nameOf);
  const reads = column.bigint(wanted.map((change) => (read.has(nameOf(change)) ? 1 : 0)));
  return sql`SELECT e.environment_id, e.bucket_id, e.key, e.revision, e.operation, e.bytes, e.created_at,
      e.expires_at, CASE WHEN i.reads = 1 THEN e.value END AS value
    ${newestOf(seams, wanted, { more: { reads } })}`;
}

const toStates = (rows: readonly (KeyRow | { environment_id: null })[]): KeyState[] => {
  const found = rows.filter((row): row is KeyRow => row.environment_id !== null);
  return found.map((row) => ({
    environmentId: row.environment_id,
    bucketId: row.bucket_id,
    key: row.key,
    revision: row.revision,
    operation: row.operation,
    bytes: row.bytes,
    createdAt: row.created_at,
    expiresAt: row.expires_at,
    value: row.value,
  }));
};

const historyColumns = sql.raw(
  "environment_id, bucket_id, key, revision, bytes, created_at, expires_at, value",
);

/** Deletes what these keys have in the history, but for the newest `kept`, and notes the bytes. */
async function deleteHistory(session: Session, addresses: readonly KeyAddress[], kept = 0): Promise<void> {
  const { seams } = session;
  const gone = await session.all<{ environment_id: string; bytes: number }>(
    sql`${historyDeletion(seams, addresses, kept)} RETURNING environment_id, bytes`,
  );
  const freed = new Map<string, number>();
  for (const { environment_id: id, bytes } of gone) freed.set(id, (freed.get(id) ?? 0) - bytes);
  if (freed.size > 0) await session.run(noteGrown(seams, freed));
}

function historyDeletion(seams: Seams, addresses: readonly KeyAddress[], kept: number): Sql {
  const found = addressesFrom(seams, addresses);
  // Key by key, whatever the statistics say: of a young table they had each row compared with each key.
  if (seams.engine === "postgres")
    return sql`DELETE FROM kv_history WHERE ctid = ANY (ARRAY(
      SELECT o.ctid FROM ${found} CROSS JOIN LATERAL (
        SELECT e.ctid FROM kv_history e WHERE ${sameKey} ORDER BY e.revision DESC OFFSET ${kept}) o))`;
  return sql`DELETE FROM kv_history WHERE (environment_id, bucket_id, key, revision) IN (
    SELECT o.environment_id, o.bucket_id, o.key, o.revision FROM (
      SELECT e.environment_id, e.bucket_id, e.key, e.revision,
        row_number() OVER (PARTITION BY e.environment_id, e.bucket_id, e.key ORDER BY e.revision DESC) AS nth
      FROM ${found} JOIN kv_history e ON ${sameKey}) o WHERE o.nth > ${kept})`;
}

/** Writes what the changes decided. The session must hold their buckets. */
export async function writeChanges(session: Session, changes: ValueChanges): Promise<void> {
  const { written, passed, lengthened } = changes;
  const replaced = [...changes.replaced.values()];
  const dropped = [...changes.dropped.values()];
  if (dropped.length > 0) await deleteHistory(session, dropped);
  if (written.length === 0) return;
  const { seams } = session;
  const writes = [
    ...(replaced.length > 0 ? [keepReplaced(seams, replaced)] : []),
    ...(passed.length > 0 ? [keepPassed(seams, passed)] : []),
    moveBuckets(seams, [...changes.changed]),
    noteGrown(seams, changes.grown()),
    putKeys(seams, written),
  ];
  const statements = seams.engine === "postgres" ? [inOne(writes)] : writes;
  const final = lengthened.length === 0 ? statements.pop() : undefined;
  for (const statement of statements) await session.run(statement);
  if (final) await session.last(final);
  else await cutHistory(session, lengthened);
}

/** Of PostgreSQL: one round trip, where each sees what was there before all of them. */
function inOne(writes: readonly Sql[]): Sql {
  const before = writes.slice(0, -1).map((write, at) => sql`${sql.raw(`w${at}`)} AS (${write})`);
  return sql`WITH ${sql.join(before, ", ")} ${writes.at(-1)!}`;
}

const keepReplaced = (seams: Seams, replaced: readonly KeyAddress[]): Sql =>
  sql`INSERT INTO kv_history (${historyColumns})
    SELECT e.environment_id, e.bucket_id, e.key, e.revision, e.bytes, e.created_at, e.expires_at, e.value
    FROM ${addressesFrom(seams, replaced)} ${eachKey(seams)}`;

const keepPassed = (seams: Seams, passed: readonly WrittenKey[]): Sql =>
  sql`INSERT INTO kv_history (${historyColumns}) SELECT ${historyColumns} FROM ${keysOf(seams, passed)}`;

const keysOf = ({ rowsFrom }: Seams, keys: readonly WrittenKey[]): Sql =>
  rowsFrom("i", {
    ...columnsOf(keys, {
      text: "environmentId bucketId key operation value",
      bigint: "revision bytes createdAt expiresAt",
    }),
  });

const keyColumns = sql.raw(
  "environment_id, bucket_id, key, revision, operation, bytes, created_at, expires_at, value",
);

// `WHERE true` keeps SQLite from reading the conflict clause as a join condition.
const putKeys = (seams: Seams, keys: readonly WrittenKey[]): Sql =>
  sql`INSERT INTO kv_keys (${keyColumns})
    SELECT ${keyColumns} FROM ${keysOf(seams, keys)} WHERE true
    ON CONFLICT (environment_id, bucket_id, key) DO UPDATE SET revision = excluded.revision,
      operation = excluded.operation, bytes = excluded.bytes, created_at = excluded.created_at,
      expires_at = excluded.expires_at, value = excluded.value`;

async function cutHistory(session: Session, keys: readonly (KeyAddress & { kept: number })[]): Promise<void> {
  for (const [kept, addresses] of Map.groupBy(keys, (one) => one.kept))
    await deleteHistory(session, addresses, kept);
}

const moveBuckets = (seams: Seams, buckets: readonly HeldBucket[]): Sql =>
  sql`UPDATE kv_buckets SET revision = i.revision, value_count = i.value_count, bytes = i.bytes
    FROM ${seams.rowsFrom("i", {
      ...columnsOf(buckets, { text: "environmentId id", bigint: "revision valueCount bytes" }),
    })} WHERE kv_buckets.environment_id = i.environment_id AND kv_buckets.id = i.id`;

type BucketAddress = Pick<Bucket, "environmentId" | "id">;

/** The bucket with the row that expired first. */
export async function firstExpired(
  store: Pick<Store, "one">,
  now: Instant,
): Promise<BucketAddress | undefined> {
  const row = await store.one<{
    environment_id: string;
    bucket_id: string;
  }>(sql`SELECT environment_id, bucket_id
    FROM kv_keys WHERE expires_at <= ${now} ORDER BY expires_at LIMIT 1`);
  return row && { environmentId: row.environment_id, id: row.bucket_id };
}

interface DroppedKey {
  key: string;
  operation: "put" | "delete";
  revision: number;
  bytes: number;
}

/** Deletes these rows of a bucket, history included; what has a history always has a row in `kv_keys`. */
async function dropKeys(
  session: Session,
  { environmentId, id }: BucketAddress,
  which: Sql,
): Promise<DroppedKey[]> {
  const found = sql`WHERE environment_id = ${environmentId} AND bucket_id = ${id} ${which}`;
  const chosen = session.seams.chosen("kv_keys", ["environment_id", "bucket_id", "key"], found);
  const gone = await session.all<DroppedKey>(
    sql`DELETE FROM kv_keys WHERE ${chosen} RETURNING key, operation, revision, bytes`,
  );
  if (gone.length === 0) return gone;
  await session.run(
    noteGrown(session.seams, new Map([[environmentId, gone.reduce((sum, { bytes }) => sum - bytes, 0)]])),
  );
  await deleteHistory(
    session,
    gone.map(({ key }) => ({ environmentId, bucketId: id, key })),
  );
  return gone;
}

/** Deletes expired rows of a bucket, those that expired first; answers how many. */
export async function dropExpired(
  session: Session,
  bucket: BucketAddress,
  now: Instant,
  limit: number,
): Promise<number> {
  const { environmentId, id } = bucket;
  await session.one(sql`SELECT id FROM kv_buckets WHERE environment_id = ${environmentId} AND id = ${id}
    ${session.seams.holdRow}`);
  const which = sql`AND expires_at <= ${now} ORDER BY expires_at LIMIT ${limit}`;
  const gone = await dropKeys(session, bucket, which);
  const values = gone.filter(({ operation }) => operation === "put");
  const bytes = values.reduce((sum, value) => sum + value.bytes, 0);
  const forgotten = gone.reduce(
    (last, { operation, revision }) => (operation === "put" ? last : Math.max(last, revision)),
    0,
  );
  if (gone.length > 0)
    await session.run(sql`UPDATE kv_buckets SET value_count = value_count - ${sql.bigint(values.length)},
      bytes = bytes - ${sql.bigint(bytes)},
      forgotten_revision = CASE WHEN forgotten_revision < ${forgotten} THEN ${forgotten} ELSE forgotten_revision END
      WHERE environment_id = ${environmentId} AND id = ${id}`);
  return gone.length;
}

export async function firstDeleted(store: Pick<Store, "one">): Promise<BucketAddress | undefined> {
  const row = await store.one<{
    environment_id: string;
    id: string;
  }>(sql`SELECT environment_id, id FROM kv_buckets
    WHERE deleted_at IS NOT NULL ORDER BY deleted_at LIMIT 1`);
  return row && { environmentId: row.environment_id, id: row.id };
}

/** Deletes keys of a deleted bucket, and the bucket with the last of them; answers whether it is gone. */
export async function dropDeleted(session: Session, bucket: BucketAddress, limit: number): Promise<boolean> {
  const gone = await dropKeys(session, bucket, sql`ORDER BY key LIMIT ${limit}`);
  if (gone.length === limit) return false;
  await session.run(sql`DELETE FROM kv_buckets WHERE environment_id = ${bucket.environmentId}
    AND id = ${bucket.id} AND deleted_at IS NOT NULL`);
  return true;
}
