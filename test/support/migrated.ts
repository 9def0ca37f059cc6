import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { hashOf, textOf } from "../../src/store/migrate.ts";
import { migrations } from "../../src/store/migrations/index.ts";
import { openStore } from "../../src/store/open.ts";
import type { Databases } from "./postgres.ts";
import { until } from "./until.ts";

/** Another one for other migrations, so that a server which outlives a change makes a new one. */
const name = `svc_migrated_${hashOf(migrations.flatMap((migration) => textOf(migration, "postgres"))).slice(0, 16)}`;
/** Whoever makes it holds this lock; any number that nothing else here uses. */
const lockKey = 5_120_077_431;

/**
 * The name of a database with all migrations and no rows, on each server one, made by whoever first asks: to copy it takes
 * a third of what the migrations take.
 */
export async function migratedTemplate(databases: Databases): Promise<string> {
  const sql = new Bun.SQL(databases.url, { max: 1, connectionTimeout: 30 });
  try {
    await sql.unsafe(`SELECT pg_advisory_lock(${lockKey})`);
    const found = await sql.unsafe(`SELECT 1 FROM pg_database WHERE datname = '${name}'`);
    if (found.length > 0) return name;
    const url = await databases.createDatabase();
    const store = await openStore({ clock: systemClock(), log: silentLog, databaseUrl: url, poolSize: 2 });
    await store.close();
    // A session that is just ending still keeps it from getting its name.
    const rename = `ALTER DATABASE "${new URL(url).pathname.slice(1)}" RENAME TO ${name}`;
    await until(() => sql.unsafe(rename).then(() => true), { about: "the template to be left", everyMs: 20 });
    return name;
  } finally {
    await sql.close();
  }
}
