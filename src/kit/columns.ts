import { snakeCase } from "./cases.ts";
import { column, type SqlArray } from "./sql.ts";
import type { Words } from "./words.ts";

/** The fields of a row that hold such a value, or none. */
type Holding<Row, Value> = {
  [Name in keyof Row]-?: Row[Name] extends Value | null | undefined ? Name : never;
}[keyof Row];

/** `never` where a word is no such field. */
type FieldsNamed<Row, Value, Text extends string> = Text &
  (Words<Text> extends Holding<Row, Value> ? unknown : never);

type ColumnCell = string | number | null | undefined;

const cellsOf = (row: object) => row as Record<string, ColumnCell>;

/**
 * Columns of a list for `rowsFrom`, by the names of its fields, apart by a space: `runId` makes `run_id`.
 * What is undefined is null.
 */
export function columnsOf<Row extends object, Text extends string = never, Big extends string = never>(
  list: readonly Row[],
  names: { text?: FieldsNamed<Row, string, Text>; bigint?: FieldsNamed<Row, number, Big> },
): Record<string, SqlArray> {
  const columns: Record<string, SqlArray> = {};
  const cells = (name: string) => list.map((row) => cellsOf(row)[name] ?? null);
  for (const name of names.text?.split(" ") ?? [])
    columns[snakeCase(name)] = column.text(cells(name) as (string | null)[]);
  for (const name of names.bigint?.split(" ") ?? [])
    columns[snakeCase(name)] = column.bigint(cells(name) as (number | null)[]);
  return columns;
}
