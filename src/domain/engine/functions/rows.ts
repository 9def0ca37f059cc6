import type { Instant } from "../../../kit/clock.ts";
import { readAs } from "../../../kit/columns.ts";
import { countCap } from "../../../kit/limits.ts";
import { column, containsIgnoringCase, countOf, type Sql, sql } from "../../../kit/sql.ts";
import { storedJson } from "../../../kit/stored-json.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import type { FunctionDefinition, FunctionRecord, FunctionStatus } from "./definition.ts";
import { bytesOf, cronsOf, undoOnOf } from "./rules.ts";
import { laneLimitOf, pacedOf, throttleGapUs } from "./start-options.ts";

interface FunctionRow
  extends RowOf<"functions", "environment_id, id, slug, name, version, definition, created_at, updated_at"> {
  mode: FunctionDefinition["mode"];
  status: FunctionStatus;
}

const columns = sql.raw(
  "environment_id, id, slug, name, mode, status, version, definition, created_at, updated_at",
);

export const getFunction = (reader: StoreReader, environmentId: string, id: string) =>
  read.one(
    reader,
    sql`SELECT ${columns} FROM functions
    WHERE environment_id = ${environmentId} AND id = ${id}`,
  );

/** The same, locked for the rest of the transaction. */
export const holdFunction = (session: Session, environmentId: string, id: string) =>
  read.one(
    session,
    sql`SELECT ${columns} FROM functions
    WHERE environment_id = ${environmentId} AND id = ${id} ORDER BY id ${session.seams.holdRow}`,
  );

export const getBySlug = (reader: StoreReader, environmentId: string, slug: string) =>
  read.one(
    reader,
    sql`SELECT ${columns} FROM functions
    WHERE environment_id = ${environmentId} AND slug = ${slug}`,
  );

/** Of these slugs, the ones that are taken, each with its function. */
export async function ownersOf(
  reader: StoreReader,
  environmentId: string,
  slugs: readonly string[],
): Promise<Map<string, string>> {
  const rows = await reader.all<{ slug: string; id: string }>(sql`SELECT slug, id FROM functions
    WHERE environment_id = ${environmentId} AND slug IN ${sql.list(slugs)}`);
  return new Map(rows.map(({ slug, id }) => [slug, id]));
}

export interface FunctionFilter {
  environmentId: string;
  /** Substring of name or id, in either case. */
  name?: string;
  status?: FunctionStatus;
  mode?: "pull" | "push";
}

function conditions(filter: FunctionFilter): Sql[] {
  const list = [sql`environment_id = ${filter.environmentId}`];
  if (filter.name !== undefined)
    list.push(
      sql`(${containsIgnoringCase("name", filter.name)} OR ${containsIgnoringCase("id", filter.name)})`,
    );
  if (filter.status !== undefined) list.push(sql`status = ${filter.status}`);
  if (filter.mode !== undefined) list.push(sql`mode = ${filter.mode}`);
  return list;
}

/** Newest first by (created, id). */
export async function listFunctions(
  store: Store,
  filter: FunctionFilter,
  page: { after?: { at: Instant; id: string }; limit: number; offset: number },
): Promise<FunctionRecord[]> {
  const where = conditions(filter);
  if (page.after)
    where.push(
      sql`(created_at < ${page.after.at} OR (created_at = ${page.after.at} AND slug < ${page.after.id}))`,
    );
  const rows = await store.all<FunctionRow>(sql`SELECT ${columns} FROM functions ${sql.where(where)}
    ORDER BY created_at DESC, slug DESC LIMIT ${page.limit} OFFSET ${page.offset}`);
  return rows.map(toRecord);
}

export const countFunctions = (store: Store, filter: FunctionFilter): Promise<number> =>
  countOf(store, sql`FROM functions ${sql.where(conditions(filter))}`, countCap);

/** Fails as `unique` when the id or the slug is taken, also by who committed a moment ago. */
export async function insertFunction(session: Session, record: FunctionRecord): Promise<void> {
  const { definition } = record;
  await session.run(sql`INSERT INTO functions
      (environment_id, id, slug, name, status, mode, version, definition, lane_limit, paced, throttle_us, throttle_burst,
      undo_on, cron_count, definition_bytes, created_at, updated_at)
    VALUES (${record.environmentId}, ${definition.id}, ${definition.slug}, ${definition.name}, ${record.status},
      ${definition.mode}, ${record.version}, ${JSON.stringify(definition)},
      ${laneLimitOf(definition) ?? null}, ${pacedOf(definition)}, ${gapOf(definition)},
      ${definition.throttle?.burst ?? null}, ${undoOnOf(definition)}, ${cronsOf(definition)}, ${bytesOf(definition)},
      ${record.createdAt}, ${record.updatedAt})`);
}

/** Of a function that the session holds. */
export async function updateFunction(session: Session, record: FunctionRecord): Promise<void> {
  const { definition } = record;
  await session.run(sql`UPDATE functions SET slug = ${definition.slug}, name = ${definition.name},
      status = ${record.status}, mode = ${definition.mode}, version = ${record.version},
      definition = ${JSON.stringify(definition)}, lane_limit = ${laneLimitOf(definition) ?? null},
      paced = ${pacedOf(definition)}, throttle_us = ${gapOf(definition)},
      throttle_burst = ${definition.throttle?.burst ?? null}, undo_on = ${undoOnOf(definition)},
      cron_count = ${cronsOf(definition)}, definition_bytes = ${bytesOf(definition)},
      updated_at = ${record.updatedAt}
    WHERE environment_id = ${record.environmentId} AND id = ${definition.id}`);
}

