import { rm, writeFile } from "node:fs/promises";
import type { Clock } from "../kit/clock.ts";
import type { Log } from "../kit/log.ts";
import type { Bound, Sql } from "../kit/sql.ts";
import {
  type Connection,
  type DriverName,
  drivers,
  type Statement,
  toLibsqlTrouble,
} from "./libsql-drivers.ts";
import { claimFile } from "./libsql-lock.ts";
import { asyncSession, statements, syncSession } from "./libsql-session.ts";
import { libsqlSeams, renderLibsql } from "./libsql-text.ts";
import { writer } from "./libsql-writer.ts";
import { type Flush, NotWritable, type Session, type Store, StoreError } from "./store.ts";
import { WriteProbe } from "./write-probe.ts";

/** A read that took longer lately waits for its turn. */
const dearMs = 4;
/** How much of that is still expected after a shorter one. */
const shareKept = 0.75;
/** The next dear one waits as long as the last took, up to this: a request of others takes several turns. */
const restMsMax = 100;
/** Texts that are remembered; the one that was found longest ago is forgotten first. */
const textsMax = 1_000;

const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

/**
 * Reads hold the event loop: of those that take long, one runs at a time and leaves as much time to others,
 * so that ten that come at once do not keep everybody else waiting for all of them.
 */
export class ReadTurns {
  /** By text: how many milliseconds the next such read may take. */
  readonly #dear = new Map<string, number>();
  readonly #clock: Pick<Clock, "elapsed" | "sleep">;
  #last = Promise.resolve();
  #freeAt = 0;

  constructor(clock: Pick<Clock, "elapsed" | "sleep">) {
    this.#clock = clock;
  }

