import { createHash } from "node:crypto";
import type { Clock } from "../kit/clock.ts";
import type { Log } from "../kit/log.ts";
import { column, sql } from "../kit/sql.ts";
import { sortByBytes } from "./postgres-collation.ts";
import { type Session, type Store, type StoreEngine, StoreError } from "./store.ts";

export interface Migration {
  /** 1, 2, 3, …: the order in which they land. */
  version: number;
  name: string;
  /** One statement a text. Never edited once landed. */
  statements: readonly string[] | ((engine: StoreEngine) => readonly string[]);
  /** A program of the version before this one keeps working on the migrated tables (two-phase upgrade). */
  compatible?: boolean;
}

export interface MigrateContext {
  clock: Clock;
  log: Log;
}

export interface Landed {
  version: number;
  name: string;
  hash: string;
  compatible: number;
}

/** Any number that no other program on the same database uses for an advisory lock. */
const lockKey = 7_236_419_551;
/** A statement that waits for a table of a working node gives up and is tried again, or everyone would queue behind it. */
const tableLockMs = 5_000;
const attemptsMax = 10;

const createTable = sql`CREATE TABLE IF NOT EXISTS migrations (
  version BIGINT PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL, compatible BIGINT NOT NULL, landed_at BIGINT NOT NULL)`;

export function textOf(migration: Migration, engine: StoreEngine): readonly string[] {
  const { statements } = migration;
  return typeof statements === "function" ? statements(engine) : statements;
}

export const hashOf = (statements: readonly string[]): string =>
  createHash("sha256").update(statements.join(";\n")).digest("hex");

/** SQLite would run the first statement of a text and pass over the rest. */
function requireSingle(migration: Migration, statement: string): void {
  const code = statement.replace(/'(?:[^']|'')*'|"[^"]*"|--[^\n]*|\/\*[\s\S]*?\*\//g, "");
  if (/;\s*\S/.test(code)) throw new Error(`migration ${label(migration)} holds two statements in one text`);
}

const label = ({ version, name }: { version: number; name: string }) =>
  `${String(version).padStart(4, "0")}_${name}`;

/** Refuses what this program must not run on. */
export function requireFamiliar(
  landed: readonly Landed[],
  migrations: readonly Migration[],
  engine: StoreEngine,
): void {
  for (const row of landed) {
    const own = migrations.find((migration) => migration.version === row.version);
    if (own) {
      if (own.name === row.name && hashOf(textOf(own, engine)) === row.hash) continue;
      throw new Error(
        `migration ${label(own)} has changed since it landed on this database (as ${label(row)}); a landed migration is never edited, add a new one`,
      );
    }
    if (row.compatible === 0) {
      throw new Error(
        `the database is newer than this program: ${label(row)} is unknown here and does not work with older programs`,
      );
    }
  }
}

/** One node at a time; the tables themselves are not waited for so patiently. */
async function waitForOthers(session: Session): Promise<void> {
  await session.run(sql`SET LOCAL lock_timeout = 0`);
  await session.run(sql`SELECT pg_advisory_xact_lock(${lockKey})`);
  await session.run(sql.raw(`SET LOCAL lock_timeout = ${tableLockMs}`));
}

/**
 * Lands the first migration that is missing, and on a database without any all of them; answers which. Every caller waits
 * for the one before.
 */
async function landNext(
  session: Session,
  migrations: readonly Migration[],
  clock: Clock,
): Promise<Migration[]> {
  const { engine } = session.seams;
  if (engine === "postgres") await waitForOthers(session);
  await session.run(createTable);
  const landed = await session.all<Landed>(
    sql`SELECT version, name, hash, compatible FROM migrations ORDER BY version`,
  );
  requireFamiliar(landed, migrations, engine);
  const known = new Set(landed.map((row) => row.version));
  const missing = migrations.filter((migration) => !known.has(migration.version));
  const next = landed.length === 0 ? missing : missing.slice(0, 1);
  const texts = next.map((migration) => textOf(migration, engine));
  for (const [at, statements] of texts.entries())
    for (const statement of statements) requireSingle(next[at]!, statement);
  const all = texts.flat();
  // PostgreSQL takes them in one round trip.
  for (const text of engine === "postgres" && all.length > 0 ? [all.join(";\n")] : all)
    await session.run(sql.raw(text));
  if (next.length > 0)
    await session.run(sql`INSERT INTO migrations (version, name, hash, compatible, landed_at)
      SELECT version, name, hash, compatible, ${sql.bigint(clock.now())} FROM ${session.seams.rowsFrom("m", {
        version: column.bigint(next.map(({ version }) => version)),
        name: column.text(next.map(({ name }) => name)),
        hash: column.text(texts.map(hashOf)),
        compatible: column.bigint(next.map(({ compatible }) => (compatible ? 1 : 0))),
      })} WHERE true ORDER BY version`);
  return next;
}

/** One transaction a step until a step finds nothing more to do; answers how many things were done. */
async function stepByStep(
  store: Store,
  { clock, log }: MigrateContext,
  event: string,
  step: (session: Session) => Promise<Record<string, unknown>[]>,
): Promise<number> {
  for (let count = 0, failures = 0; ; ) {
    try {
      const startedAt = clock.elapsed();
      const done = await store.write(step);
      if (done.length === 0) return count;
      count += done.length;
      const ms = Math.round(clock.elapsed() - startedAt);
      for (const fields of done) log.info(event, { ...fields, ms });
    } catch (error) {
      const waits = error instanceof StoreError && error.trouble === "lock_timeout";
      if (!waits || ++failures >= attemptsMax) throw error;
      log.warn("store.migration_waits", { failures, reason: error.detail });
      await clock.sleep(200 * failures);
    }
  }
}

/**
 * What was migrated may have other rows than before. A table without pages is left alone: of one that was never analysed
 * PostgreSQL supposes some rows, of one that was analysed while it was empty none for as long as the plan lives, and then
 * every index costs it the same. The server's own tables are left to it.
 */
async function analyse(session: Session): Promise<void> {
  const tables = await session.all<{ name: string }>(
    sql`SELECT quote_ident(relname) AS name FROM pg_class
      WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0`,
  );
  if (tables.length === 0) return;
  await session.run(sql.raw(`ANALYZE ${tables.map(({ name }) => name).join(", ")}`));
}

/**
 * Brings the database to this program's version, one transaction a migration, and one for all where nothing is yet. Several
 * nodes may call it at once.
 */
export async function migrate(
  store: Store,
  migrations: readonly Migration[],
  context: MigrateContext,
): Promise<void> {
  const ordered = [...migrations].sort((a, b) => a.version - b.version);
  const repeated = ordered.find((migration, place) => migration.version === ordered[place - 1]?.version);
  if (repeated) throw new Error(`two migrations have the version ${repeated.version}`);

  let isNew = false;
  let count = await stepByStep(store, context, "store.migrated", async (session) => {
    const landed = await landNext(session, ordered, context.clock);
    isNew ||= landed.length > 1;
    return landed.map((migration) => ({ migration: label(migration) }));
  });
  if (store.engine !== "postgres") return;
  // Tables without rows are changed in no time.
  const most = isNew ? Number.POSITIVE_INFINITY : 1;
  count += await stepByStep(store, context, "store.sorted_by_bytes", async (session) => {
    await waitForOthers(session);
    return (await sortByBytes(session, most)).map((table) => ({ table }));
  });
  if (count > 0) await store.write(analyse);
}
