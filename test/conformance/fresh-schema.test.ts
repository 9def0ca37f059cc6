import { expect, test } from "bun:test";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { type Sql, sql } from "../../src/kit/sql.ts";
import { migrations } from "../../src/store/migrations/index.ts";
import { openStore } from "../../src/store/open.ts";
import { type EngineName, engines, type Home, makeHome } from "../support/server.ts";

const catalog: Record<EngineName, readonly Sql[]> = {
  postgres: [
    sql`SELECT table_name, column_name, data_type, is_nullable, column_default, collation_name
      FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY table_name, ordinal_position`,
    sql`SELECT indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY indexname`,
    sql`SELECT conrelid::regclass::text AS place, pg_get_constraintdef(oid) AS text FROM pg_constraint
      WHERE connamespace = current_schema()::regnamespace ORDER BY 1, 2`,
    sql`SELECT relname, reloptions FROM pg_class
      WHERE relnamespace = current_schema()::regnamespace ORDER BY relname`,
  ],
  libsql: [sql`SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name`],
};
const landed = sql`SELECT version, name, hash, compatible FROM migrations ORDER BY version`;

test.each(engines)(
  "a new database on %s is what one becomes migration by migration",
  async (engine) => {
    const homes: Home[] = [];
    async function made(...steps: (typeof migrations)[]): Promise<unknown> {
      const home = await makeHome(engine, { isEmpty: true });
      homes.push(home);
      const { db: file, databaseUrl } = home.place;
      let found: unknown;
      for (const some of steps) {
        const store = await openStore({
          ...{ clock: systemClock(), log: silentLog, file, databaseUrl, migrations: some },
        });
        found = await Promise.all([...catalog[engine], landed].map((query) => store.all(query))).finally(() =>
          store.close(),
        );
      }
      return found;
    }
    try {
      expect(await made(migrations)).toEqual(await made(migrations.slice(0, 1), migrations));
    } finally {
      for (const home of homes) await home.remove();
    }
  },
  60_000,
);

test("a new database on postgres has no table that is planned as if it were empty for good", async () => {
  const home = await makeHome("postgres", { isEmpty: true });
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
}, 60_000);
