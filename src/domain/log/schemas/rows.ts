import type { Instant } from "../../../kit/clock.ts";
import type { Cursor } from "../../../kit/page.ts";
import { countOf, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import type { SchemaMode } from "./rules.ts";

export interface SchemaRow
  extends RowOf<"event_schemas", "event_name, version, schema_json, description, created_at"> {
  /** SHA-256 of the text, in hex. */
  hash: string;
}

/** The same without its text. */
export type SchemaHead = Omit<SchemaRow, "schema_json">;

const headColumns = sql.raw("event_name, version, hash, description, created_at");
const columns = sql.raw("event_name, version, hash, schema_json, description, created_at");

/** One version, or the latest for 0. */
export const schemaAt = (
  reader: StoreReader,
  environmentId: string,
  eventName: string,
  version: number,
): Promise<SchemaRow | undefined> =>
  reader.one(sql`SELECT ${columns} FROM event_schemas
    WHERE environment_id = ${environmentId} AND event_name = ${eventName}
      ${version === 0 ? sql.empty : sql`AND version = ${version}`}
    ORDER BY version DESC LIMIT 1`);

/** All versions of these names, lowest first. */
export const schemasOfNames = (
  reader: StoreReader,
  environmentId: string,
  eventNames: readonly string[],
): Promise<SchemaRow[]> =>
  reader.all(sql`SELECT ${columns} FROM event_schemas
    WHERE environment_id = ${environmentId} AND event_name IN ${sql.list(eventNames)}
    ORDER BY event_name, version`);

const filtered = (environmentId: string, eventName: string | undefined): Sql =>
  sql.where([
    sql`environment_id = ${environmentId}`,
    ...(eventName === undefined ? [] : [sql`event_name = ${eventName}`]),
  ]);

/** By name and version. */
export const listSchemas = (
  reader: StoreReader,
  environmentId: string,
  { eventName, limit, offset }: { eventName: string | undefined; limit: number; offset: number },
): Promise<SchemaHead[]> =>
  reader.all(sql`SELECT ${headColumns} FROM event_schemas ${filtered(environmentId, eventName)}
    ORDER BY event_name, version LIMIT ${limit} OFFSET ${offset}`);

export const countSchemas = (
  reader: StoreReader,
  environmentId: string,
  eventName: string | undefined,
): Promise<number> => countOf(reader, sql`FROM event_schemas ${filtered(environmentId, eventName)}`);

/** 0 when the version is taken. */
export const insertSchema = (session: Session, environmentId: string, row: SchemaRow): Promise<number> =>
  session.run(sql`INSERT INTO event_schemas
      (environment_id, event_name, version, hash, schema_json, bytes, description, created_at)
    VALUES (${environmentId}, ${row.event_name}, ${row.version}, ${row.hash}, ${row.schema_json},
      ${Buffer.byteLength(row.schema_json)}, ${row.description}, ${row.created_at})
    ON CONFLICT (environment_id, event_name, version) DO NOTHING`);

export async function totalsOf(
  session: Session,
  environmentId: string,
): Promise<{ count: number; bytes: number }> {
  const row = await session.one<{ count: number; bytes: number }>(sql`SELECT count(*) AS count,
      CAST(COALESCE(sum(bytes), 0) AS BIGINT) AS bytes
    FROM event_schemas WHERE environment_id = ${environmentId}`);
  return row ?? { count: 0, bytes: 0 };
}

export const deleteSchema = (
  session: Session,
  environmentId: string,
  eventName: string,
  version: number,
): Promise<number> =>
  session.run(sql`DELETE FROM event_schemas WHERE environment_id = ${environmentId}
    AND event_name = ${eventName} AND version = ${version}`);

export async function modeOf(reader: StoreReader, environmentId: string): Promise<SchemaMode | undefined> {
  const row = await reader.one<{ schema_mode: SchemaMode | null }>(
    sql`SELECT schema_mode FROM environments WHERE id = ${environmentId}`,
  );
  return row && (row.schema_mode ?? "enforce");
}

export const setMode = (
  session: Session,
  environmentId: string,
  mode: SchemaMode,
  now: Instant,
): Promise<number> =>
  session.run(sql`UPDATE environments SET schema_mode = ${mode}, updated_at = ${now}
    WHERE id = ${environmentId}`);

/** The mode of an environment and which schemas it has, in one snapshot; no row when it is gone. */
export const registered = (
  reader: StoreReader,
  environmentId: string,
): Promise<
  {
    schema_mode: SchemaMode | null;
    event_name: string | null;
    version: number;
    hash: string;
    bytes: number;
  }[]
> =>
  reader.all(sql`SELECT e.schema_mode, s.event_name, s.version, s.hash, s.bytes
    FROM environments e LEFT JOIN event_schemas s ON s.environment_id = e.id WHERE e.id = ${environmentId}`);

export const textsOf = (
  reader: StoreReader,
  environmentId: string,
  hashes: readonly string[],
): Promise<{ hash: string; schema_json: string }[]> =>
  reader.all(sql`SELECT hash, schema_json FROM event_schemas
    WHERE environment_id = ${environmentId} AND hash IN ${sql.list(hashes)}`);

/** An event as it was accepted. */
export interface TrafficRow extends Cursor {
  version: number;
  data: string;
  schema_hash: string | null;
}

/** Events of a name since an instant, newest first. Those whose payload was overwritten say nothing. */
export const trafficOf = (
  reader: StoreReader,
  environmentId: string,
  { name, since, before, limit }: { name: string; since: Instant; before: Cursor | undefined; limit: number },
): Promise<TrafficRow[]> =>
  reader.all(sql`SELECT at, id, version, data, schema_hash FROM events
    ${sql.where([
      sql`environment_id = ${environmentId} AND name = ${name} AND at >= ${since} AND redacted_at IS NULL`,
      ...(before ? [sql`(at, id) < (${sql.bigint(before.at)}, ${before.id})`] : []),
    ])} ORDER BY at DESC, id DESC LIMIT ${limit}`);
