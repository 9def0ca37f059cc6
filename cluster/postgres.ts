import { randomBytes } from "node:crypto";
import {
  appendFileSync,
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { startDetached, untilReady } from "./processes.ts";
import { asServerUser, findPostgresProgram, giveToServerUser, run } from "./programs.ts";
import { logOf, type PartState, partsOf, type State, writeState } from "./state.ts";

const conf = join(import.meta.dirname, "postgres.conf");

const passwordOf = (url: string) => decodeURIComponent(new URL(url).password);

/** URLs of a PostgreSQL that is yet to be made, each user with a password of its own. */
export function newPostgresUrls(port: number): { databaseUrl: string; adminUrl: string } {
  const password = () => randomBytes(18).toString("hex");
  return {
    databaseUrl: `postgres://svc:${password()}@127.0.0.1:${port}/svc`,
    adminUrl: `postgres://postgres:${password()}@127.0.0.1:${port}/postgres`,
  };
}

async function canEnter(folder: string): Promise<boolean> {
  const child = Bun.spawn(asServerUser(["test", "-x", folder]), {
    cwd: "/",
    stdio: ["ignore", "ignore", "ignore"],
  });
  return (await child.exited) === 0;
}

/** A folder of the server's user: below the cluster's, or in /var/tmp when that user cannot walk there (below /root, say). */
export async function makePostgresFolder(folder: string): Promise<string> {
  mkdirSync(folder, { recursive: true });
  chmodSync(folder, 0o711);
  const wanted = join(folder, "postgres");
  const made = (await canEnter(folder)) ? wanted : mkdtempSync("/var/tmp/svc-postgres-");
  mkdirSync(made, { recursive: true, mode: 0o700 });
  giveToServerUser(made);
  return made;
}

async function initialize(folder: string, data: string, adminUrl: string): Promise<void> {
  const passwordFile = join(folder, "password");
  writeFileSync(passwordFile, `${passwordOf(adminUrl)}\n`, { mode: 0o600 });
  giveToServerUser(passwordFile);
  // Made under another name: a start that was cut off leaves no half of a database.
  const making = `${data}.making`;
  rmSync(making, { recursive: true, force: true });
  const options = [
    "-U",
    "postgres",
    "-A",
    "scram-sha-256",
    "--pwfile",
    passwordFile,
    "-E",
    "UTF8",
    "--locale=C.UTF-8",
  ];
  try {
    await run(asServerUser([findPostgresProgram("initdb"), "-D", making, ...options]));
  } finally {
    rmSync(passwordFile, { force: true });
  }
  appendFileSync(join(making, "postgresql.conf"), "\ninclude 'svc.conf'\n");
  await run(["mv", making, data]);
}

/** The role and the database of the nodes; left alone where they are. */
async function provideDatabase(state: State, adminUrl: string): Promise<void> {
  const quoted = (text: string) => `'${text.replaceAll("'", "''")}'`;
  const sql = new Bun.SQL(adminUrl, { max: 1 });
  try {
    // A commit may wait for a standby that is gone; nothing here is worth that.
    await sql.unsafe("SET synchronous_commit = 'local'");
    await sql.unsafe("SET statement_timeout = '10s'");
    const has = async (query: string) => ((await sql.unsafe(query)) as unknown[]).length > 0;
    if (!(await has("SELECT 1 FROM pg_roles WHERE rolname = 'svc'")))
      await sql.unsafe(`CREATE ROLE svc LOGIN PASSWORD ${quoted(passwordOf(state.databaseUrl))}`);
    // SQL over an environment runs as a role of that environment, which the nodes make.
    await sql.unsafe("ALTER ROLE svc CREATEROLE");
    if (!(await has("SELECT 1 FROM pg_database WHERE datname = 'svc'")))
      await sql.unsafe("CREATE DATABASE svc OWNER svc");
    // Since 15 a user may be allowed to find its deadlocks sooner; older servers have it from postgres.conf.
    const mayGrant = await has("SELECT 1 FROM pg_proc WHERE proname = 'has_parameter_privilege'");
    const isGranted = "SELECT 1 WHERE has_parameter_privilege('svc', 'deadlock_timeout', 'SET')";
    if (mayGrant && !(await has(isGranted)))
      await sql.unsafe("GRANT SET ON PARAMETER deadlock_timeout TO svc");
  } finally {
    await sql.close();
  }
}

async function answers(url: string): Promise<boolean> {
  const sql = new Bun.SQL(url, { max: 1, connectionTimeout: 2 });
  try {
    await sql.unsafe("SELECT 1");
    return true;
  } catch {
    return false;
  } finally {
    await sql.close();
  }
}

/** Of the first server the folder that it always had. */
export const dataOf = ({ postgresFolder = "" }: State, part: PartState): string =>
  join(postgresFolder, part.name === "postgres" ? "data" : part.name);

export const hasData = (state: State, part: PartState): boolean =>
  existsSync(join(dataOf(state, part), "PG_VERSION"));

const adminUrlOf = ({ adminUrl = "" }: State, { port }: PartState): string =>
  Object.assign(new URL(adminUrl), { port: String(port) }).href;

async function asked<Row>(url: string, query: string): Promise<Row | undefined> {
  const sql = new Bun.SQL(url, { max: 1, connectionTimeout: 2 });
  try {
    return ((await sql.unsafe(query)) as Row[])[0];
  } finally {
    await sql.close();
  }
}

async function isPrimary(url: string): Promise<boolean> {
  const row = await asked<{ standby: boolean }>(url, "SELECT pg_is_in_recovery() AS standby").catch(
    () => undefined,
  );
  return row?.standby === false;
}

/** The server that can be written, when one runs. */
async function primaryOf(state: State, besides: PartState): Promise<PartState | undefined> {
  for (const part of partsOf(state, "postgres"))
    if (part.name !== besides.name && (await isPrimary(adminUrlOf(state, part)))) return part;
  return undefined;
}

/** A standby of that server, with all that it has. */
async function copyFrom(state: State, primary: PartState, part: PartState): Promise<void> {
  const data = dataOf(state, part);
  const making = `${data}.making`;
  rmSync(making, { recursive: true, force: true });
  const source = `${adminUrlOf(state, primary)}?application_name=${part.name}`;
  const options = ["-R", "-X", "stream", "--checkpoint=fast"];
  await run(asServerUser([findPostgresProgram("pg_basebackup"), "-d", source, "-D", making, ...options]));
  await run(["mv", making, data]);
}

/**
 * From now on a commit waits for the standby's disk, so that its promotion loses nothing. The standby was copied before, so
 * that it waits for no other when it is promoted.
 */
async function commitOnBoth(state: State, primary: PartState, standby: PartState): Promise<void> {
  const url = adminUrlOf(state, primary);
  await asked(url, `ALTER SYSTEM SET synchronous_standby_names = '${standby.name}'`);
  await asked(url, "SELECT pg_reload_conf()");
}

export async function startPostgresPart(state: State, part: PartState): Promise<void> {
  const { adminUrl, postgresFolder: folder } = state;
  if (adminUrl === undefined || folder === undefined)
    throw new Error("the state file knows no PostgreSQL of ours");
  const data = dataOf(state, part);
  const primary = hasData(state, part) ? undefined : await primaryOf(state, part);
  if (primary) await copyFrom(state, primary, part);
  else if (!hasData(state, part)) {
    const others = partsOf(state, "postgres").filter((one) => one.name !== part.name);
    if (others.some((one) => hasData(state, one)))
      throw new Error(
        `${part.name} has no data, and no primary runs to copy them from: start or promote ${others[0]?.name}`,
      );
    await initialize(folder, data, adminUrl);
  }
  // As it stands in the tree now; changes take effect with this start.
  const own = join(data, "svc.conf");
  copyFileSync(conf, own);
  chmodSync(own, 0o600);
  giveToServerUser(own);
  // No Unix socket: its path could become too long, and nobody needs it.
  const instance = { listen_addresses: "127.0.0.1", port: String(part.port), unix_socket_directories: "" };
  const settings = Object.entries(instance).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const log = logOf(state, part);
  const command = asServerUser([findPostgresProgram("postgres"), "-D", data, ...settings]);
  part.process = startDetached(command, { folder: "/", log });
  writeState(state);
  const url = adminUrlOf(state, part);
  await untilReady(part.name, part.process, log, () => answers(url), 60_000);
  if (primary) await commitOnBoth(state, primary, part);
  else if (await isPrimary(url)) await provideDatabase(state, url);
}
