import { eventNameBytesMax, functionIdBytesMax } from "../../kit/limits.ts";
import { stepIdBytesMax } from "../../kit/step-id.ts";
import type { StoreEngine } from "../store.ts";

/** What a table's rows belong to: each is in one environment, in one org, or the whole installation's. */
export type TableScope = "environment" | "org" | "installation";

/** An index as `CREATE INDEX` takes it, without the table: `by_name (name)`, `UNIQUE by_name (name)`. */
type TableIndex = string | Partial<Record<StoreEngine, string>>;

export interface Table {
  holds: string;
  /** `environment` when left out. */
  scope?: TableScope;
  /** What ends its rows, so that no table grows without an end. */
  endsWith: string;
  /** Columns and primary key, as `CREATE TABLE` takes them. New ones are last, where migrations add them. */
  columns: string;
  indexes?: readonly TableIndex[];
  /** On libSQL its rows lie in its primary key. */
  isClustered?: true;
  /** Storage parameters on PostgreSQL; the reasons stand in `store/ROOM.md`. */
  room?: string;
  /** Of a table with an `environment_id`: how the rows of a deleted environment go. */
  purge?: PurgePlace;
  /** The most bytes that each text in its indexes may have, besides `sharedTexts`. */
  texts?: Readonly<Record<string, number>>;
  /** What of it leaves by an export, or why nothing does. */
  exported: Exported | string;
}

/** Sections of an export, in the order in which they stand in the file. */
export const exportSections = [
  "environments",
  "functions",
  "events",
  "streams",
  "snapshots",
  "runs",
  "steps",
  "projections",
  "schemas",
  "kv",
  "config",
  "policies",
  "roles",
  "users",
  "audit",
  "webhooks",
] as const;
export type ExportSection = (typeof exportSections)[number];

/** See `ExportedTable`; names of columns stand apart by a space. */
export interface Exported {
  in: ExportSection | readonly ExportSection[];
  /** `environment` when left out. */
  of?: "org" | "runs";
  /** Order of the rows; the rest of the primary key when left out. */
  key?: string;
  ids?: string;
  leaves: string;
  /** What leaves, too, and is JSON. */
  json?: string;
  /** What does not, besides the column that says whose the row is. */
  stays?: string;
}

/** The columns of its primary key. */
export const keyOf = ({ columns }: Table): string[] =>
  (/PRIMARY KEY \(([^)]+)\)/.exec(columns)?.[1] ?? /(\w+) \w+ PRIMARY KEY/.exec(columns)![1]!).split(/,\s+/);

/** By name. */
export type Tables = Readonly<Record<string, Table>>;

export interface PurgePlace {
  /** Its place among all tables, low first: rows that loops still act on go before the others. */
  at: number;
  /**
   * Where no index begins with `environment_id`: the column with the run's id. Such rows go just before their
   * run.
   */
  ofRun?: string;
  /**
   * The table whose row its maker holds to the commit, where callers make its rows only for such a row. A row
   * made after the purge is found by its next pass.
   */
  under?: string;
}

const vacuumed = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000";
/** Of rows that change or go soon. */
export const changing = `fillfactor = 70, ${vacuumed}`;
/** Of few rows that change many times a second. */
export const restless = `fillfactor = 50, ${vacuumed}`;
/** Of many rows that stay for days. */
export const kept =
  "autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02";

/** Ids that we make, hashes, and words of closed lists: no outsider can make them longer. */
export const ours = 80;
/** Of a text whose bound is in characters. */
export const utf8 = (charsMax: number): number => 4 * charsMax;
/** An invoke logs an event named by its function. */
export const eventNameBytes = Math.max(eventNameBytesMax, functionIdBytesMax);
/** Settings of operators: names of nodes. */
export const nodeIdBytes = 255;
/** Callers as the audit names them: keys, users, or `dev`. */
export const callerIdBytes = 255;
export const laneIdBytes = 3 * ours;

/** The same of columns that have one meaning in every table. */
export const sharedTexts: Readonly<Record<string, number>> = {
  // Callers name it, but it is only stored where a row of ours has it.
  environment_id: ours,
  org_id: ours,
  project_id: ours,
  run_id: ours,
  event_id: ours,
  entity_id: 256,
  function_id: functionIdBytesMax,
  group_id: ours,
  step_id: stepIdBytesMax,
  event_name: eventNameBytes,
  lane_id: laneIdBytes,
  role_id: ours,
  policy_id: ours,
};
