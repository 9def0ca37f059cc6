import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { asServerUser, findPostgresProgram, giveToServerUser } from "../../cluster/programs.ts";
import { databasePrefix } from "../../src/store/postgres-roles.ts";
import { freePort, lastWordsOf, type RunningProgram, removeFolder, run, startProgram } from "./process.ts";
import { until } from "./until.ts";

export interface Databases {
  /** The maintenance database, as superuser. */
  url: string;
  /**
   * A database, empty unless it is a copy of a template; answers its URL. With a locale it sorts and folds as that says, as
   * those of a company do.
   */
  createDatabase(options?: { icuLocale?: string; template?: string }): Promise<string>;
  dropDatabase(url: string): Promise<void>;
}

export interface PostgresServer extends Databases {
  port: number;
  dataDir: string;
  pid(): number;
  /** Ends the server and removes its folder. */
  stop(): Promise<void>;
  /** Same port and data; also brings back a server that was killed. */
  restart(): Promise<void>;
  /** Ends the server as an operator would, without waiting for its clients; `restart` brings it back. */
  shutDown(): Promise<void>;
  /** Makes a standby the primary, of the next timeline; the server that it followed is not told. */
  promote(): Promise<void>;
  /** Stops every process of the server where it stands. */
  freeze(): void;
  /** SIGKILL to the server and all its backends, as a lost machine would look like from outside. */
  kill9(): Promise<void>;
}

export interface PostgresOptions {
  settings?: Record<string, string>;
  /** Further networks that may connect: `10.0.0.2/32`. */
  networks?: readonly string[];
  /** Where the data lies, instead of a temporary folder; it may hold the data of another server that has ended. */
  folder?: string;
  /** Streams from that server until `promote`. */
  standbyOf?: PostgresServer;
  /** Where its programs stand, instead of those of this machine. */
  programs?: string;
  /** Serves TLS with this certificate; clear connections stay possible. */
  tls?: { certFile: string; keyFile: string };
}

const settings = {
  listen_addresses: "127.0.0.1",
  max_connections: "200",
  fsync: "on",
  synchronous_commit: "on",
};
const debianPackage = "postgresql-15";

export const findInitdb = (): string => findPostgresProgram("initdb", debianPackage);

function childrenOf(pid: number): number[] {
  const parentOf = (entry: string) => {
    try {
      return Number(readFileSync(`/proc/${entry}/stat`, "utf8").split(") ").at(-1)?.split(" ")[1]);
    } catch {
      return undefined;
    }
  };
  return readdirSync("/proc")
    .filter((entry) => /^\d+$/.test(entry) && parentOf(entry) === pid)
    .map(Number);
}

let databasesMade = 0;

