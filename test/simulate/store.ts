import { testClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { drivers, toLibsqlTrouble } from "../../src/store/libsql-drivers.ts";
import { asyncSession, statements, syncSession } from "../../src/store/libsql-session.ts";
import { libsqlSeams } from "../../src/store/libsql-text.ts";
import { migrate } from "../../src/store/migrate.ts";
import { schema } from "../../src/store/schema.ts";
import { type Store, StoreError, type SyncSession } from "../../src/store/store.ts";
import type { Chance } from "../support/chance.ts";
import type { ProcessTime, Time } from "./time.ts";

export interface Troubles {
  /** Probabilities: the work never reached the store; it was committed, but the answer got lost. */
  before: number;
  after: number;
}

export interface Database {
  /** As one process sees it: slow by chance, failing by chance, silent once the process is dead. */
  storeOf(process: ProcessTime, chance: Chance, troubles: () => Troubles): Store;
  /** As it is, without delay or failure; for checks between the steps of the simulation. */
  readonly plain: Store;
}

/** One in-memory SQLite database under the product's own statements; one transaction at a time. */
export async function simulatedDatabase(time: Time): Promise<Database> {
  const connection = (await drivers["bun:sqlite"]())(":memory:", 0);
  const prepared = statements(connection);
  let last: Promise<unknown> = Promise.resolve();

  const transaction = <T>(work: (session: SyncSession) => T | Promise<T>): Promise<T> => {
    const run = async (): Promise<T> => {
      const session = syncSession(prepared);
      connection.exec("BEGIN");
      try {
        const result = await work(session);
        session.requireSound();
        connection.exec("COMMIT");
        return result;
      } catch (error) {
        connection.exec("ROLLBACK");
        throw toLibsqlTrouble(error);
      }
    };
    const result = last.then(run, run);
    last = result.catch(() => {});
    return result;
  };

  const open = (around: <T>(changes: boolean, work: () => Promise<T>) => Promise<T>): Store => ({
    engine: "libsql",
    isShared: false,
    seams: libsqlSeams,
    all: (query) => around(false, () => transaction((session) => session.all(query))) as never,
    one: (query) => around(false, () => transaction((session) => session.one(query))) as never,
    write: (work) => around(true, () => transaction((session) => work(asyncSession(session)))),
    flush: (flush, input) => around(true, () => transaction((session) => flush.libsql(session, input))),
    flushCount: () => 0,
    ping: async () => {},
    now: async () => time.elapsed(),
    close: async () => {},
  });

  const plain = open((_, work) => work());
  await migrate(plain, schema, { clock: testClock(0), log: silentLog });

  return {
    plain,
    storeOf(process, chance, troubles) {
      const never = new Promise<never>(() => {});
      const away = () => new StoreError("unavailable", "simulated");
      return open(async (changes, work) => {
        if (!process.alive()) return never;
        await time.sleep(chance.between(0, 4));
        await process.awake();
        const { before, after } = troubles();
        if (chance.happens(before)) throw away();
        const result = await work().catch((error: unknown) => ({ refused: error }) as const);
        await time.sleep(chance.between(0, 3));
        await process.awake();
        if (typeof result === "object" && result !== null && "refused" in result) throw result.refused;
        if (changes && chance.happens(after)) throw away();
        return result;
      });
    },
  };
}
