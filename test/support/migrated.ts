import { mkdtemp, readFile, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../src/kit/clock.ts";
import { silentLog } from "../../src/kit/log.ts";
import { openStore } from "../../src/store/open.ts";
import { schema } from "../../src/store/schema.ts";
import type { Databases } from "./postgres.ts";
import { removeFolder } from "./process.ts";
import { until } from "./until.ts";

const made = JSON.stringify([schema.base.statements("postgres"), schema.base.landed("postgres")]);
/** Another one for another schema, so that a server which outlives a change makes a new one. */
const name = `svc_migrated_${Bun.hash(made).toString(16)}`;
/** Whoever makes it holds this lock; any number that nothing else here uses. */
const lockKey = 5_120_077_431;

const make = async (place: { databaseUrl: string } | { file: string }) =>
  (await openStore({ clock: systemClock(), log: silentLog, poolSize: 2, ...place })).close();

let template: Promise<string> | undefined;
let bytes: Promise<Uint8Array> | undefined;

/** The name of a database with all tables and no rows, on each server one, made by who first asks. */
export function migratedTemplate(databases: Databases): Promise<string> {
  template ??= makeTemplate(databases);
  return template;
}

async function makeTemplate(databases: Databases): Promise<string> {
  const sql = new Bun.SQL(databases.url, { max: 1, connectionTimeout: 30 });
  try {
    await sql.unsafe(`SELECT pg_advisory_lock(${lockKey})`);
    const found = await sql.unsafe(`SELECT 1 FROM pg_database WHERE datname = '${name}'`);
    if (found.length > 0) return name;
    const databaseUrl = await databases.createDatabase();
    await make({ databaseUrl });
    // A session that is just ending still keeps it from getting its name.
    const rename = `ALTER DATABASE "${new URL(databaseUrl).pathname.slice(1)}" RENAME TO ${name}`;
    await until(() => sql.unsafe(rename).then(() => true), { about: "the template to be left", everyMs: 20 });
    return name;
  } finally {
    await sql.close();
  }
}

/** The same of libSQL: the file is made once a process. */
export async function copyMigrated(to: string): Promise<void> {
  bytes ??= makeBytes();
  await writeFile(to, await bytes, { mode: 0o600 });
}

async function makeBytes(): Promise<Uint8Array> {
  const folder = await mkdtemp(join(tmpdir(), "svc-migrated-"));
  const file = join(folder, "svc.db");
  try {
    await make({ file });
    return await readFile(file);
  } finally {
    await removeFolder(folder);
  }
}
