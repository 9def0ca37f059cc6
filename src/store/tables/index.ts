import { tablesOfAccess } from "./access.ts";
import { tablesOfCluster } from "./cluster.ts";
import { tablesOfEngine } from "./engine.ts";
import { tablesOfEngineStarts, tablesOfTold } from "./engine-starts.ts";
import { tablesOfIntegrations } from "./integrations.ts";
import { tablesOfLog } from "./log.ts";
import { tablesOfRealtime } from "./realtime.ts";
import { tablesOfRecord } from "./record.ts";
import { tablesOfState } from "./state.ts";
import type { Tables } from "./table.ts";

const known = {
  ...tablesOfAccess,
  ...tablesOfCluster,
  ...tablesOfEngine,
  ...tablesOfEngineStarts,
  ...tablesOfTold,
  ...tablesOfIntegrations,
  ...tablesOfLog,
  ...tablesOfRealtime,
  ...tablesOfRecord,
  ...tablesOfState,
};

type KnownTables = typeof known;

/**
 * Every table, by name. A new database, `src/REFERENCE.md` and the purge are made from this; tests compare it
 * with what migrations make.
 */
export const tables: Tables = known;

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
