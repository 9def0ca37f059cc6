import type { KnownTables } from "./index.ts";

type Trimmed<Text extends string> = Text extends ` ${infer Rest}` | `\n${infer Rest}` ? Trimmed<Rest> : Text;

/** What stands between the commas of a text. */
type ListParts<Text extends string, Found extends string = never> = Text extends `${infer One},${infer Rest}`
  ? ListParts<Rest, Found | Trimmed<One>>
  : Found | Trimmed<Text>;

/** `id` of `id TEXT NOT NULL`; none of what is a part of `PRIMARY KEY (a, b)`. */
type NameOf<Column extends string> = Column extends `PRIMARY KEY${string}`
  ? never
  : Column extends `${infer Name} ${string}`
    ? Name
    : never;

type ColumnValue<Column extends string> =
  | (Column extends `${string} BIGINT${string}` ? number : string)
  | (Column extends `${string} NOT NULL${string}` | `${string} PRIMARY KEY${string}` ? never : null);

type Columns<Text extends string> = { [Column in ListParts<Text> as NameOf<Column>]: ColumnValue<Column> };
type Rows = { [Name in keyof KnownTables]: Columns<KnownTables[Name]["columns"]> };

/**
 * A row of a table: all its columns, or those of a list as `SELECT` takes it. Their types follow from what
 * the table is made by; a column that it has not is `never`.
 */
export type RowOf<Name extends keyof Rows, List extends string = keyof Rows[Name] & string> = {
  [Column in ListParts<List>]: Column extends keyof Rows[Name] ? Rows[Name][Column] : never;
};
