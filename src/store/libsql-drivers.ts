import type { Database as BunDatabase } from "bun:sqlite";
import { Fault } from "../kit/fault.ts";
import type { Bound } from "../kit/sql.ts";
import { type Row, StoreError } from "./store.ts";

/** All that we need of a SQLite client. Rows are plain objects, blobs are Uint8Array. */
export interface Connection {
  /** One or more statements without parameters. */
  exec(text: string): void;
  prepare(text: string): Statement;
  inTransaction(): boolean;
  /**
   * From now on statements may use these tables and no function, where the client has an authorizer: that of
   * `libsql` refuses all functions.
   */
  onlyTables?(names: readonly string[]): void;
  close(): void;
}

export interface Statement {
  all(values: Bound[]): Row[];
  one(values: Bound[]): Row | undefined;
  /** Rows changed. */
  run(values: Bound[]): number;
  /** The names of an answer's columns, which need not differ. */
  readonly columns: readonly string[];
  /** Row by row, until it answers false. */
  each(values: Bound[], onCells: (cells: unknown[]) => boolean): void;
  close(): void;
}

export type Driver = (file: string, busyMs: number) => Connection;

export type DriverName = "libsql" | "bun:sqlite";

/** Loaded when it is wanted: the compiled program has only the one, without native modules beside it. */
export const drivers: Record<DriverName, () => Promise<Driver>> = {
  libsql: async () => {
    const { default: Database } = await import("libsql");
    return (file, busyMs) => libsqlConnection(new Database(file) as unknown as LibsqlDatabase, busyMs);
  },
  "bun:sqlite": async () => {
    const { Database } = await import("bun:sqlite");
    return (file, busyMs) => bunConnection(new Database(file, { create: true, readwrite: true }), busyMs);
  },
};

interface LibsqlStatement {
  readonly reader: boolean;
  raw(): LibsqlStatement;
  columns(): { name: string }[];
  all(values: Bound[]): unknown[][];
  get(values: Bound[]): unknown[] | undefined;
  run(values: Bound[]): { changes: number };
  iterate(values: Bound[]): Iterable<unknown[]>;
}

interface LibsqlDatabase {
  exec(text: string): void;
  prepare(text: string): LibsqlStatement;
  authorizer(rules: Readonly<Record<string, number>>): void;
  readonly inTransaction: boolean;
  close(): void;
}

function libsqlConnection(database: LibsqlDatabase, busyMs: number): Connection {
  database.exec(`PRAGMA busy_timeout = ${busyMs}`);
  return {
    exec: (text) => database.exec(text),
    prepare(text) {
      // Rows as arrays: the client's objects carry a field of its own, and blobs of two kinds.
      const statement = database.prepare(text);
      // Asked once: the client looks it up again each time, and takes longer for it the longer the text is.
      const { reader } = statement;
      const names = reader ? statement.columns().map((column) => column.name) : [];
      if (reader) statement.raw();
      const toRow = (cells: unknown[]): Row => {
        const row: Row = {};
        for (let place = 0; place < names.length; place++) row[names[place] as string] = cells[place];
        return row;
      };
      // Once `all` or `iterate` asked a statement, the client's `get` ignores its values: it repeats the last
      // answer.
      let mayGet = true;
      const every = (values: Bound[]) => {
        mayGet = false;
        return statement.all(values);
      };
      return {
        all(values) {
          if (reader) return every(values).map(toRow);
          statement.run(values);
          return [];
        },
        one(values) {
          const cells = mayGet ? statement.get(values) : every(values)[0];
          return cells === undefined || cells === null ? undefined : toRow(cells);
        },
        run(values) {
          return reader ? every(values).length : statement.run(values).changes;
        },
        columns: names,
        each(values, onCells) {
          mayGet = false;
          for (const cells of statement.iterate(values)) if (!onCells(cells)) return;
        },
        close() {},
      };
    },
    onlyTables: (names) => database.authorizer(Object.fromEntries(names.map((name) => [name, 0]))),
    inTransaction: () => database.inTransaction,
    close: () => database.close(),
  };
}

function bunConnection(database: BunDatabase, busyMs: number): Connection {
  database.run(`PRAGMA busy_timeout = ${busyMs}`);
  return {
    exec: (text) => void database.run(text),
    prepare(text) {
      const statement = database.prepare<Row, Bound[]>(text);
      const reader = statement.columnNames.length > 0;
      return {
        all: (values) => statement.all(...values),
        one: (values) => statement.get(...values) ?? undefined,
        run: (values) => (reader ? statement.all(...values).length : statement.run(...values).changes),
        columns: statement.columnNames,
        each(values, onCells) {
          for (const row of statement.values(...values)) if (!onCells(row)) return;
        },
        close: () => statement.finalize(),
      };
    },
    inTransaction: () => database.inTransaction,
    close: () => database.close(),
  };
}

/** What a value of the statement alone can cause: too large, against a constraint, no such type. */
const refusesValue = /^SQLITE_(TOOBIG|CONSTRAINT|MISMATCH|RANGE)/;
/** The engine's functions say only SQLITE_ERROR of a text that is no JSON, or a number that does not fit. */
const isMisfit =
  /malformed JSON|JSON path|JSON cannot hold|integer overflow|string or blob too big|pattern too complex/;
const constraint = /constraint failed: (.*)$/;
const ofServer = /^SQLITE_(BUSY|LOCKED|IOERR|CANTOPEN|READONLY|NOMEM|PROTOCOL)/;

/** What the port promises to throw; an error without a code of SQLite stays as it is, a defect. */
export function toLibsqlTrouble(error: unknown): unknown {
  if (error instanceof StoreError || error instanceof Fault) return error;
  const code = String((error as { code?: unknown } | null)?.code ?? "");
  const message = error instanceof Error ? error.message : String(error);
  switch (code) {
    case "SQLITE_CONSTRAINT_UNIQUE":
    case "SQLITE_CONSTRAINT_PRIMARYKEY":
    case "SQLITE_CONSTRAINT_ROWID":
      return new StoreError("unique", constraint.exec(message)?.[1] ?? message, error);
    case "SQLITE_FULL":
      return new StoreError("full", message, error);
  }
  if (refusesValue.test(code) || isMisfit.test(message)) return new StoreError("refused", message, error);
  if (ofServer.test(code)) return new StoreError("unavailable", message, error);
  return code.startsWith("SQLITE_") ? new StoreError("other", message, error) : error;
}
