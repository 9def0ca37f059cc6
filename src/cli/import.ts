import { existsSync } from "node:fs";
import { systemIds } from "../kit/ids.ts";
import { silentLog } from "../kit/log.ts";
import { hashPassword } from "../kit/password.ts";
import { boolean, matching, readSettings, setting, type Values } from "../kit/setting.ts";
import { sql } from "../kit/sql.ts";
import { settings } from "../settings/settings.ts";
import { openLibsql } from "../store/libsql.ts";
import { type Landed, landedRows, missingOf, requireFamiliar } from "../store/migrate.ts";
import { openPostgres } from "../store/postgres.ts";
import { schema } from "../store/schema.ts";
import type { Session, Store } from "../store/store.ts";
import type { Command, CommandOutcome } from "./backup.ts";
import { BadFile, type CheckedFile, linesOf, parsedLine, requireWhole } from "./import-file.ts";
import { idsFor, LineReader, type RequireRow } from "./import-rows.ts";
import { ImportWriter } from "./import-writer.ts";
import { importToldEveryLines } from "./limits.ts";

const { db, databaseUrl } = settings;

const importSettings = {
  db,
  databaseUrl,
  org: setting({
    flag: "--org",
    parse: matching(/^org_[A-Za-z0-9_-]{1,60}$/, "an org's id", "ORG"),
    fallback: undefined,
    otherwise: "a new org",
    about: "The empty org that it goes to.",
  }),
  undo: setting({
    flag: "--undo",
    parse: boolean,
    fallback: false,
    about: "Take back an import that is not finished.",
  }),
};

/** An import that is not finished. */
interface ImportRow {
  org_id: string;
  sum: string;
  line_count: number;
  environment_ids: string;
  started_at: number;
}

const columns = sql.raw("org_id, sum, line_count, environment_ids, started_at");

/** Of the ids that an import gives: one that was taken back leaves tombstones, and the next has others. */
export const seedOf = ({ org_id, started_at }: Pick<ImportRow, "org_id" | "started_at">): string =>
  `${org_id} ${started_at}`;

/** Why nothing, or nothing more, was done; for the operator. */
class ImportRefusal extends Error {}

const ownName = "svc import";

async function openMigrated(
  { db: file, databaseUrl: url }: Values<typeof importSettings>,
  { clock }: Command,
): Promise<Store> {
  if (url === undefined && !existsSync(file))
    throw new ImportRefusal(`there is no database ${file}: start the server once, or name a --db FILE`);
  const log = silentLog;
  const store =
    url === undefined
      ? await openLibsql({ file, clock, log })
      : await openPostgres({ url, clock, log, poolSize: 1, hotPoolSize: 1, applicationName: ownName });
  try {
    const landed = await store.all<Landed>(landedRows);
    requireFamiliar(landed, schema, store.engine);
    if (missingOf(landed, schema).length > 0)
      throw new ImportRefusal("the database is of an older version: start the server of this version once");
    return store;
  } catch (error) {
    await store.close();
    throw error;
  }
}

const tablesOfEmpty = ["environments", "projects", "roles", "policies", "users"];

async function requireEmpty(session: Session, orgId: string): Promise<void> {
  const org = await session.one(sql`SELECT id FROM orgs WHERE id = ${orgId} ${session.seams.holdRow}`);
  if (!org || orgId === "org_platform") throw new ImportRefusal(`org ${orgId} not found`);
  for (const table of tablesOfEmpty)
    if (await session.one(sql`SELECT org_id FROM ${sql.raw(table)} WHERE org_id = ${orgId} LIMIT 1`))
      throw new ImportRefusal(`org ${orgId} is not empty: it has ${table}. Import into a new org`);
}

/** The import that goes on, or a new one into an empty org. */
function beginImport(
  store: Store,
  { meta, sum }: CheckedFile,
  wanted: string | undefined,
  { clock }: Command,
): Promise<ImportRow> {
  const ids = systemIds(clock);
  return store.write(async (session) => {
    const ofOrg = wanted === undefined ? sql`sum = ${sum}` : sql`org_id = ${wanted}`;
    const before = await session.one<ImportRow>(
      sql`SELECT ${columns} FROM imports WHERE ${ofOrg} ORDER BY org_id LIMIT 1`,
    );
    if (before && before.sum !== sum)
      throw new ImportRefusal(
        `an import of another file into org ${before.org_id} is not finished: import that file again, or add --undo`,
      );
    if (before) return before;
    const now = clock.now();
    const orgId = wanted ?? ids.next("org");
    const { name, preferences } = meta.org;
    if (wanted === undefined)
      await session.run(sql`INSERT INTO orgs (id, name, preferences, created_at, updated_at) VALUES (${orgId}, ${name},
        ${preferences === undefined ? null : JSON.stringify(preferences)}, ${now}, ${now})`);
    await requireEmpty(session, orgId);
    const idOf = idsFor(seedOf({ org_id: orgId, started_at: now }));
    const environmentIds = JSON.stringify(meta.environments.map(({ id }) => idOf(id)));
    await session.run(sql`INSERT INTO imports (org_id, sum, line_count, environment_ids, started_at)
      VALUES (${orgId}, ${sum}, 0, ${environmentIds}, ${now})`);
    return { org_id: orgId, sum, line_count: 0, environment_ids: environmentIds, started_at: now };
  });
}

