import type { Clock } from "../kit/clock.ts";
import type { Ids } from "../kit/ids.ts";
import type { Log } from "../kit/log.ts";
import type { Metrics } from "../kit/metrics.ts";
import type { FirstOfEach } from "../kit/round-robin.ts";
import { type Sql, type SqlArray, sql } from "../kit/sql.ts";
import type { Watch } from "../kit/watch.ts";

/** A row as the engine returns it: text, numbers (64-bit integers below 2^53 come as numbers), null. */
export type Row = Record<string, unknown>;

export type StoreEngine = "postgres" | "libsql";

/** What the engines say differently. A seam stays only as long as a conformance test fails without it. */
export interface Seams {
  readonly engine: StoreEngine;
  /** `FOR UPDATE SKIP LOCKED` on Postgres; nothing on libSQL, whose one writer sees no locks. */
  readonly skipLocked: Sql;
  /** `FOR UPDATE` on Postgres; nothing on libSQL. */
  readonly holdRow: Sql;
  /**
   * `FOR SHARE` on Postgres: the row stays as it is until the transaction ends, others may read it so too;
   * nothing on libSQL.
   */
  readonly shareRow: Sql;
  /**
   * Rows from columns of equal length, as a table expression with the given column names plus `ord` (from 1):
   * `FROM ${seams.rowsFrom("item", { id: column.text(ids) })}`. `unnest … WITH ORDINALITY` / `json_each`.
   */
  rowsFrom(alias: string, columns: Record<string, SqlArray>): Sql;
  /**
   * `WHERE id ${seams.among(column.text(ids))}`: rows are looked up by the key, whatever the statistics say.
   * `= ANY (ARRAY(…))` / `IN (…)`.
   */
  among(values: SqlArray): Sql;
  /**
   * `… JOIN executions e ON e.run_id = v.run_id ${seams.byKey("e.run_id", ids)}`: repeats what the join says,
   * so that PostgreSQL finds the rows by key however small it believes their table. `AND … = ANY (ARRAY(…))`
   * / nothing on libSQL, which joins by the key.
   */
  byKey(name: string, values: SqlArray): Sql;
  /**
   * For each row of `places` (`rowsFrom`) the first rows of a table that belong to it, with the number of the
   * place as `turn`: `CROSS JOIN LATERAL … LIMIT` / `rowid IN (… LIMIT)`. Of no place more rows are read than
   * the largest quota.
   */
  firstOfEach(of: FirstOfEach): Sql;
  /**
   * `… ${seams.rowOf("kv_keys", "e", on)}`: adds to each row the one row of the table that `on` names, looked
   * up row by row whatever the statistics say. `JOIN LATERAL (… LIMIT 1)` / `JOIN`. `left` keeps the others.
   */
  rowOf(table: string, alias: string, on: Sql, left?: "left"): Sql;
  /**
   * `DELETE FROM runs WHERE ${seams.chosen("runs", ["id"], which)}`: reads just the rows that `which` names,
   * whatever the statistics say. `ctid = ANY (ARRAY(…))` / `(key) IN (…)`.
   */
  chosen(table: string, key: readonly string[], which: Sql): Sql;
  /** `json_object_agg` / `json_group_object`: of names and texts. */
  readonly objectOf: Sql;
  /**
   * `FROM ${places} ${seams.firstOfPlace({ … })}`: adds to each place its first rows, however many there are
   * behind them. `CROSS JOIN LATERAL (… LIMIT)` / `CROSS JOIN … ON rowid IN (… LIMIT)`.
   */
  firstOfPlace(of: FirstOfPlace): Sql;
  /**
   * `WITH RECURSIVE ${seams.firstOfKeys({ … })} SELECT … FROM found`: the first row of each key. The index is
   * walked in jumps from one key to the next: however many rows have a key, it costs one. A comparison of
   * rows / one comparison behind equalities, for each column of the key, by which SQLite finds a place.
   */
  firstOfKeys(of: FirstOfKeys): Sql;
}

export interface FirstOfPlace {
  table: string;
  alias: string;
  /** Each prefixed with the alias, as in the following ones. */
  columns: Sql;
  where: Sql;
  order: Sql;
  limit: number;
}

/** Of a table, whose alias is `d`. */
export interface FirstOfKeys {
  table: string;
  /** Those of the key among them. */
  columns: readonly string[];
  key: readonly string[];
  /** What orders the rows of one key. */
  order?: readonly string[];
  where?: Sql;
  /** Only keys behind this one. */
  after?: readonly (string | number)[] | undefined;
}

/** Reads and writes in one transaction. Await nothing else in between: on libSQL the writer waits for you. */
export interface Session {
  readonly seams: Seams;
  all<R extends object = Row>(query: Sql): Promise<R[]>;
  one<R extends object = Row>(query: Sql): Promise<R | undefined>;
  /** Rows changed. */
  run(query: Sql): Promise<number>;
  /** Writes in one round trip, in their order: the rows that each changed. */
  runAll(queries: readonly Sql[]): Promise<number[]>;
  /** Reads in one round trip, one after the other: each sees what the locks of those before it waited for. */
  together(reads: readonly Sql[]): Promise<Row[][]>;
  /** The last statement of the transaction: it travels with the commit, so its count stays unknown. */
  last(query: Sql): Promise<void>;
}

