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
import { logOf, type PartState, type State, writeState } from "./state.ts";

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
    "--no-locale",
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
    // A commit may wait for a standby that is gone; that is to be seen, not waited for.
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

export async function startPostgresPart(state: State, part: PartState): Promise<void> {
  const { adminUrl, postgresFolder: folder } = state;
  if (adminUrl === undefined || folder === undefined)
    throw new Error("the state file knows no PostgreSQL of ours");
  const data = join(folder, "data");
  if (!existsSync(join(data, "PG_VERSION"))) await initialize(folder, data, adminUrl);
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
  await untilReady("PostgreSQL", part.process, log, () => answers(adminUrl), 60_000);
  await provideDatabase(state, adminUrl);
}
