import { type Client, createClient, createWorker, type Worker } from "../../src/sdk/index.ts";
import { sharedPostgres } from "./postgres.ts";
import {
  type Answer,
  type Caller,
  callerOf,
  type EngineName,
  type Home,
  makeHome,
  makeHomeAt,
  type SpawnedServer,
  type SpawnOptions,
  spawnServer,
} from "./server.ts";
import { until } from "./until.ts";

/**
 * A world is a named set of circumstances in which a server of svc runs at its users: its database, what speaks between, its
 * zone and language, what the machine lets it have. One list of promises is kept in each (`conformance/worlds.ts`).
 */
export interface World {
  name: string;
  engine: EngineName;
  /** Before the server's command line: variables and limits. */
  command?: readonly string[];
  settings?: SpawnOptions["settings"];
  /** What a lone server on a database of ours does not have. What it opens goes to `closers`, the last first. */
  around?(closers: Closers): Promise<Around>;
}

export interface Around {
  home?: Home;
  nats?: string;
  settings?: SpawnOptions["settings"];
  command?: readonly string[];
  /** Instead of the first admin's: of another org. */
  key?: string;
  /** Where clients find the server whose own address this is. */
  front?(url: string): Promise<string>;
}

export type Closers = (() => unknown)[];

/** A server in its world, and who asks it. */
export interface Inside extends Caller {
  world: World;
  server: SpawnedServer;
  /** For clients: of what stands before the server where something does. */
  url: string;
  adminKey: string;
  client: Client;
}

const company = {
  TimeZone: "Pacific/Chatham",
  DateStyle: "German, DMY",
  IntervalStyle: "sql_standard",
  bytea_output: "escape",
  extra_float_digits: "0",
  default_transaction_isolation: "serializable",
  statement_timeout: "1h",
  search_path: '"of the company", public',
};

export interface DatabaseOptions {
  /** As `CREATE DATABASE` has them. */
  locale: string;
  /** Session settings of the role and of the database. */
  settings?: Readonly<Record<string, string>>;
}

/** A database that an operator made: of a locale, with a role that is no superuser and with session settings of its own. */
export async function databaseOf(
  { locale, settings = {} }: DatabaseOptions,
  closers: Closers,
): Promise<string> {
  const databases = await sharedPostgres();
  const name = `svc_world_${process.pid}_${Bun.hash(String(performance.now())).toString(36)}`;
  const role = `${name}_role`;
  const made = new URL(databases.url);
  made.pathname = `/${name}`;
  const ask = async (url: string, statements: readonly string[]) => {
    const sql = new Bun.SQL(url, { max: 1, connectionTimeout: 30 });
    try {
      for (const statement of statements) await sql.unsafe(statement);
    } finally {
      await sql.close();
    }
  };
  await ask(databases.url, [
    `CREATE ROLE ${role} LOGIN CREATEROLE PASSWORD 'of-${name}'`,
    `CREATE DATABASE ${name} TEMPLATE template0 OWNER ${role} ENCODING 'UTF8' ${locale}`,
    ...Object.entries(settings).flatMap(([key, value]) =>
      [`ROLE ${role}`, `DATABASE ${name}`].map(
        (owner) => `ALTER ${owner} SET ${key} = ${key === "search_path" ? value : `'${value}'`}`,
      ),
    ),
  ]);
  closers.push(async () => {
    await databases.dropDatabase(made.href);
    await ask(databases.url, [`DROP ROLE ${role}`]);
  });
  await ask(made.href, [`CREATE SCHEMA "of the company" AUTHORIZATION ${role}`]);
  made.username = role;
  made.password = `of-${name}`;
  return made.href;
}

export const ownedHome = async (options: DatabaseOptions, closers: Closers): Promise<Around> => {
  const home = await makeHomeAt(await databaseOf(options, closers));
  closers.push(home.remove);
  return { home };
};

/** A machine at the other end of the world, where a day begins sooner and half an hour counts, with as few descriptors as many have. */
const farMachine = [
  ...["env", "TZ=Pacific/Chatham", "LANG=tr_TR.UTF-8", "LC_ALL=tr_TR.UTF-8"],
  ...["prlimit", "--nofile=1024:1024"],
];

/** Where the tests of a project run: sorted by bytes, in UTC. What is planted shows nothing here. */
export const laboratories: Readonly<Record<EngineName, World>> = {
  libsql: { name: "a laboratory with a file", engine: "libsql", command: ["env", "TZ=UTC"] },
  postgres: {
    name: "a laboratory with PostgreSQL",
    engine: "postgres",
    command: ["env", "TZ=UTC"],
    around: (closers) => ownedHome({ locale: "LOCALE 'C'", settings: { TimeZone: "UTC" } }, closers),
  },
};

/** What runs in `test:all`. */
export const worldsByDay: readonly World[] = [
  { name: "a file on a far machine", engine: "libsql", command: farMachine },
  { name: "PostgreSQL as Debian makes it", engine: "postgres" },
  {
    name: "PostgreSQL of a Turkish company",
    engine: "postgres",
    command: farMachine,
    around: (closers) =>
      ownedHome(
        { locale: "LOCALE_PROVIDER icu ICU_LOCALE 'tr-TR' LOCALE 'C.UTF-8'", settings: company },
        closers,
      ),
  },
];

export interface Entered {
  inside: Inside;
  /** A worker of all functions and projections of the list, joined to the server. */
  work(given: Pick<Parameters<typeof createWorker>[0], "functions" | "projections">): Promise<Worker>;
  leave(): Promise<void>;
}

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const settingsOfAll = {
  pushAllowPrivate: "127.0.0.0/8,::1",
  webhookRetryMs: 20,
  webhookRateLimit: 400,
  auditReads: true,
};

/** Starts a server in a world. `program`: another form of it, such as one with planted faults. */
export async function enter(world: World, program?: readonly string[]): Promise<Entered> {
  const closers: Closers = [];
  const leave = async () => {
    for (const close of closers.splice(0).toReversed()) await close();
  };
  try {
    const around = (await world.around?.(closers)) ?? {};
    let { home } = around;
    if (home === undefined) {
      home = await makeHome(world.engine);
      closers.push(home.remove);
    }
    const command = [...(around.command ?? []), ...(world.command ?? [])];
    const server = await spawnServer({
      engine: world.engine,
      home,
      settings: { ...settingsOfAll, ...world.settings, ...around.settings },
      ...(around.nats !== undefined && { nats: around.nats }),
      ...(command.length > 0 && { command }),
      ...(program && { program }),
    });
    closers.push(server.stop);
    const url = (await around.front?.(server.url)) ?? server.url;
    const adminKey = around.key ?? server.adminKey;
    const client = createClient({ url, apiKey: adminKey });
    const { api, rpc } = callerOf(
      () => url,
      () => adminKey,
    );
    // A node without processor for a second is cut off from its database: clients ask again.
    const answered = (ask: () => Promise<Answer>) =>
      until(
        async () => {
          const answer = await ask();
          return answer.status !== 503 && answer;
        },
        { about: "an answer" },
      );
    const caller: Caller = {
      api: (...asked) => answered(() => api(...asked)),
      rpc: (...asked) => answered(() => rpc(...asked)),
    };
    return {
      inside: { ...caller, world, server, url, adminKey, client },
      async work(given) {
        const worker = createWorker({ client, ...given, handleSignals: false, log: silent });
        closers.push(() => worker.drain({ timeoutMs: 2_000 }));
        await worker.start();
        return worker;
      },
      leave,
    };
  } catch (error) {
    await leave();
    throw error;
  }
}