  /** Undefined where the read need not wait. */
  turnOf(text: string): Promise<void> | undefined {
    if (!this.#dear.has(text)) return undefined;
    this.#last = this.#last.then(() => {
      const restMs = this.#freeAt - this.#clock.elapsed();
      return restMs > 0 ? this.#clock.sleep(restMs) : nextTurn();
    });
    return this.#last;
  }

  took(text: string, ms: number): void {
    // The same text reads little and much in turn, by its values.
    const expectedMs = Math.max(ms, (this.#dear.get(text) ?? 0) * shareKept);
    this.#dear.delete(text);
    if (expectedMs <= dearMs) return;
    this.#dear.set(text, expectedMs);
    this.#freeAt = this.#clock.elapsed() + Math.min(restMsMax, ms);
    const [oldest] = this.#dear.keys();
    if (this.#dear.size > textsMax) this.#dear.delete(oldest!);
  }
}

export interface LibsqlOptions {
  file: string;
  driver?: DriverName;
  clock: Clock;
  log: Log;
  /** A power cut may then lose writes that were acknowledged; for tests that prove it. */
  acceptLostCommits?: boolean;
}

const busyMs = 100;
const unitsMax = 512;
const groupMs = 5;
const idleMs = 1_000;

/**
 * FULL: commits are on the disk before they are answered. A checkpoint every 2 MiB holds the event loop for 7
 * ms at the 99th percentile under full load; every 8 MiB it was 20 to 45 ms, and a quarter slower (measured).
 */
const writerSetup = `PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = OFF;
  PRAGMA temp_store = MEMORY; PRAGMA cache_size = -32000; PRAGMA wal_autocheckpoint = 500;
  PRAGMA journal_size_limit = 8388608`;
const readerSetup = "PRAGMA query_only = ON; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -16000";

/** What a look tries to take beside the file: as much as on PostgreSQL, not synced, to spare the disk. */
const room = new Uint8Array(128 * 1024);
/** Where this process may make no file, or no further one just now, nothing can be found out so. */
const mayNotMake = /^(EACCES|EPERM|EMFILE|ENFILE)$/;

/** Two commits: SQLite writes no pages that the same commit gives back. */
const takeRoom = [
  "DROP TABLE IF EXISTS svc_room; CREATE TABLE svc_room AS SELECT zeroblob(131072) AS filler",
  "DROP TABLE svc_room",
];

export async function openLibsql(options: LibsqlOptions): Promise<Store> {
  const { clock, log } = options;
  const driver = await drivers[options.driver ?? "libsql"]();
  const claim = claimFile(options.file, driver);
  const opened: Connection[] = [];
  const open = (setup: string) => {
    const connection = driver(claim.path, busyMs);
    opened.push(connection);
    for (const pragma of setup.split(";")) connection.exec(pragma);
    return connection;
  };
  const shut = () => {
    for (const connection of opened.splice(0)) connection.close();
    claim.release();
  };
  let writing: Connection;
  let reading: ReturnType<typeof statements>;
  try {
    writing = open(
      options.acceptLostCommits
        ? writerSetup.replace("synchronous = FULL", "synchronous = NORMAL")
        : writerSetup,
    );
    reading = statements(open(readerSetup));
  } catch (error) {
    shut();
    throw toLibsqlTrouble(error);
  }
  const written = statements(writing);
  const queue = writer({
    ...{ clock, connection: writing, unitsMax, groupMs, idleMs },
    onFailed: (trouble) => probe.note(trouble),
  });
  let flushes = 0;
  let closed = false;
  const requireOpen = () => {
    if (closed) throw new StoreError("unavailable", "the store is closed");
  };

  const turns = new ReadTurns(clock);
  const read = async <T>(query: Sql, execute: (statement: Statement, values: Bound[]) => T): Promise<T> => {
    requireOpen();
    try {
      const { text, values } = renderLibsql(query);
      const turn = turns.turnOf(text);
      if (turn) {
        await turn;
        requireOpen();
      }
      const startedAt = clock.elapsed();
      const answer = execute(reading(text), values);
      turns.took(text, clock.elapsed() - startedAt);
      return answer;
    } catch (error) {
      throw toLibsqlTrouble(error);
    }
  };
  const allOf = (statement: Statement, values: Bound[]) => statement.all(values);
  const oneOf = (statement: Statement, values: Bound[]) => statement.one(values);
  const probe: WriteProbe = new WriteProbe({
    clock,
    commit: async () => void (await read({ strings: ["SELECT 1"], values: [] }, oneOf)),
    giveUp: () => {},
    tryRoom: async () => {
      if (!closed) await tryRoom(`${claim.path}-room`);
    },
    async takeRoom() {
      for (const text of takeRoom) await queue.submit({ run: () => writing.exec(text) });
    },
  });

  return {
    engine: "libsql",
    isShared: false,
    seams: libsqlSeams,
    all: (query) => read(query, allOf) as Promise<never[]>,
    one: (query) => read(query, oneOf) as Promise<never>,
    async write(work) {
      requireOpen();
      return queue.submit(interactive(clock, written, work));
    },
    async flush<I, R extends object>(flush: Flush<I, R>, input: I) {
      requireOpen();
      flushes++;
      return queue.submit({
        repeatable: true,
        run: () => {
          const session = syncSession(written);
          const rows = flush.libsql(session, input);
          session.requireSound();
          return rows;
        },
      });
    },
    flushCount: () => flushes,
    async ping() {
      requireOpen();
      await probe.ping();
    },
    now: async () => clock.now(),
    async close() {
      if (closed) return;
      closed = true;
      await queue.drain();
      try {
        writing.exec("PRAGMA wal_checkpoint(TRUNCATE)");
      } catch (error) {
        // Nothing is lost: the next start reads the log.
        log.warn("store.checkpoint", { error });
      }
      shut();
    },
  };
}

async function tryRoom(path: string): Promise<void> {
  try {
    await writeFile(path, room, { mode: 0o600 });
  } catch (error) {
    const code = String((error as NodeJS.ErrnoException).code);
    if (mayNotMake.test(code)) return;
    if (code === "EROFS") throw new NotWritable("the database only reads", code, error);
    throw new StoreError(/^(ENOSPC|EDQUOT)$/.test(code) ? "full" : "unavailable", code, error);
  } finally {
    await rm(path, { force: true }).catch(() => {});
  }
}

/** An interactive write as a unit of the writer, which waits for it and cuts it off when it idles. */
function interactive<T>(
  clock: Clock,
  prepared: (text: string) => Statement,
  work: (session: Session) => Promise<T>,
) {
  let activeAt = 0;
  let over: unknown;
  const session = syncSession(prepared, () => {
    if (over !== undefined) throw over;
    activeAt = clock.elapsed();
  });
  const run = async (): Promise<T> => {
    activeAt = clock.elapsed();
    try {
      const result = await work(asyncSession(session));
      session.requireSound();
      return result;
    } finally {
      over ??= new Error("a session was used after its transaction had ended");
    }
  };
  return {
    run,
    activeAt: () => activeAt,
    cut(error: unknown) {
      over = error;
    },
  };
}
