import { createHash } from "node:crypto";
import type { Clock } from "../kit/clock.ts";
import { columnsOf } from "../kit/columns.ts";
import { Fault } from "../kit/fault.ts";
import type { Log } from "../kit/log.ts";
import { sql } from "../kit/sql.ts";
import { codeOf } from "./postgres-errors.ts";
import { type Session, type Store, type StoreEngine, StoreError } from "./store.ts";

interface OddColumn {
  table_name: string;
  column_name: string;
}

/**
 * Changes the columns of the first table that still sorts and folds by the locale, and answers its name:
 * 0.40.0 made such tables, and may have been stopped while changing them. Rows stay, indexes are rebuilt.
 */
async function sortByBytes(session: Session): Promise<string | undefined> {
  // `to_jsonb`, because servers before version 15 have no such column.
  const found = await session.all<OddColumn>(sql`SELECT c.relname AS table_name, a.attname AS column_name
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_collation l ON l.oid = a.attcollation
      JOIN pg_database d ON d.datname = current_database()
    WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped
      AND l.collname <> 'C'
      AND NOT (l.collname = 'default' AND d.datcollate IN ('C', 'POSIX') AND d.datctype IN ('C', 'POSIX')
        AND COALESCE(to_jsonb(d) ->> 'datlocprovider', 'c') = 'c')
    ORDER BY c.relname, a.attnum`);
  const table = found[0]?.table_name;
  if (table === undefined) return undefined;
  const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`;
  const changes = found
    .filter(({ table_name }) => table_name === table)
    .map(({ column_name }) => `ALTER COLUMN ${quoted(column_name)} TYPE text COLLATE "C"`);
  await session.run(sql.raw(`ALTER TABLE ${quoted(table)} ${changes.join(", ")}`));
  return table;
}

export interface Migration {
  /** 1, 2, 3, …: the order in which they land. */
  version: number;
  name: string;
  /** One statement a text. Never edited once landed. */
  statements: readonly string[] | ((engine: StoreEngine) => readonly string[]);
  /** A program of the version before this one keeps working on the migrated tables (two-phase upgrade). */
  compatible?: boolean;
}

export interface StoreSchema {
  /** How an empty database is made, and what is recorded as landed on it. */
  base: {
    statements(engine: StoreEngine): readonly string[];
    landed(engine: StoreEngine): readonly Landed[];
  };
  /** What lands on a database that lacks it. Whatever else the base has as landed, a database must have. */
  migrations: readonly Migration[];
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
/** A statement that waits for a working node's table gives up and is retried: others would queue after it. */
const tableLockMs = 5_000;
const attemptsMax = 10;

const createTable = `CREATE TABLE IF NOT EXISTS migrations (
  version BIGINT PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL, compatible BIGINT NOT NULL, landed_at BIGINT NOT NULL)`;

export function textOf(migration: Migration, engine: StoreEngine): readonly string[] {
  const { statements } = migration;
  return typeof statements === "function" ? statements(engine) : statements;
}

const hashOf = (statements: readonly string[]): string =>
  createHash("sha256").update(statements.join(";\n")).digest("hex");

export const landedBy = (migration: Migration, engine: StoreEngine): Landed => ({
  ...{ version: migration.version, name: migration.name },
  ...{ hash: hashOf(textOf(migration, engine)), compatible: migration.compatible ? 1 : 0 },
});

/** On PostgreSQL of any locale texts sort and fold by their bytes, as they do in libSQL and our code. */
const sortedByBytes = (statement: string, engine: StoreEngine): string =>
  engine === "postgres" && /^(CREATE|ALTER) TABLE /.test(statement)
    ? statement.replace(/\bTEXT\b(?! COLLATE)/g, 'TEXT COLLATE "C"')
    : statement;

/** SQLite would run the first statement of a text and pass over the rest. */
function requireSingle(migration: Migration, statement: string): void {
  const code = statement.replace(/'(?:[^']|'')*'|"[^"]*"|--[^\n]*|\/\*[\s\S]*?\*\//g, "");
  if (/;\s*\S/.test(code)) throw new Error(`migration ${label(migration)} holds two statements in one text`);
}

const label = ({ version, name }: Pick<Landed, "version" | "name">) =>
  `${String(version).padStart(4, "0")}_${name}`;

export const landedRows = sql`SELECT version, name, hash, compatible FROM migrations ORDER BY version`;

const refused = (message: string, cause?: unknown): Fault =>
  new Fault("failed_precondition", message, { cause });

/** What is still to land. */
export function missingOf(landed: readonly Landed[], { migrations }: StoreSchema): Migration[] {
  const known = new Set(landed.map(({ version }) => version));
  return migrations.filter(({ version }) => !known.has(version)).sort((a, b) => a.version - b.version);
}

/** Refuses what this program must not run on; nothing may have landed yet. */
export function requireFamiliar(
  landed: readonly Landed[],
  { base, migrations }: StoreSchema,
  engine: StoreEngine,
): void {
  const own = new Map(migrations.map((migration) => [migration.version, landedBy(migration, engine)]));
  const needed = base.landed(engine).filter(({ version }) => !own.has(version));
  for (const row of needed) own.set(row.version, row);
  const oldest = needed.at(-1)?.version ?? 0;
  for (const row of landed) {
    const known = own.get(row.version);
    if (known && (known.name !== row.name || known.hash !== row.hash))
      throw refused(
        `migration ${label(known)} has changed since it landed on this database (as ${label(row)}); a landed migration is never edited, add a new one`,
      );
    if (!known && row.version < oldest)
      throw refused(
        `the database's record of migrations has ${label(row)}, which no version of this program ever had: restore a backup`,
      );
    if (!known && row.compatible === 0)
      throw refused(
        `the database is newer than this program: ${label(row)} is unknown here and does not work with older programs`,
      );
  }
  const last = landed.at(-1);
  const lacks = needed.find(({ version }) => !landed.some((row) => row.version === version));
  if (!last || !lacks) return;
  throw refused(
    landed.some(({ version }) => version === oldest)
      ? `the database's record of migrations lacks ${label(lacks)} and has ${label(last)}: restore a backup`
      : `the database is at ${label(last)}, and this program goes on with databases of 0.40.0 and later: start 0.40.0 on it once, ` +
          "by `git checkout cd3b9f12 && bun install` and `bun run start`, then this program",
  );
}

