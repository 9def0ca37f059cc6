import type { Sql } from "./sql.ts";

interface RowReader {
  one<Row extends object>(query: Sql): Promise<Row | undefined>;
  all<Row extends object>(query: Sql): Promise<Row[]>;
}

/** Reads rows of the store as records, by what makes a record of one row. */
export const readAs = <Row extends object, Read>(to: (row: Row) => Read) => ({
  async one(reader: Pick<RowReader, "one">, query: Sql): Promise<Read | undefined> {
    const row = await reader.one<Row>(query);
    return row && to(row);
  },
  all: async (reader: Pick<RowReader, "all">, query: Sql): Promise<Read[]> =>
    (await reader.all<Row>(query)).map((row) => to(row)),
});
