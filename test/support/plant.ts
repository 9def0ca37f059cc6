import { sql } from "../../src/kit/sql.ts";
import type { Session, Store } from "../../src/store/store.ts";

interface Column {
  name: string;
  type: string;
  needed: boolean | number;
}

export const columnsOf = (session: Session, table: string): Promise<Column[]> =>
  session.all(
    session.seams.engine === "postgres"
      ? sql`SELECT column_name AS name, data_type AS type, is_nullable = 'NO' AND column_default IS NULL AS needed
          FROM information_schema.columns WHERE table_name = ${table} AND table_schema = current_schema()`
      : sql`SELECT name, type, (pk > 0 OR "notnull" = 1) AND dflt_value IS NULL AS needed
          FROM pragma_table_info(${table})`,
  );

/**
 * So many rows at once, as a tenant piles them up: `values` are expressions over `n`, which counts from `first`. A column that
 * must have a value and is not named gets an empty one.
 */
export const plant = (
  store: Store,
  table: string,
  count: number,
  values: Record<string, string>,
  first = 1,
): Promise<number> =>
  store.write(async (session) => {
    const all = await columnsOf(session, table);
    const empty = Object.fromEntries(
      all.flatMap(({ name, type, needed }) =>
        needed ? [[name, /int/i.test(type) ? "0" : "''"] as const] : [],
      ),
    );
    const row = { ...empty, ...values };
    return session.run(sql`WITH RECURSIVE s(n) AS (SELECT ${sql.bigint(first)} UNION ALL
        SELECT n + 1 FROM s WHERE n < ${sql.bigint(first + count - 1)})
      INSERT INTO ${sql.raw(table)} (${sql.raw(Object.keys(row).join(", "))})
      SELECT ${sql.raw(Object.values(row).join(", "))} FROM s`);
  });
