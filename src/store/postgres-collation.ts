import { sql } from "../kit/sql.ts";
import type { Session } from "./store.ts";

interface OddColumn {
  table_name: string;
  column_name: string;
}

/**
 * Changes the columns of the first table that still sorts and folds by the locale, and answers its name:
 * 0.40.0 made such tables, and may have been stopped while changing them. Rows stay, indexes are rebuilt.
 */
export async function sortByBytes(session: Session): Promise<string | undefined> {
  // `to_jsonb`, because servers before version 15 have no such column.
  const found = await session.all<OddColumn>(sql`SELECT c.relname AS table_name, a.attname AS column_name
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_collation l ON l.oid = a.attcollation
      JOIN pg_database d ON d.datname = current_database()
    WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
      AND l.collname <> 'C'
      AND NOT (l.collname = 'default' AND d.datcollate IN ('C', 'POSIX') AND d.datctype IN ('C', 'POSIX')
        AND COALESCE(to_jsonb(d) ->> 'datlocprovider', 'c') = 'c')
    ORDER BY c.relname, a.attnum`);
  const table = found[0]?.table_name;
  if (table === undefined) return undefined;
  const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`;
  const changes = found
    .filter(({ table_name }) => table_name === table)
    .map(({ column_name }) => `ALTER COLUMN ${quoted(column_name)} TYPE text COLLATE "C"`);
  await session.run(sql.raw(`ALTER TABLE ${quoted(table)} ${changes.join(", ")}`));
  return table;
}
