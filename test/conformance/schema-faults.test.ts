import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { copyFile, mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { explained } from "../../src/app/start-failure.ts";
import { systemClock } from "../../src/kit/clock.ts";
import { type Log, silentLog } from "../../src/kit/log.ts";
import { sql } from "../../src/kit/sql.ts";
import { openLibsql } from "../../src/store/libsql.ts";
import { migrate } from "../../src/store/migrate.ts";
import { openStore } from "../../src/store/open.ts";
import { openPostgres } from "../../src/store/postgres.ts";
import { schema } from "../../src/store/schema.ts";
import type { Store } from "../../src/store/store.ts";
import { tables } from "../../src/store/tables/index.ts";
import { makeDisk, mayMount } from "../support/disk.ts";
import { isNight } from "../support/night.ts";
import { emptyHome, homeOf040, runOn } from "../support/of-0.40.0.ts";
import { removeFolder, run } from "../support/process.ts";
import { engines, type Home, makeHomeAt } from "../support/server.ts";

const clock = systemClock();
const bare = ({ place: { databaseUrl: url, db: file } }: Home): Promise<Store> =>
  url === undefined
    ? openLibsql({ file, clock, log: silentLog })
    : openPostgres({ url, clock, log: silentLog, poolSize: 2, hotPoolSize: 1 });
const start = ({ place: { databaseUrl, db: file } }: Home, log: Log = silentLog): Promise<Store> =>
  openStore({ clock, log, databaseUrl, file, poolSize: 2 });

/** What a server says that cannot start on it; empty where it can. */
const refusal = (home: Home): Promise<string> =>
  start(home).then(
    async (store) => {
      await store.close();
      return "";
    },
    (error) => (explained(error, { host: "", port: 0 }) as Error).message,
  );

async function namesOn(store: Store): Promise<string[]> {
  const found =
    store.engine === "libsql"
      ? await store.all<{ name: string }>(sql`SELECT name FROM sqlite_master WHERE type = 'table'`)
      : await store.all<{ name: string }>(sql`SELECT relname AS name FROM pg_class
          WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'`);
  return found.map(({ name }) => name).sort();
}
const everyName = [...Object.keys(tables), "migrations"].sort();

async function namesOf(home: Home, open = bare): Promise<string[]> {
  const store = await open(home);
  return namesOn(store).finally(() => store.close());
}

/** By what is done to the record of a database of 0.40.0. */
const records: Record<string, [change: string, says: string]> = {
  "of an older version": [
    "DELETE FROM migrations WHERE version > 40",
    "the database is at 0040_flow_control, and this program goes on with databases of 0.40.0 and later: start 0.40.0 on it " +
      "once, by `git checkout cd3b9f12 && bun install` and `bun run start`, then this program",
  ],
  "of 0.36.0, whose migrations had not landed in their order": [
    "DELETE FROM migrations WHERE version = 46 OR version > 54",
    "the database is at 0054_delivery lists, and this program goes on with databases of 0.40.0 and later",
  ],
  "of the version before": [
    "DELETE FROM migrations WHERE version = 65",
    "the database is at 0064_sessions listed, and",
  ],
  "of a newer version": [
    "INSERT INTO migrations VALUES (9999, 'later', 'hash', 0, 0)",
    "the database is newer than this program: 9999_later is unknown here and does not work with older programs",
  ],
  "with a migration that never was": [
    "INSERT INTO migrations VALUES (53, 'stray', 'hash', 1, 0)",
    "the database's record of migrations has 0053_stray, which no version of this program ever had: restore a backup",
  ],
  "with one missing": [
    "DELETE FROM migrations WHERE version = 12",
    "the database's record of migrations lacks 0012_sessions and has 0065_letters listed: restore a backup",
  ],
  "with one half recorded": [
    "UPDATE migrations SET hash = '' WHERE version = 65",
    "migration 0065_letters listed has changed since it landed on this database (as 0065_letters listed)",
  ],
  "without any": ["DELETE FROM migrations", "the database has tables of svc, but no record of migrations ("],
  "with no table for it": [
    "DROP TABLE migrations",
    "the database has tables of svc, but no record of migrations (",
  ],
};

describe.each(engines)(
  "a database on %s whose record is not whole is refused in a sentence, and left alone",
  (engine) => {
    test.each(Object.keys(records))("%s", async (name) => {
      const [change, says] = records[name]!;
      const home = await homeOf040(engine);
      try {
        await runOn(home, change);
        const before = await namesOf(home);
        expect(await refusal(home)).toStartWith(says);
        expect(await namesOf(home)).toEqual(before);
      } finally {
        await home.remove();
      }
    });
  },
);

describe.each(engines)("an empty database on %s", (engine) => {
  test("is made once by nodes that start together", async () => {
    const home = await emptyHome(engine);
    const events: string[] = [];
    const log: Log = { ...silentLog, info: (name) => void events.push(name) };
    try {
      // Of libSQL's file there is one owner.
      const nodes = engine === "postgres" ? [1, 2, 3] : [1];
      const stores = await Promise.all(nodes.map(() => start(home, log)));
      expect(events).toEqual(["store.made"]);
      for (const store of stores) expect(await namesOn(store)).toEqual(everyName);
      await Promise.all(stores.map((store) => store.close()));
    } finally {
      await home.remove();
    }
  }, 120_000);
});

/** Every so many statements by day. */
const cutsByDay = 5;

describe.skipIf(!engines.includes("libsql"))(
  "a process on libSQL that dies while it makes a database",
  () => {
    test("at any statement leaves an empty one, which the next start makes", async () => {
      const folder = await mkdtemp(join(tmpdir(), "svc-cut-"));
      const file = join(folder, "svc.db");
      const cuts: string[] = [];
      const store = await openLibsql({ file, clock, log: silentLog });
      /** The file and its log as the process would leave them now. */
      const cut = async () => {
        const path = join(folder, `cut-${cuts.length}`);
        cuts.push(path);
        for (const end of ["", "-wal"]) await copyFile(file + end, `${path}${end}`);
      };
      const watched: Store = {
        ...store,
        write: (work) =>
          store.write(async (session) => {
            const done = await work({
              ...session,
              async run(query) {
                await cut();
                return session.run(query);
              },
            });
            await cut();
            return done;
          }),
      };
      try {
        await migrate(watched, schema, { clock, log: silentLog });
        await store.close();
        expect(cuts.length).toBeGreaterThan(everyName.length);
        for (const [number, path] of cuts.entries()) {
          if (!isNight && number % cutsByDay !== 0) continue;
          const left = await openLibsql({ file: path, clock, log: silentLog });
          expect([number, await namesOn(left)]).toEqual([number, []]);
          // Each of them begins alike: a few show that the next start makes it whole.
          if (number % 50 === 0) {
            await migrate(left, schema, { clock, log: silentLog });
            expect(await namesOn(left)).toEqual(everyName);
          }
          await left.close();
        }
      } finally {
        await removeFolder(folder);
      }
    }, 120_000);
  },
);

describe.skipIf(!engines.includes("postgres"))(
  "a connection to PostgreSQL that is lost while it makes a database",
  () => {
    let home: Home;
    beforeAll(async () => {
      home = await emptyHome("postgres");
    });
    afterAll(() => home?.remove());

    test("leaves an empty one, wherever it is cut, and the next start makes it", async () => {
      const statements = schema.base.statements("postgres");
      const places = [0, 1, 2, 10, 50, 100, 150, 200, statements.length - 1, statements.length];
      const store = await bare(home);
      for (const place of places) {
        const ends = [...statements.slice(0, place), "SELECT pg_terminate_backend(pg_backend_pid())"];
        const base = { ...schema.base, statements: () => [...ends, ...statements.slice(place)] };
        const lost = migrate(store, { ...schema, base }, { clock, log: silentLog });
        expect([
          place,
          await lost.then(
            () => "made",
            (error) => error.trouble,
          ),
        ]).toEqual([place, "unavailable"]);
        expect([place, await namesOn(store)]).toEqual([place, []]);
      }
      await store.close();
      expect(await namesOf(home, start)).toEqual(everyName);
    }, 120_000);

    test("is told that it only reads", async () => {
      const database = new URL(home.place.databaseUrl!).pathname.slice(1);
      await runOn(home, `ALTER DATABASE "${database}" SET default_transaction_read_only = on`);
      expect(await refusal(home)).toBe(
        "the database cannot be written: cannot execute CREATE TABLE in a read-only transaction",
      );
    });
  },
);

describe.skipIf(!engines.includes("libsql") || !mayMount)("a disk under libSQL", () => {
  test("that is full keeps nothing half made, and the next start with room makes it", async () => {
    const disk = await makeDisk({ megabytes: 4 });
    const home = await makeHomeAt(undefined, disk.folder);
    try {
      for (const bytes of [100_000, 400_000, 800_000]) {
        const makeRoom = disk.fill(bytes);
        expect(await refusal(home)).toBe(
          "the database has no room left: make some, and start again (database or disk is full)",
        );
        await makeRoom();
        expect(await namesOf(home)).toEqual([]);
      }
      expect(await namesOf(home, start)).toEqual(everyName);
    } finally {
      await disk.remove();
      await home.remove();
    }
  }, 120_000);

  test("that only reads is named with the file", async () => {
    const disk = await makeDisk({ megabytes: 4 });
    const home = await makeHomeAt(undefined, disk.folder);
    try {
      await run(["mount", "-o", "remount,ro", disk.folder]);
      const says = `a file cannot be opened: EROFS: read-only file system, open '${home.place.db}'`;
      expect(await refusal(home)).toBe(says);
    } finally {
      await disk.remove();
      await home.remove();
    }
  }, 120_000);
});
