import { constants, setPriority } from "node:os";
import { Worker } from "node:worker_threads";
import { type Cell, parameterMark, tableMark } from "./environment-databases.ts";
import { environmentViews } from "./environment-views.ts";
import { type AllowedRoots, NotAllowed, requireAllowed } from "./libsql-bytecode.ts";
import { type Connection, type Driver, drivers, type Statement } from "./libsql-drivers.ts";
import type {
  ProgramAnswer,
  ProgramAsk,
  WireHandler,
  WireQuery,
  WireStep,
  WireTable,
} from "./libsql-messages.ts";

/**
 * The process that runs the SQL of one environment of a libSQL store. It is ended, not asked, when a query
 * takes too long: nothing else stops SQLite inside one step.
 */

/** Rows in one message, so that the server reads an answer in pieces. */
const messageBytes = 64 * 1024;
const foldsTable = "svc@folds";
const baseTables = ["runs", "executions", "steps", "events", "functions"];
const busyMs = 5_000;

const quoted = (name: string): string => `\`${name.replaceAll("`", "``")}\``;
const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`;
/** A path inside a `file:` address. */
const addressed = (file: string): string => encodeURI(file).replaceAll("?", "%3F").replaceAll("#", "%23");

type Say = (answer: ProgramAnswer) => void;

const storePlace = 2;
const ownPlace = 3;

/** A connection that reads one environment: views of its rows, and the tables of its projections. */
class EnvironmentReader {
  readonly #connection: Connection;
  readonly #own: string;
  readonly #store: string;

  constructor(connection: Connection, ask: ReaderStart) {
    this.#connection = connection;
    this.#store = ask.storeName;
    this.#own = ask.ownName;
    const { storeFile, file, environmentId, heapBytes } = ask;
    connection.exec("PRAGMA trusted_schema = OFF");
    connection.exec("PRAGMA case_sensitive_like = ON");
    connection.exec("PRAGMA temp_store = FILE");
    connection.exec(`PRAGMA hard_heap_limit = ${heapBytes}`);
    connection.exec(`ATTACH ${literal(`file:${addressed(storeFile)}?mode=ro`)} AS ${quoted(this.#store)}`);
    connection.exec(`ATTACH ${literal(`file:${addressed(file)}?mode=ro`)} AS ${quoted(this.#own)}`);
    const views = environmentViews("libsql", {
      base: (table) => `${quoted(this.#store)}.${quoted(table)}`,
      environment: literal(environmentId),
    });
    for (const [view, text] of Object.entries(views))
      connection.exec(`CREATE TEMP VIEW ${quoted(view)} AS ${text}`);
    // The one table under a view that has no view of its own name.
    connection.exec("CREATE TEMP VIEW executions AS SELECT NULL AS run_id WHERE false");
    connection.exec("PRAGMA query_only = ON");
  }

  query(ask: WireQuery, say: Say): void {
    const { values, isExplain, rowsMax, bytesMax } = ask;
    if (isExplain) {
      this.#require(ask.text);
      const plan = this.#connection.prepare(`EXPLAIN QUERY PLAN ${ask.text}`);
      const rows = plan.all([...values]).map((row) => [this.#shown(String(row.detail))]);
      say({ answer: "rows", rows });
      say({ answer: "done", columns: ["QUERY PLAN"], isTruncated: false });
      return;
    }
    this.#require(ask.text);
    const { columns } = this.#connection.prepare(ask.text);
    const bounded = boundedText(ask, columns.length);
    this.#require(bounded);
    let rows: Cell[][] = [];
    let waiting = 0;
    let bytes = 0;
    let count = 0;
    let isTruncated = false;
    let isSpent = false;
    this.#connection.prepare(bounded).each([...values], (cells) => {
      const row = cells.map(cellOf);
      const own = row.reduce<number>((sum, cell) => sum + sizeOf(cell), 0);
      bytes += own;
      // A statement that is left before its end keeps its snapshot until the process ends.
      isSpent = bytes > bytesMax;
      isTruncated = count === rowsMax || isSpent;
      if (isTruncated) return !isSpent;
      rows.push(row);
      count++;
      waiting += own;
      if (waiting < messageBytes) return true;
      say({ answer: "rows", rows });
      rows = [];
      waiting = 0;
      return true;
    });
    if (rows.length > 0) say({ answer: "rows", rows });
    say({ answer: "done", columns: [...columns], isTruncated, isSpent });
  }

  /** Plans name the attached databases; their names stay secret. */
  #shown(detail: string): string {
    return detail.replaceAll(`${this.#store}.`, "").replaceAll(`${this.#own}.`, "");
  }

  #require(text: string): void {
    const roots = (schema: string, wanted: (table: string) => boolean) =>
      new Set(
        this.#connection
          .prepare(`SELECT tbl_name, rootpage FROM ${quoted(schema)}.sqlite_schema WHERE rootpage > 1`)
          .all([])
          .filter((row) => wanted(String(row.tbl_name)))
          .map((row) => Number(row.rootpage)),
      );
    const allowed: AllowedRoots = {
      read: new Map([
        [storePlace, roots(this.#store, (table) => baseTables.includes(table))],
        [ownPlace, roots(this.#own, (table) => table.startsWith("proj_"))],
      ]),
      write: new Map(),
    };
    requireAllowed(this.#connection, text, allowed);
  }
}

type ReaderStart = Extract<ProgramAsk, { ask: "read" }>;

/**
 * A connection for one query. The client leaves statements open until they are collected, and a connection
 * with one of them sees neither later rows nor later tables.
 */
function readOnce(open: Driver, places: ReaderStart, work: (reader: EnvironmentReader) => void): void {
  const connection = open(":memory:", busyMs);
  try {
    work(new EnvironmentReader(connection, places));
  } finally {
    connection.close();
    Bun.gc(true);
  }
}

/** The query with a bound on its rows; the overflow of `abs` is what refuses a larger one. */
function boundedText({ text, rowsMax, rowBytesMax }: WireQuery, columnCount: number): string {
  const names = Array.from({ length: columnCount }, (_, place) => `c${place}`);
  const sizes = names.map((name) => `coalesce(length(${name}), 0)`).join(" + ");
  return `WITH q(${names.join(", ")}) AS (${text}) SELECT * FROM q
    WHERE CASE WHEN ${sizes} > ${rowBytesMax} THEN abs(-9223372036854775807 - 1) ELSE 1 END LIMIT ${rowsMax + 1}`;
}

function cellOf(raw: unknown): Cell {
  if (raw === null || raw === undefined) return null;
  if (typeof raw === "string" || typeof raw === "number") return raw;
  if (typeof raw === "bigint")
    return raw >= Number.MIN_SAFE_INTEGER && raw <= Number.MAX_SAFE_INTEGER ? Number(raw) : String(raw);
  return Buffer.from(raw as Uint8Array).toString("base64");
}

const sizeOf = (cell: Cell): number => (typeof cell === "string" ? Buffer.byteLength(cell) : 8);

/** A connection that owns the tables of one environment's projections, and has nothing else open. */
class EnvironmentWriter {
  readonly #open: Driver;
  readonly #connection: Connection;
  readonly #prepared = new Map<string, Statement>();

  constructor(open: Driver, { file, heapBytes }: Extract<ProgramAsk, { ask: "write" }>) {
    const connection = open(file, busyMs);
    this.#open = open;
    this.#connection = connection;
    for (const pragma of [
      ...["journal_mode = WAL", "synchronous = FULL", "trusted_schema = OFF", "temp_store = MEMORY"],
      ...["wal_autocheckpoint = 500", `hard_heap_limit = ${heapBytes}`],
    ])
      connection.exec(`PRAGMA ${pragma}`);
    connection.exec(`CREATE TABLE IF NOT EXISTS ${quoted(foldsTable)} (table_name TEXT PRIMARY KEY,
      position INTEGER NOT NULL, is_shown INTEGER NOT NULL)`);
  }

  /** Makes everything and takes it back. */
  check(ask: WireTable): void {
    this.#connection.exec("BEGIN IMMEDIATE");
    try {
      this.#make(ask);
    } finally {
      this.#connection.exec("ROLLBACK");
    }
  }

  ensure(ask: WireTable): number | undefined {
    return this.#in(() => {
      const found = this.#position(ask.table);
      if (found !== undefined || ask.position === undefined) return found;
      this.#make(ask);
      return ask.position;
    });
  }

  show({ table, name }: WireTable): void {
    this.#in(() => {
      const folds = quoted(foldsTable);
      const row = this.#connection.prepare(`SELECT is_shown FROM ${folds} WHERE table_name = ?`).one([table]);
      if (Number(row?.is_shown) === 1) return;
      this.#connection
        .prepare(`UPDATE ${folds} SET is_shown = (table_name = ?) WHERE substr(table_name, 1, ?) = ?`)
        .run([table, name.length + 1, `${name}@`]);
      this.#connection.exec(`DROP VIEW IF EXISTS ${quoted(name)}`);
      this.#connection.exec(`CREATE VIEW ${quoted(name)} AS SELECT * FROM ${quoted(table)}`);
    });
  }

  drop({ table, name }: WireTable): void {
    this.#in(() => {
      const folds = quoted(foldsTable);
      const row = this.#connection.prepare(`SELECT is_shown FROM ${folds} WHERE table_name = ?`).one([table]);
      if (Number(row?.is_shown) === 1) this.#connection.exec(`DROP VIEW IF EXISTS ${quoted(name)}`);
      this.#connection.exec(`DROP TABLE IF EXISTS ${quoted(table)}`);
      this.#connection.prepare(`DELETE FROM ${folds} WHERE table_name = ?`).run([table]);
    });
    this.#prepared.clear();
  }

  fold({ table, handlers, from, to, steps }: Extract<ProgramAsk, { ask: "fold" }>): ProgramAnswer {
    let at = 0;
    try {
      const found = this.#in(() => {
        const position = this.#position(table) ?? 0;
        if (position !== from) return position;
        const folding = handlers.map((handler) => this.#handler(table, handler));
        for (const step of steps) {
          at = step[1];
          folding[step[0]]!.run(valuesOf(step));
        }
        this.#statement(`UPDATE ${quoted(foldsTable)} SET position = ? WHERE table_name = ?`).run([
          to,
          table,
        ]);
        return undefined;
      });
      return found === undefined ? { answer: "done" } : { answer: "done", position: found };
    } catch (error) {
      if (error instanceof NotAllowed) throw error;
      return { answer: "failed", position: at, message: (error as Error).message };
    }
  }

  #in<T>(work: () => T): T {
    this.#connection.exec("BEGIN IMMEDIATE");
    try {
      const value = work();
      this.#connection.exec("COMMIT");
      return value;
    } catch (error) {
      if (this.#connection.inTransaction()) this.#connection.exec("ROLLBACK");
      throw error;
    }
  }

  #position(table: string): number | undefined {
    const row = this.#statement(`SELECT position FROM ${quoted(foldsTable)} WHERE table_name = ?`).one([
      table,
    ]);
    return row && Number(row.position);
  }

  #statement(text: string): Statement {
    const found = this.#prepared.get(text) ?? this.#connection.prepare(text);
    this.#prepared.set(text, found);
    return found;
  }

  #make({ table, columns, handlers, position = 0 }: WireTable): void {
    const text = `CREATE TABLE ${quoted(table)} (${columns})`;
    // Once where the authorizer refuses every function and every other table: it cannot be taken off again.
    const probe = this.#open(":memory:", busyMs);
    probe.onlyTables?.([table, "sqlite_master"]);
    try {
      probe.prepare(text).run([]);
    } finally {
      probe.close();
    }
    this.#connection.prepare(text).run([]);
    for (const handler of handlers) this.#handler(table, handler);
    this.#connection
      .prepare(`INSERT INTO ${quoted(foldsTable)} (table_name, position, is_shown) VALUES (?, ?, 0)`)
      .run([table, position]);
  }

  /**
   * A handler stays within the pages of its own table. It is looked at where there is nothing but that table:
   * a look at this connection would keep its transactions open.
   */
  #handler(table: string, { text, parameters }: WireHandler): Statement {
    let placed = text.replaceAll(tableMark, quoted(table));
    for (let number = 1; number <= parameters; number++)
      placed = placed.replaceAll(parameterMark(number), `?${number}`);
    const found = this.#prepared.get(placed);
    if (found) return found;
    const made = this.#connection.prepare("SELECT sql FROM sqlite_schema WHERE name = ?").one([table]);
    const probe = this.#open(":memory:", busyMs);
    try {
      probe.exec(String(made?.sql));
      const pages = probe.prepare("SELECT rootpage FROM sqlite_schema WHERE rootpage > 1").all([]);
      const own = new Map([[0, new Set(pages.map(({ rootpage }) => Number(rootpage)))]]);
      requireAllowed(probe, placed, { read: own, write: own });
    } finally {
      probe.close();
    }
    return this.#statement(placed);
  }
}

