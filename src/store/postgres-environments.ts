import type { Clock } from "../kit/clock.ts";
import type { Log } from "../kit/log.ts";
import {
  type EnvironmentDatabases,
  type FoldDefinition,
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
import { type DatabaseTls, openClient } from "./postgres-client.ts";
import { refusesLogin, toPostgresTrouble } from "./postgres-errors.ts";
import { PostgresFolds } from "./postgres-folds.ts";
import type { Primary } from "./postgres-primary.ts";
import { type EnvironmentLogins, type Login, PostgresRoles, type Sealing } from "./postgres-roles.ts";
import { PostgresSeat } from "./postgres-seat.ts";
import { quickFirst, Seats } from "./seats.ts";
import type { Store } from "./store.ts";

export interface PostgresEnvironmentsOptions {
  /** Leads to the server of the store, by the URL of the store's own role. */
  primary: Primary;
  tls?: DatabaseTls | undefined;
  store: Store;
  clock: Clock;
  log: Log;
  sealing: Sealing;
}

const connectMs = 3_000;
/** The server ends a connection whose transaction idles; a node that reads slowly idles between fetches. */
const idleInTransactionMs = 10_000;
/** Above what any caller may ask for: a query has its own limit, in its transaction. */
const statementMs = 35_000;

/** Each environment has a schema, and connections as roles that reach nothing else. */
export class PostgresEnvironments implements EnvironmentDatabases {
  readonly #options: PostgresEnvironmentsOptions;
  readonly #roles: PostgresRoles;
  readonly #readers: Seats<PostgresSeat>;
  readonly #writers: Seats<PostgresSeat>;

  constructor(options: PostgresEnvironmentsOptions) {
    this.#options = options;
    this.#roles = new PostgresRoles(options.store, options.sealing);
    const seats = (which: "reader" | "writer", ofOneMax: number) =>
      new Seats<PostgresSeat>({
        ...{ clock: options.clock, sizeMax: seatsMax, ofOneMax, idleMs: seatIdleMs },
        ...(which === "reader" && { waitingOfOneMax }),
        open: (environmentId) => this.#open(environmentId, which),
      });
    this.#readers = seats("reader", seatsOfOneMax - 1);
    this.#writers = seats("writer", 1);
  }

  async query(environmentId: string, ask: QueryAsk) {
    const answer = await quickFirst(this.#readers, environmentId, ask);
    if (!answer) throw noSeat();
    return answer;
  }

  check(table: FoldTable, definition: FoldDefinition): Promise<void> {
    return this.#folding(table, (folds) => folds.check(table, definition));
  }

  ensure(table: FoldTable, definition: FoldDefinition, position: number | undefined) {
    return this.#folding(table, (folds) => folds.ensure(table, definition, position));
  }

  show(table: FoldTable): Promise<void> {
    return this.#folding(table, (folds) => folds.show(table));
  }

  fold(table: FoldTable, slice: FoldSlice, definition: FoldDefinition) {
    return this.#folding(table, (folds) => folds.fold(table, slice, definition));
  }

  async drop(table: FoldTable): Promise<void> {
    if (!(await this.#roles.exists(table.environmentId))) return;
    await this.#folding(table, (folds) => folds.drop(table));
  }

  sweep(): Promise<number> {
    return this.#roles.sweep();
  }

  async close(): Promise<void> {
    this.#readers.close();
    this.#writers.close();
  }

  async #folding<T>({ environmentId }: FoldTable, work: (folds: PostgresFolds) => Promise<T>): Promise<T> {
    const logins = await this.#roles.of(environmentId);
    const done = await this.#writers.with(environmentId, foldMsMax, async (seat) => {
      const place = { schema: logins.name, reader: logins.reader.role };
      try {
        return { value: await work(new PostgresFolds(seat.client, place)) };
      } catch (error) {
        throw toPostgresTrouble(error);
      }
    });
    if (!done) throw noSeat();
    return done.value;
  }

  async #open(environmentId: string, which: "reader" | "writer"): Promise<PostgresSeat> {
    const { clock } = this.#options;
    try {
      return new PostgresSeat(await this.#connect(await this.#roles.of(environmentId), which), clock);
    } catch (error) {
      // Another node renewed the passwords, or the roles were not in a restored dump.
      if (!refusesLogin(error)) throw error;
      this.#roles.forget(environmentId);
      return new PostgresSeat(await this.#connect(await this.#roles.of(environmentId), which), clock);
    }
  }

  #connect(logins: EnvironmentLogins, which: "reader" | "writer") {
    const { primary } = this.#options;
    return primary.connect((url) => this.#openAt(url, logins, which), { isOwnRole: false });
  }

  #openAt(url: string, logins: EnvironmentLogins, which: "reader" | "writer") {
    const { tls, clock, log } = this.#options;
    const { role, password }: Login = logins[which];
    const own = new URL(url);
    own.username = role;
    own.password = password;
    return openClient({
      ...{ url: own.href, clock, log, applicationName: "svc sql", may: { setDeadlockTimeout: false } },
      ...(tls !== undefined && { tls }),
      limits: {
        ...{ statementMs: which === "writer" ? foldMsMax : statementMs, lockMs: 1_000 },
        ...{ idleInTransactionMs, connectMs },
      },
      session: {
        ...{ search_path: `"${logins.name}"`, work_mem: "16MB", max_parallel_workers_per_gather: "0" },
        ...{
          client_connection_check_interval: "1s",
          ...{ enable_seqscan: "on", enable_bitmapscan: "on" },
          TimeZone: "UTC",
        },
        ...{ DateStyle: "ISO", default_transaction_read_only: which === "reader" ? "on" : "off" },
      },
    });
  }
}
