import { column, type Sql, sql } from "../../kit/sql.ts";
import type { Seams } from "../../store/store.ts";

/**
 * Rows by their key and no other way, whatever the statistics say (src/README.md, 'Plans go by the primary key'): `on` is
 * what a list of rows is joined with, `among` the condition that finds them. SQLite needs no persuasion.
 */
export const keyed = (seams: Seams, key: string, ids: readonly string[]): { on: Sql; among: Sql } =>
  seams.engine === "postgres"
    ? {
        on: sql.raw(`(${key} || '')`),
        among: sql`AND ${sql.raw(key)} = ANY (${column.text([...new Set(ids)])}::text[])`,
      }
    : { on: sql.raw(key), among: sql.empty };
