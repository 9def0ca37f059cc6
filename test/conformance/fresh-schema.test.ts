import { expect, test } from "bun:test";
import { systemClock } from "../../src/kit/clock.ts";
import { type Log, silentLog } from "../../src/kit/log.ts";
import { type Sql, sql } from "../../src/kit/sql.ts";
import { openStore } from "../../src/store/open.ts";
import type { Row } from "../../src/store/store.ts";
import { emptyHome, homeOf040, runOn } from "../support/of-0.40.0.ts";
import { type EngineName, engines, type Home } from "../support/server.ts";

const catalog: Record<EngineName, readonly Sql[]> = {
  postgres: [
    sql`SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name
      FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY table_name, ordinal_position`,
    sql`SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY indexname`,
    sql`SELECT conrelid::regclass::text AS place, conname, pg_get_constraintdef(oid) AS text FROM pg_constraint
      WHERE connamespace = current_schema()::regnamespace ORDER BY 1, 2`,
    sql`SELECT relname, (SELECT array_agg(o ORDER BY o) FROM unnest(reloptions) o)::text AS options FROM pg_class
      WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' ORDER BY relname`,
  ],
  libsql: [sql`SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name`],
};
const landed = sql`SELECT version, name, hash, compatible FROM migrations ORDER BY version`;

/** SQLite keeps the text of each statement as it was given. */
const plain = (row: Row): Row =>
  typeof row.sql === "string" ? { ...row, sql: row.sql.replace(/\s+/g, " ").replaceAll("( ", "(") } : row;

/** What the catalogs say of a database after a start, and what the start did. */
async function started(home: Home, engine: EngineName): Promise<{ found: Row[][]; events: string[] }> {
  const events: string[] = [];
  const log: Log = { ...silentLog, info: (name) => void events.push(name) };
  const { db: file, databaseUrl } = home.place;
  const store = await openStore({ clock: systemClock(), log, file, databaseUrl });
  try {
    const found = await Promise.all([...catalog[engine], landed].map((query) => store.all(query)));
    return { found: found.map((rows) => rows.map(plain)), events };
  } finally {
    await store.close();
  }
}

test.each(engines)(
  "a new database on %s is what one of 0.40.0 becomes, and is made at once",
  async (engine) => {
    const homes = [await emptyHome(engine), await homeOf040(engine)];
    try {
      const [made, migrated] = [await started(homes[0]!, engine), await started(homes[1]!, engine)];
      expect(made.found).toEqual(migrated.found);
      expect(made.found[0]!.length).toBeGreaterThan(200);
      expect(made.events).toEqual(["store.made"]);
      expect((await started(homes[0]!, engine)).events).toEqual([]);
      expect((await started(homes[1]!, engine)).events).toEqual([]);
    } finally {
      for (const home of homes) await home.remove();
    }
  },
  60_000,
);

test.skipIf(!engines.includes("postgres"))(
  "0.40.0 may have been stopped while it changed how columns sort: the next start goes on, and keeps the rows",
  async () => {
    const home = await homeOf040("postgres");
    try {
      await runOn(
        home,
        `ALTER TABLE agents ALTER COLUMN name TYPE text COLLATE "C";
        INSERT INTO orgs (id, name, created_at, updated_at) VALUES ('b', '', 0, 0), ('A', '', 0, 0), ('_', '', 0, 0)`,
      );
      const { events } = await started(home, "postgres");
      expect(events).toContain("store.sorted_by_bytes");
      const { databaseUrl } = home.place;
      const store = await openStore({ clock: systemClock(), log: silentLog, databaseUrl });
      const ids = await store.all(sql`SELECT id FROM orgs WHERE length(id) = 1 ORDER BY id`);
      await store.close();
      expect(ids).toEqual(["A", "_", "b"].map((id) => ({ id })));
    } finally {
      await home.remove();
    }
  },
  60_000,
);

test("a new database on postgres has no table that is planned as if it were empty for good", async () => {
  const home = await emptyHome("postgres");
  const { databaseUrl } = home.place;
  const store = await openStore({ clock: systemClock(), log: silentLog, databaseUrl });
  try {
    const believedEmpty = await store.all(sql`SELECT relname FROM pg_class
      WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND reltuples = 0`);
    expect(believedEmpty).toEqual([]);
  } finally {
    await store.close();
    await home.remove();
  }
}, 120_000);
