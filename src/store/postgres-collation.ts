import { sql } from "../kit/sql.ts";
import type { Session } from "./store.ts";

interface OddColumn {
  table_name: string;
  column_name: string;
}

/**
 * Texts sort and fold by their bytes, whatever the locale of the database: as they do in libSQL and in our own code, and
 * with indexes that no upgrade of the operating system's sorting rules breaks. Changes the columns of up to `most` tables
 * that still have the database's rules, and answers their names. Rows stay, indexes are built anew.
 */
export async function sortByBytes(session: Session, most: number): Promise<string[]> {
  // `to_jsonb`, because servers before version 15 have no such column.
  const found = await session.all<OddColumn>(sql`SELECT c.relname AS table_name, a.attname AS column_name
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_collation l ON l.oid = a.attcollation
      JOIN pg_database d ON d.datname = current_database()
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
      AND l.collname <> 'C'
      AND NOT (l.collname = 'default' AND d.datcollate IN ('C', 'POSIX') AND d.datctype IN ('C', 'POSIX')
        AND COALESCE(to_jsonb(d) ->> 'datlocprovider', 'c') = 'c')
    ORDER BY c.relname, a.attnum`);
  const tables = [...new Set(found.map(({ table_name }) => table_name))].slice(0, most);
  const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`;
  const statements = tables.map((table) => {
    const changes = found
      .filter(({ table_name }) => table_name === table)
      .map(({ column_name }) => `ALTER COLUMN ${quoted(column_name)} TYPE text COLLATE "C"`);
    return `ALTER TABLE ${quoted(table)} ${changes.join(", ")}`;
  });
  if (statements.length > 0) await session.run(sql.raw(statements.join(";\n")));
  return tables;
}
