import {
  type BoundedCount,
  type BoundedList,
  type BoundedPage,
  countLooked,
  firstLooksMax,
  looksMax,
  lookThrough,
} from "../../../kit/bounded-look.ts";
import type { Instant } from "../../../kit/clock.ts";
import {
  type DueRows,
  environmentsDue,
  type Slice,
  sliceOf,
  type WorkScope,
} from "../../../kit/round-robin.ts";
import { containsIgnoringCase, looksWithin, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import { type Direction, snapshotsKeptMax } from "./rules.ts";

/** An entity's stream. */
export type StreamRow = RowOf<
  "streams",
  "entity_id, entity_type, version, created_at, updated_at, deleted_at"
>;

/** An event as its stream has it. `data` and `metadata` are JSON text. */
export interface StreamEventRow
  extends RowOf<
    "events",
    `id, position, name, version, data, metadata, source, at, idempotency_key, run_id, redacted_at,
  schema_hash`
  > {
  entity_id: string;
  entity_type: string;
  entity_version: number;
}

export interface SnapshotRow {
  id: string;
  entity_id: string;
  entity_version: number;
  /** JSON text. */
  state: string;
  created_at: Instant;
}

const streamColumns = sql.raw("entity_id, entity_type, version, created_at, updated_at, deleted_at");
const eventColumns =
  sql.raw(`id, position, name, version, data, metadata, source, at, idempotency_key, entity_id,
  entity_type, entity_version, run_id, redacted_at, schema_hash`);

const ofStream = (environmentId: string, entityId: string): Sql =>
  sql`environment_id = ${environmentId} AND entity_id = ${entityId}`;

type Reader = Pick<Store, "all" | "one">;

/** Also a deleted one. */
export const getStream = (
  reader: Reader,
  environmentId: string,
  entityId: string,
): Promise<StreamRow | undefined> =>
  reader.one(sql`SELECT ${streamColumns} FROM streams WHERE ${ofStream(environmentId, entityId)}`);

export const lockStream = (
  session: Session,
  environmentId: string,
  entityId: string,
): Promise<StreamRow | undefined> =>
  session.one(sql`SELECT ${streamColumns} FROM streams WHERE ${ofStream(environmentId, entityId)}
    ORDER BY entity_id ${session.seams.holdRow}`);

export interface StreamFilter {
  environmentId: string;
  entityType?: string;
  /** Substring of the id. */
  search?: string;
  includeDeleted: boolean;
}

/** By the index of ids, or of a type's ids. A text is asked of each id that is looked at. */
function listOf(
  { environmentId, entityType, search, includeDeleted }: StreamFilter,
  after?: string,
): BoundedList {
  return {
    columns: streamColumns,
    from: sql.raw("streams"),
    served: [
      sql`environment_id = ${environmentId}`,
      ...(entityType === undefined ? [] : [sql`entity_type = ${entityType}`]),
      ...(after === undefined ? [] : [sql`entity_id > ${after}`]),
    ],
    asked: [
      ...(search === undefined ? [] : [containsIgnoringCase("entity_id", search)]),
      ...(includeDeleted ? [] : [sql`deleted_at IS NULL`]),
    ],
    order: sql.raw("entity_id"),
  };
}

/** By id, after `after`. */
export const listStreams = (
  reader: Reader,
  filter: StreamFilter,
  { after, ...page }: { after: string | undefined; limit: number; offset: number },
): Promise<BoundedPage<StreamRow>> =>
  lookThrough<StreamRow>(reader, listOf(filter, after), {
    ...page,
    looks: looksWithin(after === undefined ? firstLooksMax : looksMax, filter.search),
  });

export const countStreams = (reader: Reader, filter: StreamFilter): Promise<BoundedCount> =>
  countLooked(reader, listOf(filter), firstLooksMax);

export interface EventRange {
  environmentId: string;
  entityId: string;
  direction: Direction;
  /** The first version to read, and the last one. */
  from: number;
  to?: number | undefined;
  since?: Instant | undefined;
  until?: Instant | undefined;
}

/** Events of a stream by version. */
export function eventsOf(
  reader: Reader,
  { environmentId, entityId, direction, from, to, since, until }: EventRange,
  limit: number,
): Promise<StreamEventRow[]> {
  const where = [ofStream(environmentId, entityId)];
  const [low, high] = direction === "forward" ? [from, to] : [to, from];
  if (low !== undefined) where.push(sql`entity_version >= ${low}`);
  if (high !== undefined) where.push(sql`entity_version <= ${high}`);
  if (since !== undefined) where.push(sql`at >= ${since}`);
  if (until !== undefined) where.push(sql`at <= ${until}`);
  return reader.all(sql`SELECT ${eventColumns} FROM events ${sql.where(where)}
    ORDER BY entity_version ${sql.raw(direction === "forward" ? "" : "DESC")} LIMIT ${limit}`);
}

/** Replaces a snapshot of the same version, and deletes all but the newest. */
export async function putSnapshot(
  session: Session,
  environmentId: string,
  { id, entity_id, entity_version, state, created_at }: SnapshotRow,
): Promise<void> {
  await session.run(sql`INSERT INTO snapshots (environment_id, entity_id, entity_version, id, state, created_at)
    VALUES (${environmentId}, ${entity_id}, ${entity_version}, ${id}, ${state}, ${created_at})
    ON CONFLICT (environment_id, entity_id, entity_version) DO UPDATE SET id = excluded.id, state = excluded.state,
      created_at = excluded.created_at`);
  await session.run(sql`DELETE FROM snapshots WHERE ${ofStream(environmentId, entity_id)} AND entity_version < (
    SELECT min(entity_version) FROM (SELECT entity_version FROM snapshots WHERE ${ofStream(environmentId, entity_id)}
      ORDER BY entity_version DESC LIMIT ${snapshotsKeptMax}) newest)`);
}

/** The newest snapshot at or before a version. */
export const latestSnapshot = (
  reader: Reader,
  environmentId: string,
  entityId: string,
  atMost: number,
): Promise<SnapshotRow | undefined> =>
  reader.one(sql`SELECT id, entity_id, entity_version, state, created_at FROM snapshots
    WHERE ${ofStream(environmentId, entityId)} AND entity_version <= ${atMost}
    ORDER BY entity_version DESC LIMIT 1`);

/** Snapshots from a version on may hold what an event of that version brought. */
export const deleteSnapshots = (
  session: Session,
  environmentId: string,
  entityId: string,
  from: number,
): Promise<number> =>
  session.run(
    sql`DELETE FROM snapshots WHERE ${ofStream(environmentId, entityId)} AND entity_version >= ${from}`,
  );

export const markDeleted = (
  session: Session,
  environmentId: string,
  entityId: string,
  { now, purgeFrom }: { now: Instant; purgeFrom: number | null },
): Promise<number> =>
  session.run(sql`UPDATE streams SET deleted_at = COALESCE(deleted_at, CAST(${now} AS BIGINT)),
      purge_from = COALESCE(purge_from, CAST(${purgeFrom} AS BIGINT))
    WHERE ${ofStream(environmentId, entityId)}`);

/** Overwrites the payload of one event of a stream; undefined when the stream has no such event. */
export async function redactEvent(
  session: Session,
  environmentId: string,
  { entityId, eventId, now }: { entityId: string; eventId: string; now: Instant },
  forget: (which: Sql, left: number) => Promise<void>,
): Promise<{ entity_version: number; redacted_at: Instant } | undefined> {
  const which = sql`id = ${eventId} AND ${ofStream(environmentId, entityId)}`;
  await forget(which, overwrittenBytes);
  return session.one(sql`UPDATE events SET data = 'null', metadata = NULL, redacted_at = COALESCE(redacted_at, CAST(${now} AS BIGINT))
    WHERE ${which} RETURNING entity_version, redacted_at`);
}

/** A payload that is overwritten is `null`. */
const overwrittenBytes = 4;

export interface PurgedStream {
  environment_id: string;
  entity_id: string;
}

const purgeable = (now: Instant): DueRows => ({
  table: "streams",
  columns: sql.raw("d.environment_id, d.entity_id"),
  where: sql`d.purge_from IS NOT NULL`,
  dueAt: "deleted_at",
  until: now,
});

type TurnReader = Pick<Store, "all" | "seams">;

/** Deleted streams with payloads left. */
export const streamsToPurge = (
  reader: TurnReader,
  now: Instant,
  slice: Slice,
): Promise<(PurgedStream & { turn: number })[]> => reader.all(sliceOf(reader.seams, purgeable(now), slice));

export const environmentsToPurge = (reader: TurnReader, now: Instant): Promise<WorkScope[]> =>
  reader.all(environmentsDue(purgeable(now)));

/**
 * Overwrites the next payloads of a deleted stream, and notes how far that is. Answers whether some may be
 * left. A purge beside another one waits for its slice, and goes on behind it.
 */
export async function purgePayloads(
  session: Session,
  { environment_id: environmentId, entity_id: entityId }: PurgedStream,
  { now, limit }: { now: Instant; limit: number },
  forget: (which: Sql, left: number) => Promise<void>,
): Promise<boolean> {
  const stream = ofStream(environmentId, entityId);
  const place = await session.one<{ version: number; purge_from: number | null }>(
    sql`SELECT version, purge_from FROM streams WHERE ${stream} ORDER BY entity_id ${session.seams.holdRow}`,
  );
  if (!place || place.purge_from === null) return false;
  const { version, purge_from: from } = place;
  const next = from + limit > version ? null : from + limit;
  await session.run(sql`UPDATE streams SET purge_from = CAST(${next} AS BIGINT) WHERE ${stream}`);
  const which = sql`${stream} AND entity_version >= ${from} AND entity_version < ${from + limit}`;
  await forget(which, overwrittenBytes);
  await session.run(sql`UPDATE events SET data = 'null', metadata = NULL, redacted_at = COALESCE(redacted_at, CAST(${now} AS BIGINT))
    WHERE ${which}`);
  return next !== null;
}

/** Streams that a run appended to or read, by id. */
export const streamsOfRun = (
  reader: Reader,
  environmentId: string,
  runId: string,
  limit: number,
): Promise<{ entity_id: string }[]> =>
  reader.all(sql`SELECT entity_id FROM run_streams WHERE run_id = ${runId} AND environment_id = ${environmentId}
    ORDER BY entity_id LIMIT ${limit}`);

/** Links a stream with a live run of the environment that reads it. */
export const linkRead = (
  session: Session,
  { environmentId, entityId, runId }: { environmentId: string; entityId: string; runId: string },
): Promise<number> =>
  session.run(sql`INSERT INTO run_streams (run_id, entity_id, environment_id)
    SELECT e.run_id, ${entityId}, e.environment_id FROM executions e
    WHERE e.run_id = ${runId} AND e.environment_id = ${environmentId}
    ON CONFLICT (run_id, entity_id) DO NOTHING`);