const valuesOf = ([, , ...values]: WireStep) =>
  values.map((value) => (typeof value === "boolean" ? Number(value) : value));

/** What the author of a text is told of an error of SQLite. */
function refusalOf(error: unknown): ProgramAnswer {
  const { message, code } = error as { message: string; code?: unknown };
  if (error instanceof NotAllowed) return { answer: "refused", why: "not allowed", message };
  if (/integer overflow/.test(message)) return { answer: "refused", why: "row", message };
  if (/out of memory|too big|disk is full/i.test(message))
    return { answer: "refused", why: "too much", message };
  if (/^SQLITE_(ERROR|AUTH|MISMATCH|CONSTRAINT|RANGE)/.test(String(code)))
    return { answer: "refused", why: "text", message };
  return { answer: "defect", message };
}

/**
 * Ends this process when the server is gone: a query without end would go on, and hear of nothing. A thread
 * of its own looks, because this one may stand in SQLite.
 */
const watchdog = `const server = process.ppid;
  setInterval(() => { if (process.ppid !== server) process.kill(process.pid, "SIGKILL"); }, 1000);`;

export async function main(): Promise<void> {
  // The server on this machine goes first.
  setPriority(constants.priority.PRIORITY_LOW);
  new Worker(watchdog, { eval: true }).unref();
  const open = await drivers.libsql();
  const say: Say = (answer) => void process.send?.(answer);
  let places: ReaderStart | undefined;
  let writing: EnvironmentWriter | undefined;
  const answer = (ask: Exclude<ProgramAsk, { ask: "read" | "write" }>): void => {
    if (ask.ask === "query") readOnce(open, places!, (reader) => reader.query(ask, say));
    else if (ask.ask === "fold") say(writing!.fold(ask));
    else if (ask.ask === "ensure") {
      const position = writing!.ensure(ask);
      say({ answer: "done", ...(position !== undefined && { position }) });
    } else {
      writing![ask.ask](ask);
      say({ answer: "done" });
    }
  };
  process.on("message", (ask: ProgramAsk) => {
    try {
      if (ask.ask === "read") {
        places = ask;
        readOnce(open, ask, () => {});
      } else if (ask.ask === "write") writing = new EnvironmentWriter(open, ask);
      else {
        answer(ask);
        return;
      }
      say({ answer: "done" });
    } catch (error) {
      say(refusalOf(error));
    }
  });
  process.on("disconnect", () => process.exit(0));
}

if (import.meta.main) await main();
