import { closeSync, existsSync, mkdirSync, openSync, readdirSync, realpathSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { Clock } from "../kit/clock.ts";
import { Fault } from "../kit/fault.ts";
import { sql } from "../kit/sql.ts";
import {
  databaseSays,
  type EnvironmentDatabases,
  type FoldDefinition,
  type FoldOutcome,
  type FoldSlice,
  type FoldTable,
  foldMsMax,
  noSeat,
  type QueryAsk,
  seatIdleMs,
  seatsMax,
  seatsOfOneMax,
  waitingOfOneMax,
} from "./environment-databases.ts";
import { environmentsFolder } from "./libsql-files.ts";
import type { WireStep, WireTable } from "./libsql-messages.ts";
import { LibsqlSeat } from "./libsql-seat.ts";
import { quickFirst, Seats } from "./seats.ts";
import type { Session, Store } from "./store.ts";

export interface LibsqlEnvironmentsOptions {
  /** The store's own database. */
  file: string;
  store: Store;
  clock: Clock;
  secret: () => string;
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
}

const physical = ({ name, generation }: FoldTable): string => `${name}@g${generation}`;

/** Each environment has a file beside the store's, and processes that open no other but to read its views. */
export class LibsqlEnvironments implements EnvironmentDatabases {
  readonly #options: LibsqlEnvironmentsOptions;
  readonly #file: string;
  readonly #folder: string;
  readonly #names = new Map<string, string>();
  readonly #readers: Seats<LibsqlSeat>;
  readonly #writers: Seats<LibsqlSeat>;

  constructor(options: LibsqlEnvironmentsOptions) {
    const { file, clock } = options;
    this.#options = options;
    this.#file = join(realpathSync(dirname(file)), basename(file));
    this.#folder = environmentsFolder(this.#file);
    this.#readers = new Seats({
      ...{ clock, sizeMax: seatsMax, ofOneMax: seatsOfOneMax - 1, idleMs: seatIdleMs },
      waitingOfOneMax,
      open: (environmentId) => this.#openReader(environmentId),
    });
    this.#writers = new Seats({
      ...{ clock, sizeMax: seatsMax, ofOneMax: 1, idleMs: seatIdleMs },
      open: async (environmentId) =>
        LibsqlSeat.open(clock, { ask: "write", file: await this.#fileOf(environmentId) }),
    });
  }

  async query(environmentId: string, ask: QueryAsk) {
    const answer = await quickFirst(this.#readers, environmentId, ask);
    if (!answer) throw noSeat();
    return answer;
  }

  async check(table: FoldTable, definition: FoldDefinition): Promise<void> {
    try {
      await this.#ask("check", table, definition, 0);
    } catch (error) {
      if (error instanceof Fault && error.kind === "invalid_argument")
        throw databaseSays("table_sql", error.message.replace(/^query: /, ""));
      throw error;
    }
  }

  ensure(table: FoldTable, definition: FoldDefinition, position: number | undefined) {
    return this.#ask("ensure", table, definition, position);
  }

  async show(table: FoldTable): Promise<void> {
    await this.#ask("show", table, noDefinition, 0);
  }

  async drop(table: FoldTable): Promise<void> {
    const { environmentId } = table;
    if ((await this.#nameOf(environmentId)) === undefined) return;
    await this.#ask("drop", table, noDefinition, 0);
  }

  async fold(
    table: FoldTable,
    { from, to, steps }: FoldSlice,
    { handlers }: FoldDefinition,
  ): Promise<FoldOutcome> {
    const wire = steps.map(({ handler, position, values }): WireStep => [handler, position, ...values]);
    const done = await this.#writers.with(
      table.environmentId,
      foldMsMax,
      async (seat): Promise<FoldOutcome> => {
        try {
          const said = await seat.ask(
            { ask: "fold", table: physical(table), handlers, from, to, steps: wire },
            foldMsMax,
          );
          if (said.answer === "failed")
            return { did: "failed", position: said.position, message: said.message };
          return said.position === undefined
            ? { did: "folded" }
            : { did: "nothing", position: said.position };
        } catch (error) {
          if (!(error instanceof Fault)) throw error;
          return { did: "failed", position: 0, message: error.message };
        }
      },
    );
    if (!done) throw noSeat();
    return done;
  }

  async sweep(): Promise<number> {
    if (!existsSync(this.#folder)) return 0;
    const known = await this.#options.store.all<{ name: string }>(
      sql`SELECT name FROM environment_databases`,
    );
    const names = new Set(known.map(({ name }) => name));
    const lost = new Set(
      readdirSync(this.#folder)
        .map((file) => file.replace(/\.db(-\w+)?$/, ""))
        .filter((name) => !names.has(name)),
    );
    for (const name of lost)
      for (const end of ["", "-wal", "-shm", "-journal"])
        rmSync(join(this.#folder, `${name}.db${end}`), { force: true });
    if (lost.size > 0) this.#names.clear();
    return lost.size;
  }

  async close(): Promise<void> {
    this.#readers.close();
    this.#writers.close();
  }

  async #ask(
    ask: "check" | "ensure" | "show" | "drop",
    table: FoldTable,
    { columns, handlers }: FoldDefinition,
    position?: number,
  ): Promise<number | undefined> {
    const wire: WireTable = {
      table: physical(table),
      name: table.name,
      columns,
      handlers,
      ...(position !== undefined && { position }),
    };
    const done = await this.#writers.with(table.environmentId, foldMsMax, (seat) =>
      seat.ask({ ask, ...wire }, foldMsMax),
    );
    if (!done) throw noSeat();
    return done.position;
  }

  async #openReader(environmentId: string): Promise<LibsqlSeat> {
    const file = await this.#fileOf(environmentId);
    // A reader cannot make the file that it reads.
    if (!existsSync(file)) closeSync(openSync(file, "a", 0o600));
    const { clock, secret } = this.#options;
    return LibsqlSeat.open(clock, {
      ...{ ask: "read", storeFile: this.#file, file, environmentId },
      ...{ storeName: `s${secret()}`, ownName: `o${secret()}` },
    });
  }

  async #nameOf(environmentId: string): Promise<string | undefined> {
    const found = this.#names.get(environmentId);
    if (found !== undefined) return found;
    const row = await this.#options.store.one<{ name: string }>(
      sql`SELECT name FROM environment_databases WHERE environment_id = ${environmentId}`,
    );
    if (row) this.#names.set(environmentId, row.name);
    return row?.name;
  }

  async #fileOf(environmentId: string): Promise<string> {
    const name = (await this.#nameOf(environmentId)) ?? (await this.#make(environmentId));
    mkdirSync(this.#folder, { recursive: true, mode: 0o700 });
    return join(this.#folder, `${name}.db`);
  }

  #make(environmentId: string): Promise<string> {
    const { store, secret, shareEnvironment } = this.#options;
    return store.write(async (session) => {
      await shareEnvironment(session, environmentId);
      await session.run(sql`INSERT INTO environment_databases
          (environment_id, name, reader_sealed, writer_sealed, made_of)
        VALUES (${environmentId}, ${`svc_${secret()}`}, '', '', '') ON CONFLICT (environment_id) DO NOTHING`);
      const row = await session.one<{ name: string }>(
        sql`SELECT name FROM environment_databases WHERE environment_id = ${environmentId}`,
      );
      return row!.name;
    });
  }
}

const noDefinition: FoldDefinition = { columns: "", handlers: [], version: "" };