/** The same on libSQL without promises, for the second text of a flush. */
export interface SyncSession {
  readonly seams: Seams;
  all<R extends object = Row>(query: Sql): R[];
  one<R extends object = Row>(query: Sql): R | undefined;
  run(query: Sql): number;
}

/**
 * A hot write that is one round trip: one statement on Postgres (data-modifying CTEs), a run of statements in
 * the one writer on libSQL. The two texts stand side by side in `rows.ts` and answer the same rows.
 */
export interface Flush<I, R extends object> {
  readonly name: string;
  postgres(input: I, seams: Seams): Sql;
  libsql(session: SyncSession, input: I): R[];
}

export const afterLast = "a session was used after its last statement";

/** What reads: a store its committed rows, a session also what its transaction wrote. */
export type StoreReader = Pick<Session, "all" | "one">;

export interface Store {
  readonly engine: StoreEngine;
  /** Whether other nodes may use it, too: a file is one node's. */
  readonly isShared: boolean;
  readonly seams: Seams;
  /** Committed rows. */
  all<R extends object = Row>(query: Sql): Promise<R[]>;
  one<R extends object = Row>(query: Sql): Promise<R | undefined>;
  /**
   * The only way to change anything besides `flush`. Resolves after the commit is durable; serialization
   * failures and deadlocks are retried, bounded.
   */
  write<T>(work: (session: Session) => Promise<T>): Promise<T>;
  /** Runs a flush; resolves after its commit is durable. Retried like `write`. */
  flush<I, R extends object>(flush: Flush<I, R>, input: I): Promise<R[]>;
  /** Flushes that have begun here: how much callers and runs write. */
  readonly flushCount: () => number;
  /** Rejects when nothing can be written; with NotWritable where the reason is known. */
  ping(): Promise<void>;
  /** The database's own clock, in milliseconds; libSQL answers this process's. */
  now(): Promise<number>;
  close(): Promise<void>;
}

/** `Store.write` for a duty's tick: it writes only while the node's epoch is the last; else it throws. */
export type LeaderWrite = Store["write"];

/**
 * What a driver's error means to the code above it. `cause` keeps the driver's own error for the log.
 * `refused`: the engine does not take a value of this statement (too long for an index, out of its type's
 * range, against a check): the same again fails again, and what shared the statement is not to blame.
 * `other`: no value explains it (a table or a right that is missing, an index that is damaged, a statement
 * that took too long), so that it is the database's own state until somebody mends it.
 */
export type StoreTrouble =
  | "other"
  | "unique"
  | "refused"
  | "lock_timeout"
  | "conflict"
  | "unavailable"
  | "full"
  | "marked";

export class StoreError extends Error {
  readonly trouble: StoreTrouble;
  /** The constraint or, for `marked`, the mark that a statement raised on purpose (see `raiseMark`). */
  readonly detail: string;

  constructor(trouble: StoreTrouble, detail: string, cause?: unknown) {
    super(`${trouble}: ${detail}`, { cause });
    this.name = "StoreError";
    this.trouble = trouble;
    this.detail = detail;
  }
}

/** Nothing can be written, for a reason in words that anyone may read: no host, no name. */
export class NotWritable extends StoreError {
  readonly reason: string;

  constructor(reason: string, detail: string, cause?: unknown) {
    super("unavailable", `${reason} (${detail})`, cause);
    this.reason = reason;
  }
}

/** A mark raised by a PostgreSQL statement is between these, whatever quotes the server's language has. */
export const markPrefix = "svc!";
export const markEnd = "!svc";

/**
 * Lets a statement refuse itself: on PostgreSQL casting this text to a number fails, which rolls it back, and
 * the driver throws `StoreError("marked", mark + detail)`. A flush's libSQL text throws that error itself.
 */
export const raiseMark = (mark: string, detail: Sql): Sql =>
  sql`CAST(${markPrefix + mark}::text || ${detail} || ${sql.raw(`'${markEnd}'`)} AS bigint)`;

/**
 * Whether what was asked is why it failed: a value that the database refuses, a Fault, a defect. Asking for
 * the same again is in vain then. All other errors are the database's own state, and pass.
 */
export const isOfRow = (error: unknown): boolean =>
  !(error instanceof StoreError) || error.trouble === "refused" || error.trouble === "unique";

/**
 * Whether one item may be why a flush of many failed, so that the others are tried without it. Troubles that
 * the port knows hit all items alike; of others nobody can tell.
 */
export const isOfItem = (error: unknown): boolean =>
  isOfRow(error) || (error as StoreError).trouble === "other";

/** Whether a flush waited too long for rows of another transaction: one environment's, so others go apart. */
export const isStuck = (error: unknown): boolean =>
  error instanceof StoreError && error.trouble === "lock_timeout";

/** Whether a statement refused itself by this mark (see `raiseMark`). */
export const isMarked = (error: unknown, mark: string): boolean =>
  error instanceof StoreError && error.trouble === "marked" && error.detail.startsWith(mark);

interface AllBasics {
  store: Store;
  clock: Clock;
  ids: Ids;
  log: Log;
  watch: Watch;
  metrics: Metrics;
  nodeId: string;
}

/** What openers are handed besides other services, by its usual names. */
export type Basics<Name extends keyof AllBasics> = Pick<AllBasics, Name>;
