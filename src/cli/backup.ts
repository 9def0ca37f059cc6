import { existsSync, readdirSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { type Clock, rfc3339 } from "../kit/clock.ts";
import { type Log, silentLog } from "../kit/log.ts";
import { boolean, line, readSettings, type Settings, setting, type Values } from "../kit/setting.ts";
import { masterKeyFileOf, settings } from "../settings/settings.ts";
import { openLibsql } from "../store/libsql.ts";
import { BackupRefusal, backUpLibsql, type Content } from "../store/libsql-backup.ts";
import { drivers } from "../store/libsql-drivers.ts";
import { restoreLibsql } from "../store/libsql-restore.ts";
import { openPostgres } from "../store/postgres.ts";
import { Primary } from "../store/postgres-primary.ts";
import { acceptServer } from "../store/primary-record.ts";
import { othersOn, raiseEpochs } from "../store/schema.ts";
import type { Store } from "../store/store.ts";

const { db, databaseUrl } = settings;

const force = (about: string) => setting({ flag: "--force", parse: boolean, fallback: false, about });

const backupSettings = {
  db,
  databaseUrl,
  to: setting({ flag: "--to", parse: line("FILE"), fallback: undefined, about: "The backup." }),
  force: force("Overwrite a backup of that name."),
};

const restoreSettings = {
  db,
  databaseUrl,
  from: setting({ flag: "--from", parse: line("FILE"), fallback: undefined, about: "The backup." }),
  epoch: setting({ flag: "--epoch", parse: boolean, fallback: false, about: "Only raise the epochs." }),
  moved: setting({
    flag: "--moved",
    parse: boolean,
    fallback: false,
    about: "Only accept the PostgreSQL server that the database is on now; for a move that lost nothing.",
  }),
  force: force("Replace a database that is there; it is kept aside."),
};

type ProcessEnvironment = Readonly<Record<string, string | undefined>>;

export interface Command {
  argv: readonly string[];
  environment: ProcessEnvironment;
  clock: Clock;
  say: (line: string) => void;
  /** Called with how much is done and how much there is. */
  progress?: (done: number, total: number) => void;
  /** Raised by ^C, for a command that ends between two transactions. */
  signal?: AbortSignal;
}

export interface CommandOutcome {
  did: "all" | "nothing: bad arguments" | "nothing: refused";
  /** Why nothing was done, in words for the operator. */
  reasons: readonly string[];
}

const ownName = "svc restore";

/** The settings of a command; a shell that starts servers also holds variables that mean nothing here. */
const read = <Rows extends Settings>(rows: Rows, { argv, environment }: Command) =>
  readSettings(rows, { argv, environment, elsewhere: () => true });

const badArguments = (...reasons: string[]): CommandOutcome => ({ did: "nothing: bad arguments", reasons });

async function unlessRefused(work: () => Promise<void>): Promise<CommandOutcome> {
  try {
    await work();
    return { did: "all", reasons: [] };
  } catch (error) {
    // What fails here are the operator's files and servers: the message names them, and a stack would not
    // help.
    if (error instanceof Error) return { did: "nothing: refused", reasons: [error.message] };
    throw error;
  }
}

const amountOf = (bytes: number): string =>
  bytes < 10_000_000 ? `${Math.ceil(bytes / 1_000)} kB` : `${Math.round(bytes / 1_000_000)} MB`;

const contentLine = ({ bytes, schemaVersion, logs }: Content): string => {
  const events = logs.reduce((sum, { position }) => sum + position, 0);
  return `${amountOf(bytes)}, schema ${schemaVersion}, ${logs.length} environment${logs.length === 1 ? "" : "s"} with ${events} position${events === 1 ? "" : "s"} in all`;
};

/** Key files of the server in the folder of a database. */
const keyFilesBeside = (file: string): string[] =>
  readdirSync(dirname(resolve(file)))
    .filter((name) => /^\.s?svc_\w+/.test(name))
    .map((name) => join(dirname(file), name));

/** `svc backup --db FILE --to FILE` */
export async function backup(command: Command): Promise<CommandOutcome> {
  const { clock, say } = command;
  const outcome = read(backupSettings, command);
  if (!outcome.ok) return badArguments(...outcome.errors);
  const { values, origins } = outcome;
  const { to } = values;
  if (to === undefined) return badArguments("--to FILE is needed: where the backup goes");
  if (values.databaseUrl !== undefined && origins.db !== "flag")
    return badArguments(
      "the database is PostgreSQL: use pg_dump or a base backup (cluster/README.md), or name a --db FILE",
    );
  return unlessRefused(async () => {
    const startedAt = clock.elapsed();
    const options = { file: values.db, to, force: values.force, driver: await drivers.libsql() };
    const content = backUpLibsql(options);
    say(`backup of ${values.db} in ${to}: ${contentLine(content)}`);
    say(`checked and on the disk after ${Math.round(clock.elapsed() - startedAt)} ms`);
    const beside = keyFilesBeside(values.db);
    const names = beside.length > 0 ? beside.join(", ") : `none in ${dirname(resolve(values.db))}`;
    say(`not in it, keep them elsewhere: key files (${names}), settings`);
  });
}

/**
 * `svc restore --from FILE --db FILE`, and `svc restore --epoch` for a database that was restored by other
 * means.
 */
export async function restore(command: Command): Promise<CommandOutcome> {
  const { clock, say } = command;
  const outcome = read(restoreSettings, command);
  if (!outcome.ok) return badArguments(...outcome.errors);
  const { values, origins } = outcome;
  const { from } = values;
  const postgres = origins.db === "flag" ? undefined : values.databaseUrl;
  if (values.epoch && from !== undefined)
    return badArguments("--epoch and --from: choose one; --from raises the epochs too");
  if (values.moved && (values.epoch || from !== undefined))
    return badArguments(
      "--moved: goes with neither --epoch nor --from, which are for a database that was restored",
    );
  if (values.moved && postgres === undefined)
    return badArguments("--moved: is for PostgreSQL, a file is where it is");
  if (values.epoch || values.moved) return unlessRefused(() => accept(values, postgres, command));
  if (from === undefined)
    return badArguments("--from FILE is needed: the backup; or --epoch after pg_restore");
  if (postgres !== undefined)
    return badArguments(
      "the database is PostgreSQL: use pg_restore, then svc restore --epoch (cluster/README.md)",
    );
  return unlessRefused(async () => {
    const stamp = rfc3339(clock.now()).replaceAll(/[-:]|\.\d+/g, "");
    const { content, aside } = restoreLibsql({
      ...{ from, file: values.db, force: values.force, now: clock.now(), stamp },
      driver: await drivers.libsql(),
    });
    say(`${basename(from)} is now ${values.db}: ${contentLine(content)}`);
    const master = masterKeyFileOf({ db: values.db });
    if (!existsSync(master)) say(`the master key is missing: put it into ${master}, or set SVC_MASTER_KEY`);
    if (aside !== undefined) say(`what was there before is kept as ${aside}`);
    say("every log has a new epoch: clients that resume from an older position are told so");
  });
}

/** Asks the operator about a database that nodes would refuse, or whose positions they would mistake. */
async function accept(
  values: Values<typeof restoreSettings>,
  url: string | undefined,
  { clock, say }: Command,
): Promise<void> {
  const log: Log = silentLog;
  const primary = url === undefined ? undefined : new Primary({ url, clock, log });
  const store: Store =
    url === undefined
      ? await openLibsql({ file: values.db, clock, log })
      : await openPostgres({
          url,
          clock,
          log,
          primary,
          poolSize: 1,
          hotPoolSize: 1,
          applicationName: ownName,
        });
  try {
    const others = url === undefined ? [] : await othersOn(store, ownName);
    if (others.length > 0 && !values.force)
      throw new BackupRefusal(
        `others are connected to this database: ${others.join(", ")}. Stop all nodes first: they still know positions that the restore undid (--force goes on regardless)`,
      );
    const server = primary?.lineage.known;
    if (server) await acceptServer(store, server, clock.now());
    if (values.moved)
      return say(`nodes take the server of system identifier ${server?.system ?? "unknown"} from now on`);
    const count = await raiseEpochs(store, clock.now());
    say(
      `${count} log${count === 1 ? " has" : "s have"} a new epoch: clients that resume from an older position are told so`,
    );
  } finally {
    await store.close();
  }
}