export function databasesAt(url: string): Databases {
  const admin = async (statement: string) => {
    const sql = new Bun.SQL(url, { max: 1, connectionTimeout: 30 });
    try {
      return await sql.unsafe(statement);
    } finally {
      await sql.close().catch(() => {});
    }
  };
  const quoted = (name: string) => `"${name.replaceAll('"', '""')}"`;
  return {
    url,
    async createDatabase({ icuLocale, template } = {}) {
      const kind = icuLocale
        ? ` TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE ${quoted(icuLocale)}`
        : template
          ? // Its pages through the log would cost almost twice as much.
            ` TEMPLATE ${quoted(template)} STRATEGY FILE_COPY`
          : "";
      // A second try has another name: the first may have made its database and lost the answer.
      const name = await until(
        async () => {
          const own = `svc_test_${process.pid}_${++databasesMade}_${Bun.hash(String(performance.now()))}`;
          await admin(`CREATE DATABASE ${quoted(own)}${kind}`);
          return own;
        },
        { about: "a database to be made", everyMs: 100 },
      );
      const made = new URL(url);
      made.pathname = `/${encodeURIComponent(name)}`;
      return made.href;
    },
    async dropDatabase(made) {
      const own = decodeURIComponent(new URL(made).pathname.slice(1));
      const name = quoted(own);
      // Tidying up is no claim: a session that came in between, or a lost connection, is passed by.
      await until(() => admin(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`).then(() => true), {
        about: `database ${name} to be dropped`,
        everyMs: 100,
      });
      // Roles of its environments belong to the whole server and outlive it.
      const roles = await admin(`SELECT rolname FROM pg_roles WHERE rolname LIKE '${databasePrefix(own)}%'`);
      if (roles.length > 0)
        await admin(
          roles
            .map(({ rolname }: { rolname: string }) => `DROP ROLE IF EXISTS ${quoted(rolname)}`)
            .join("; "),
        );
    },
  };
}

// The folder outlives no process that used it, however that ended.
const templateGuard = 'cat >/dev/null; rm -rf -- "$1"';
const templates = new Map<string, Promise<string>>();

/** A data directory as initdb leaves it, made once in a process: to copy it costs a tenth. */
function newDataDir(initdb: string): Promise<string> {
  const make = async () => {
    const folder = await mkdtemp(join(tmpdir(), "svc-pg-new-"));
    giveToServerUser(folder, debianPackage);
    const guard = Bun.spawn(["sh", "-c", templateGuard, "guard", folder], {
      stdin: "pipe",
      stdout: "ignore",
      stderr: "ignore",
    });
    guard.unref();
    const dataDir = join(folder, "data");
    // --no-sync: an empty data directory is worth nothing yet; the server itself syncs.
    const options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"];
    await run(asServerUser([initdb, "-D", dataDir, ...options]));
    return dataDir;
  };
  const made = templates.get(initdb) ?? make();
  templates.set(initdb, made);
  return made;
}

/** A PostgreSQL of its own for one test: fresh data in a temporary folder, loopback only, gone with this process. */
export async function startPostgres(options: PostgresOptions = {}): Promise<PostgresServer> {
  const initdb = options.programs === undefined ? findInitdb() : join(options.programs, "initdb");
  const folder = await mkdtemp(join(tmpdir(), "svc-pg-"));
  giveToServerUser(folder, debianPackage);
  const dataDir = join(options.folder ?? folder, "data");
  if (!existsSync(dataDir)) {
    mkdirSync(dataDir, { mode: 0o700 });
    giveToServerUser(dataDir, debianPackage);
    const { standbyOf } = options;
    const backup = join(dirname(initdb), "pg_basebackup");
    const copied = standbyOf
      ? [backup, "-d", standbyOf.url, "-D", dataDir, "-R", "-X", "stream", "--checkpoint=fast", "--no-sync"]
      : ["cp", "-a", `${await newDataDir(initdb)}/.`, dataDir];
    await run(asServerUser(copied));
  }
  for (const network of options.networks ?? [])
    appendFileSync(join(dataDir, "pg_hba.conf"), `host all all ${network} trust\n`);

  const tls: Record<string, string> = {};
  if (options.tls) {
    for (const [name, from] of Object.entries(options.tls)) {
      // PostgreSQL reads a key only from a file that is its own.
      const file = join(folder, name);
      writeFileSync(file, readFileSync(from), { mode: 0o600 });
      giveToServerUser(file, debianPackage);
    }
    Object.assign(tls, {
      ssl: "on",
      ssl_cert_file: join(folder, "certFile"),
      ssl_key_file: join(folder, "keyFile"),
    });
  }

  let port = await freePort();
  let server: RunningProgram;
  const url = () => `postgres://postgres@127.0.0.1:${port}/postgres`;
  const launch = async () => {
    const wanted = Object.entries({
      ...settings,
      ...tls,
      ...options.settings,
      unix_socket_directories: folder,
    });
    const args = wanted.flatMap(([name, value]) => ["-c", `${name}=${value}`]);
    const program = join(dirname(initdb), "postgres");
    server = startProgram(asServerUser([program, "-D", dataDir, "-p", String(port), ...args]), folder);
    const answers = async () => {
      if (!server.running()) return "gone";
      const sql = new Bun.SQL(url(), { max: 1, connectionTimeout: 2 });
      try {
        await sql.unsafe("SELECT 1");
        return "ready";
      } finally {
        await sql.close().catch(() => {});
      }
    };
    const state = await until(answers, { about: "PostgreSQL to answer", deadlineMs: 60_000, everyMs: 30 });
    if (state === "gone") server.release();
    return state === "ready";
  };
  const end = async (signal: NodeJS.Signals) => {
    if (server.running()) server.signal(signal);
    await server.exited;
    server.release();
  };
  const signalBackends = (signal: NodeJS.Signals) => {
    for (const pid of childrenOf(server.pid)) {
      try {
        process.kill(pid, signal);
      } catch {
        // It ended by itself in the meantime.
      }
    }
  };

  // Someone may take the port between the probe and the start.
  for (let attempt = 1; !(await launch()); attempt++) {
    if (attempt === 3) throw new Error(`PostgreSQL does not start:\n${await lastWordsOf(folder)}`);
    port = await freePort();
  }
  return {
    ...databasesAt(url()),
    port,
    dataDir,
    pid: () => server.pid,
    async stop() {
      await end("SIGINT");
      await removeFolder(folder);
    },
    shutDown: () => end("SIGINT"),
    async restart() {
      await end("SIGINT");
      // A backend of one that was killed may still be about to notice it.
      for (let attempt = 1; !(await launch()); attempt++) {
        if (attempt === 10) throw new Error(`PostgreSQL does not start again:\n${await lastWordsOf(folder)}`);
        await Bun.sleep(200);
      }
    },
    async promote() {
      const sql = new Bun.SQL(url(), { max: 1, connectionTimeout: 30 });
      try {
        await sql.unsafe("SELECT pg_promote()");
      } finally {
        await sql.close().catch(() => {});
      }
    },
    freeze() {
      server.signal("SIGSTOP");
      signalBackends("SIGSTOP");
    },
    async kill9() {
      // Stopped first, so that it starts no backend that is not seen.
      server.signal("SIGSTOP");
      signalBackends("SIGKILL");
      await end("SIGKILL");
    },
  };
}

let shared: Promise<Databases> | undefined;

/**
 * The one server of a test run: that of SVC_TEST_POSTGRES_URL, else one that the first caller starts, that processes
 * started from here inherit through the same variable, and that ends with this process.
 */
export function sharedPostgres(): Promise<Databases> {
  const given = process.env.SVC_TEST_POSTGRES_URL;
  shared ??= given
    ? Promise.resolve(databasesAt(given))
    : startPostgres().then((server) => {
        process.env.SVC_TEST_POSTGRES_URL = server.url;
        return databasesAt(server.url);
      });
  return shared;
}
