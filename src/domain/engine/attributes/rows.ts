import type { Instant } from "../../../kit/clock.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session, Store, StoreReader } from "../../../store/store.ts";
import { attributeRunsCountedMax } from "./limits.ts";
import type { AttributeType } from "./rules.ts";

export interface AttributeNameRow {
  name: string;
  type: AttributeType;
  created_at: Instant;
  /** Its values go. */
  deleted_at: Instant | null;
}

const fields = sql.raw("name, type, created_at, deleted_at");

export const listNames = (reader: StoreReader, environmentId: string): Promise<AttributeNameRow[]> =>
  reader.all(sql`SELECT ${fields} FROM run_attribute_names WHERE environment_id = ${environmentId}
    ORDER BY name`);

export const holdName = (
  session: Session,
  environmentId: string,
  name: string,
): Promise<AttributeNameRow | undefined> =>
  session.one(sql`SELECT ${fields} FROM run_attribute_names
    WHERE environment_id = ${environmentId} AND name = ${name} ${session.seams.holdRow}`);

/** Runs that have each of the names: at most one more than are counted. */
export async function runsOf(
  store: Store,
  environmentId: string,
  names: readonly string[],
): Promise<Map<string, number>> {
  const rows = await store.all<{ name: string; runs: number }>(sql`SELECT v.name, (
      SELECT count(*) FROM (SELECT 1 FROM run_attributes a WHERE a.environment_id = ${environmentId}
        AND a.name = v.name LIMIT ${attributeRunsCountedMax + 1}) counted) AS runs
    FROM ${store.seams.rowsFrom("v", { name: column.text(names) })}`);
  return new Map(rows.map(({ name, runs }) => [name, Number(runs)]));
}

export const markDeleted = (
  session: Session,
  environmentId: string,
  { name, at }: { name: string; at: Instant },
): Promise<number> =>
  session.run(sql`UPDATE run_attribute_names SET deleted_at = ${sql.bigint(at)}
    WHERE environment_id = ${environmentId} AND name = ${name}`);

export interface LeavingName {
  environment_id: string;
  name: string;
}

/** One deleted name of each environment. */
export const leavingNames = (
  store: Store,
  { before, limit }: { before: Instant; limit: number },
): Promise<LeavingName[]> =>
  store.all(sql`SELECT environment_id, MIN(name) AS name FROM run_attribute_names
    WHERE deleted_at IS NOT NULL AND deleted_at <= ${sql.bigint(before)}
    GROUP BY environment_id ORDER BY environment_id LIMIT ${limit}`);

/** Answers how many values it found. */
export async function deleteValues(
  session: Session,
  { environment_id, name }: LeavingName,
  limit: number,
): Promise<number> {
  const found = await session.all<{ run_id: string }>(sql`SELECT run_id FROM run_attributes
    WHERE environment_id = ${environment_id} AND name = ${name}
    ORDER BY value, created_at, run_id LIMIT ${limit} ${session.seams.skipLocked}`);
  if (found.length > 0)
    await session.run(sql`DELETE FROM run_attributes
      WHERE run_id ${session.seams.among(column.text(found.map(({ run_id }) => run_id)))} AND name = ${name}`);
  return found.length;
}

/** Unless a value is left. */
export const deleteName = (session: Session, { environment_id, name }: LeavingName): Promise<number> =>
  session.run(sql`DELETE FROM run_attribute_names
    WHERE environment_id = ${environment_id} AND name = ${name} AND deleted_at IS NOT NULL
      AND (SELECT 1 FROM run_attributes a WHERE a.environment_id = ${environment_id} AND a.name = ${name}
        LIMIT 1) IS NULL`);
