import { snakeCase, type Words } from "./cases.ts";
import { column, type Sql, type SqlArray } from "./sql.ts";

/** The fields of a row that hold such a value, or none. */
type Holding<Row, Value> = {
  [Name in keyof Row]-?: Row[Name] extends Value | null | undefined ? Name : never;
}[keyof Row];

/** `never` where a word is no such field. */
type FieldsNamed<Row, Value, Text extends string> = Text &
  (Words<Text> extends Holding<Row, Value> ? unknown : never);

/** The texts stand in the code, so there are few: each is read once. */
const fieldsRead = new Map<string, readonly (readonly [field: string, column: string])[]>();

function fieldsIn(text: string) {
  let fields = fieldsRead.get(text);
  if (!fields) {
    fields = text.split(" ").map((field) => [field, snakeCase(field)]);
    fieldsRead.set(text, fields);
  }
  return fields;
}

/**
 * Columns of a list for `rowsFrom`, by the names of its fields, apart by a space: `runId` makes `run_id`.
 * What is undefined is null.
 */
export function columnsOf<Row extends object, Text extends string = never, Big extends string = never>(
  list: readonly Row[],
  { text, bigint }: { text?: FieldsNamed<Row, string, Text>; bigint?: FieldsNamed<Row, number, Big> },
): Record<string, SqlArray> {
  const columns: Record<string, SqlArray> = {};
  const cells = <Cell>(field: string) =>
    list.map((row) => (row as Record<string, Cell | undefined>)[field] ?? null);
  if (text !== undefined)
    for (const [field, name] of fieldsIn(text)) columns[name] = column.text(cells<string>(field));
  if (bigint !== undefined)
    for (const [field, name] of fieldsIn(bigint)) columns[name] = column.bigint(cells<number>(field));
  return columns;
}

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
