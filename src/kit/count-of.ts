import { type Sql, sql } from "./sql.ts";

interface CountReader {
  one<Row extends object>(query: Sql): Promise<Row | undefined>;
}

/** How many rows there are; `rows` is `FROM` with what follows. No more than `most` are counted. */
export async function countOf(reader: CountReader, rows: Sql, most?: number): Promise<number> {
  const counted = most === undefined ? rows : sql`FROM (SELECT 1 ${rows} LIMIT ${most}) counted`;
  const row = await reader.one<{ count: number }>(sql`SELECT count(*) AS count ${counted}`);
  return Number(row?.count ?? 0);
}