const gapOf = ({ throttle }: FunctionDefinition): number | null =>
  throttle ? throttleGapUs(throttle) : null;

export interface Totals {
  functions: number;
  crons: number;
  bytes: number;
}

/** Of all functions of the environment, read from an index alone. */
export async function totalsOf(session: Session, environmentId: string): Promise<Totals> {
  const row = await session.one<Totals>(sql`SELECT count(*) AS functions,
      CAST(COALESCE(sum(cron_count), 0) AS BIGINT) AS crons, CAST(COALESCE(sum(definition_bytes), 0) AS BIGINT) AS bytes
    FROM functions WHERE environment_id = ${environmentId} AND definition_bytes >= 0`);
  return row ?? { functions: 0, crons: 0, bytes: 0 };
}

/**
 * Versions of a function that was deleted and registered again go on counting: a pinned run must never see
 * another's.
 */
export async function lastVersion(
  session: Session,
  environmentId: string,
  functionId: string,
): Promise<number> {
  const row = await session.one<{
    version: number | null;
  }>(sql`SELECT max(version) AS version FROM function_versions
    WHERE environment_id = ${environmentId} AND function_id = ${functionId}`);
  return row?.version ?? 0;
}

export async function putVersion(session: Session, record: FunctionRecord, actorId: string): Promise<void> {
  await session.run(sql`INSERT INTO function_versions
      (environment_id, function_id, version, definition, recorded_at, actor_id)
    VALUES (${record.environmentId}, ${record.definition.id}, ${record.version}, ${JSON.stringify(record.definition)},
      ${record.updatedAt}, ${actorId})`);
}

export async function deleteFunction(session: Session, environmentId: string, id: string): Promise<void> {
  await session.run(sql`DELETE FROM functions WHERE environment_id = ${environmentId} AND id = ${id}`);
}

/**
 * Tells every emit flush of the environment that its cached functions are old; false when there is no
 * environment.
 */
export async function raiseDefinitions(session: Session, environmentId: string): Promise<boolean> {
  const changed = await session.run(sql`UPDATE heads SET definitions_version = definitions_version + 1
    WHERE environment_id = ${environmentId}`);
  return changed === 1;
}

/** Undefined when the environment is gone. */
export async function definitionsVersion(
  reader: StoreReader,
  environmentId: string,
): Promise<number | undefined> {
  const head = await reader.one<{ definitions_version: number }>(
    sql`SELECT definitions_version FROM heads WHERE environment_id = ${environmentId}`,
  );
  return head?.definitions_version;
}

/**
 * All functions, whether there are quotas, and the version of the environment's definitions, in one snapshot;
 * undefined when the environment is gone.
 */
export async function readDefinitions(
  store: Store,
  environmentId: string,
): Promise<{ version: number; records: FunctionRecord[]; isMetered: boolean; chars: number } | undefined> {
  const rows = await store.all<
    Omit<FunctionRow, "id"> & { definitions_version: number; quotas: number; id: string | null }
  >(sql`SELECT
      h.definitions_version, (SELECT count(*) FROM quotas q WHERE q.environment_id = h.environment_id) AS quotas, f.id, f.slug, f.name, f.mode, f.environment_id, f.status, f.version, f.definition, f.created_at, f.updated_at
    FROM heads h LEFT JOIN functions f ON f.environment_id = h.environment_id
    WHERE h.environment_id = ${environmentId}`);
  const first = rows[0];
  if (!first) return undefined;
  const found = rows.filter((row): row is typeof row & FunctionRow => row.id !== null);
  return {
    version: first.definitions_version,
    records: found.map(toRecord),
    isMetered: first.quotas > 0,
    chars: found.reduce((sum, { definition }) => sum + definition.length, 0),
  };
}

export async function readVersion(
  store: Store,
  environmentId: string,
  functionId: string,
  version: number,
): Promise<{ definition: FunctionDefinition; chars: number } | undefined> {
  const row = await store.one<{ definition: string }>(sql`SELECT definition FROM function_versions
    WHERE environment_id = ${environmentId} AND function_id = ${functionId} AND version = ${version}`);
  return (
    row && {
      definition: JSON.parse(row.definition) as FunctionDefinition,
      chars: row.definition.length,
    }
  );
}

function toRecord(row: FunctionRow): FunctionRecord {
  const stored = storedJson<FunctionDefinition | null>(row.definition);
  const isRead = Array.isArray(stored?.triggers);
  return {
    environmentId: row.environment_id,
    definition: isRead ? stored! : unreadDefinition(row),
    status: row.status,
    version: row.version,
    createdAt: row.created_at,
    updatedAt: row.updated_at,
    ...(!isRead && { isUnread: true }),
  };
}

const read = readAs(toRecord);

const unreadDefinition = ({ id, slug, name, mode }: FunctionRow): FunctionDefinition => ({
  ...{ id, slug, name, mode, triggers: [], secrets: [], cancelOn: [], recording: false },
  description: "What is stored of it cannot be read, and nothing starts it: register it again.",
  retry: { maxAttempts: 1, initialDelayMs: 0, backoffFactor: 1, maxDelayMs: 0 },
});

/** Which of these ids no function of the environment has. */
export async function unknownFunctions(
  store: Store,
  environmentId: string,
  ids: readonly string[],
): Promise<string[]> {
  const rows = await store.all<{ id: string }>(sql`SELECT f.id
    FROM ${store.seams.rowsFrom("v", { id: column.text(ids) })}
    JOIN functions f ON f.environment_id = ${environmentId} AND f.id = v.id`);
  const known = new Set(rows.map((row) => row.id));
  return ids.filter((id) => !known.has(id));
}
