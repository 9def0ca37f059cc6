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