/** The org is empty again; the purge deletes what is left under environments that never were. */
const undoImport = (store: Store, { org_id: orgId, environment_ids }: ImportRow, now: number) =>
  store.write(async (session) => {
    for (const id of JSON.parse(environment_ids) as string[])
      await session.run(sql`INSERT INTO deleted_environments (id, org_id, project_id, name, deleted_at)
        VALUES (${id}, ${orgId}, NULL, ${"imported"}, ${now}) ON CONFLICT (id) DO NOTHING`);
    for (const table of [
      "policy_versions",
      "role_policies",
      "policies",
      "roles",
      "users",
      "projects",
      "imports",
    ])
      await session.run(sql`DELETE FROM ${sql.raw(table)} WHERE org_id = ${orgId}`);
  });

export interface ImportCommand extends Command {
  requireRow: RequireRow;
}

/** Every line between the first and the last, with its number and its size. */
async function eachLine(
  file: string,
  { lineCount }: CheckedFile,
  work: (value: unknown, at: { number: number; bytes: number }) => Promise<void> | void,
): Promise<void> {
  let number = -1;
  for await (const lines of linesOf(file))
    for (const line of lines) {
      number++;
      if (number === 0) continue;
      if (number > lineCount) return;
      const done = work(parsedLine(line, number + 1), { number, bytes: line.length });
      if (done) await done;
    }
}

async function write(
  store: Store,
  file: string,
  checked: CheckedFile,
  { begun, command }: { begun: ImportRow; command: ImportCommand },
): Promise<void> {
  const { clock, say, signal, progress } = command;
  let toldAt = begun.line_count;
  const writer = new ImportWriter({
    ...{ store, orgId: begun.org_id, file: checked, now: clock.now(), written: begun.line_count },
    idOf: idsFor(seedOf(begun)),
    passwordHash: await hashPassword(systemIds(clock).secret(32)),
    onCommitted(lineCount) {
      progress?.(lineCount, checked.lineCount);
      if (signal?.aborted)
        throw new ImportRefusal(`interrupted after ${lineCount} of ${checked.lineCount} lines`);
      if (lineCount - toldAt < importToldEveryLines) return;
      toldAt = lineCount;
      say(`${lineCount} of ${checked.lineCount} lines`);
    },
  });
  const reader = new LineReader(checked.meta, command.requireRow);
  await eachLine(file, checked, (value, at) => writer.add(reader.read(value, at.number + 1), at));
  await writer.finish();
  const { endedRuns, usersElsewhere, passedOver } = writer.tally;
  const environments = checked.meta.environments.map(({ name }) => name).join(", ");
  say(`${file} is now org ${begun.org_id}, with environments ${environments || "(none)"}`);
  say(
    `${checked.lineCount - passedOver} rows; ${passedOver} of the audit, webhooks and SQL projections stay in the file`,
  );
  if (endedRuns > 0) say(`${endedRuns} runs were not over: they are cancelled here`);
  if (usersElsewhere > 0)
    say(`${usersElsewhere} users are left out: this installation has their addresses already`);
  say("users have no password and the org no key or secret: make them anew");
}

/** `svc import FILE`, into an org without anything in it. */
export async function importOrg(command: ImportCommand): Promise<CommandOutcome> {
  const { argv, environment, clock, say } = command;
  const files: string[] = [];
  const outcome = readSettings(importSettings, { argv, environment, elsewhere: () => true, words: files });
  const errors = outcome.ok ? [] : outcome.errors;
  if (files.length !== 1) errors.push("one FILE is needed: what GET /api/v1/export answered");
  if (!outcome.ok || errors.length > 0) return { did: "nothing: bad arguments", reasons: errors };
  const [file] = files as [string];
  const { values, origins } = outcome;
  const place = origins.db === "flag" ? { ...values, databaseUrl: undefined } : values;
  let begun: ImportRow | undefined;
  let store: Store | undefined;
  try {
    if (!existsSync(file)) throw new ImportRefusal(`${file} not found`);
    const checked = await requireWhole(file);
    const reader = new LineReader(checked.meta, command.requireRow);
    await eachLine(file, checked, (value, { number }) => void reader.read(value, number + 1));
    reader.requireLogs();
    store = await openMigrated(place, command);
    if (values.undo) {
      const found = await store.one<ImportRow>(sql`SELECT ${columns} FROM imports
        WHERE sum = ${checked.sum} ORDER BY org_id LIMIT 1`);
      if (!found) throw new ImportRefusal(`no import of ${file} is under way`);
      await undoImport(store, found, clock.now());
      say(`the import into org ${found.org_id} is taken back: the org is empty`);
      return { did: "all", reasons: [] };
    }
    begun = await beginImport(store, checked, values.org, command);
    if (begun.line_count > 0) say(`going on behind line ${begun.line_count} of ${checked.lineCount}`);
    await write(store, file, checked, { begun, command });
    return { did: "all", reasons: [] };
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    if (begun && store && error instanceof BadFile) {
      await undoImport(store, begun, clock.now());
      return { did: "nothing: refused", reasons: [error.message, "what was written is taken back"] };
    }
    const goOn = "the same command goes on from there; with --undo it is taken back";
    return { did: "nothing: refused", reasons: begun ? [error.message, goOn] : [error.message] };
  } finally {
    await store?.close();
  }
}
