import type { Instant } from "../../../../kit/clock.ts";
import { sql } from "../../../../kit/sql.ts";
import type { FoldDefinition } from "../../../../store/environment-databases.ts";
import type { Session, Store } from "../../../../store/store.ts";
import { type ProjectionKey, type SessionReads, whereProjection } from "../rows.ts";
import { isStorable } from "../rules.ts";

/** What a projection of mode `sql` was made from. */
export interface SqlProjectionRow extends ProjectionKey {
  table_name: string;
  table_sql: string;
  /** JSON text: event name or pattern to statement, as they were sent. */
  event_handlers: string;
  description: string;
  /** JSON text of an `AdmittedProjection`. */
  admitted: string;
}

/** What the texts were admitted as. */
export interface AdmittedProjection extends FoldDefinition {
  /** Of each handler: the event name or pattern, and where its parameters come from. */
  sources: { event: string; paths: string[] }[];
}

const columns = sql.raw("environment_id, name, table_name, table_sql, event_handlers, description, admitted");

export const getSqlProjection = async (
  reads: Pick<SessionReads, "one">,
  key: ProjectionKey,
): Promise<SqlProjectionRow | undefined> =>
  isStorable(key.name)
    ? reads.one(sql`SELECT ${columns} FROM sql_projections WHERE ${whereProjection(key)}`)
    : undefined;

/** Those of an environment with these names. */
export const sqlProjectionsOf = (
  reads: Pick<SessionReads, "all">,
  environmentId: string,
  names: readonly string[],
): Promise<SqlProjectionRow[]> =>
  reads.all(sql`SELECT ${columns} FROM sql_projections WHERE environment_id = ${environmentId}
    AND name IN ${sql.list(names)}`);

/** Those whose tables these are. */
export const ownersOfTables = (
  reads: Pick<SessionReads, "all">,
  environmentId: string,
  tables: readonly string[],
): Promise<{ name: string }[]> =>
  reads.all(sql`SELECT name FROM sql_projections WHERE environment_id = ${environmentId}
    AND table_name IN ${sql.list(tables)}`);

/** The projection that has this table. */
export const ownerOfTable = (
  session: Session,
  { environment_id, table_name }: Pick<SqlProjectionRow, "environment_id" | "table_name">,
): Promise<{ name: string } | undefined> =>
  session.one(sql`SELECT name FROM sql_projections WHERE environment_id = ${environment_id}
    AND table_name = ${table_name}`);

export async function putSqlProjection(session: Session, row: SqlProjectionRow): Promise<void> {
  await session.run(sql`DELETE FROM sql_projections WHERE ${whereProjection(row)}`);
  await session.run(sql`INSERT INTO sql_projections (${columns}) VALUES (${row.environment_id}, ${row.name},
    ${row.table_name}, ${row.table_sql}, ${row.event_handlers}, ${row.description}, ${row.admitted})`);
}

/** A generation that this node may fold, and that is not at the end of its log. */
export interface DueFold extends ProjectionKey {
  generation: number;
}

/** Those that waited longest first. */
export const dueFolds = (
  reads: Pick<Store, "all">,
  { holder, now, limit }: { holder: string; now: Instant; limit: number },
): Promise<DueFold[]> =>
  reads.all(sql`SELECT p.environment_id, p.name, g.generation
    FROM projections p JOIN projection_generations g ON g.environment_id = p.environment_id AND g.name = p.name
      AND g.dropped_at IS NULL
    JOIN heads h ON h.environment_id = p.environment_id
    WHERE p.mode = 'sql' AND p.status IN ('running', 'rebuilding')
      AND (g.cursor_position < h.position OR g.target IS NOT NULL)
      AND (g.lease_until <= ${now} OR g.holder = ${holder})
    ORDER BY g.saved_at, p.environment_id, p.name LIMIT ${limit}`);

export const releaseFolds = (
  session: Session,
  { holder, now }: { holder: string; now: Instant },
): Promise<number> =>
  session.run(sql`UPDATE projection_generations SET lease_until = ${sql.bigint(now)}
    WHERE holder = ${holder} AND lease_until > ${now} AND dropped_at IS NULL`);