/** One node at a time; the tables themselves are not waited for so patiently. */
const waitForOthers = `SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock(${lockKey});
  SET LOCAL lock_timeout = ${tableLockMs}`;

/** PostgreSQL takes them in one round trip. */
async function runAll(session: Session, statements: readonly string[]): Promise<void> {
  const { engine } = session.seams;
  const texts = statements.map((statement) => sortedByBytes(statement, engine));
  for (const text of engine === "postgres" && texts.length > 0 ? [texts.join(";\n")] : texts)
    await session.run(sql.raw(text));
}

const record = (session: Session, rows: readonly Landed[], clock: Clock): Promise<number> =>
  session.run(sql`INSERT INTO migrations (version, name, hash, compatible, landed_at)
    SELECT version, name, hash, compatible, ${sql.bigint(clock.now())} FROM ${session.seams.rowsFrom("m", {
      ...columnsOf(rows, { text: "name hash", bigint: "version compatible" }),
    })} WHERE true ORDER BY version`);

async function make(session: Session, { base }: StoreSchema, clock: Clock): Promise<void> {
  const { engine } = session.seams;
  try {
    await runAll(session, base.statements(engine));
  } catch (error) {
    // PostgreSQL says it in its own language, SQLite in English.
    if (
      !(error instanceof StoreError && (codeOf(error) === "42P07" || error.detail.includes("already exists")))
    )
      throw error;
    throw refused(
      `the database has tables of svc, but no record of migrations (${error.detail}): restore a backup, or choose an empty database`,
      error,
    );
  }
  await record(session, base.landed(engine), clock);
}

interface MigrationStep {
  event: "store.made" | "store.migrated" | "store.sorted_by_bytes";
  fields: Record<string, unknown>;
  isLast: boolean;
}

/** The next thing that is to be done to the database; each caller waits for the one before. */
async function step(session: Session, schema: StoreSchema, clock: Clock): Promise<MigrationStep | undefined> {
  const { engine } = session.seams;
  await runAll(session, [...(engine === "postgres" ? [waitForOthers] : []), createTable]);
  const landed = await session.all<Landed>(landedRows);
  requireFamiliar(landed, schema, engine);
  const made = landed.length === 0 ? schema.base.landed(engine) : [];
  if (made.length > 0) {
    await make(session, schema, clock);
    const fields = { migration: label(made.at(-1)!) };
    return { event: "store.made", fields, isLast: missingOf(made, schema).length === 0 };
  }
  const [next] = missingOf(landed, schema);
  if (next) {
    const statements = textOf(next, engine);
    for (const statement of statements) requireSingle(next, statement);
    await runAll(session, statements);
    await record(session, [landedBy(next, engine)], clock);
    return { event: "store.migrated", fields: { migration: label(next) }, isLast: false };
  }
  const table = engine === "postgres" ? await sortByBytes(session) : undefined;
  return table === undefined
    ? undefined
    : { event: "store.sorted_by_bytes", fields: { table }, isLast: false };
}

/**
 * What was migrated may have other rows than before. A table without pages is left alone: of one that was
 * never analysed PostgreSQL supposes some rows, of one that was analysed while it was empty none for as long
 * as the plan lives, and then every index costs it the same. The server's own tables are left to it.
 */
async function analyse(session: Session): Promise<void> {
  const tables = await session.all<{ name: string }>(
    sql`SELECT quote_ident(relname) AS name FROM pg_class
      WHERE relnamespace = quote_ident(current_schema())::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0`,
  );
  if (tables.length === 0) return;
  await session.run(sql.raw(`ANALYZE ${tables.map(({ name }) => name).join(", ")}`));
}

/**
 * Makes an empty database, and brings another one to this program's version, one transaction a migration.
 * Several nodes may call it at once.
 */
export async function migrate(
  store: Store,
  schema: StoreSchema,
  { clock, log }: MigrateContext,
): Promise<void> {
  const versions = schema.migrations.map(({ version }) => version);
  const repeated = versions.find((version, place) => versions.indexOf(version) < place);
  if (repeated !== undefined) throw new Error(`two migrations have the version ${repeated}`);
  let isChanged = false;
  for (let failures = 0; ; ) {
    try {
      const startedAt = clock.elapsed();
      const done = await store.write((session) => step(session, schema, clock));
      if (!done) break;
      log.info(done.event, { ...done.fields, ms: Math.round(clock.elapsed() - startedAt) });
      if (done.isLast) break;
      isChanged ||= done.event !== "store.made";
    } catch (error) {
      const waits = error instanceof StoreError && error.trouble === "lock_timeout";
      if (!waits || ++failures >= attemptsMax) throw error;
      log.warn("store.migration_waits", { failures, reason: error.detail });
      await clock.sleep(200 * failures);
    }
  }
  if (isChanged && store.engine === "postgres") await store.write(analyse);
}
