import { mkdtemp, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { SystemClock } from "../../src/kit/clock.ts";
import { type Log, silentLog } from "../../src/kit/log.ts";
import type { Operation } from "../../src/kit/operation.ts";
import { type RunningServer, startServer } from "../../src/server.ts";
import { type Config, parseSettings } from "../../src/settings/settings.ts";
import type { Migration } from "../../src/store/migrate.ts";
import type { Store } from "../../src/store/store.ts";
import type { EngineName } from "./engines.ts";
import { guardedStore } from "./guarded-store.ts";
import { copyMigrated, migratedTemplate } from "./migrated.ts";
import { startNats } from "./nats.ts";
import { sharedPostgres } from "./postgres.ts";
import {
  freePort,
  isFree,
  lastWordsOf,
  outputOf,
  type RunningProgram,
  removeFolder,
  startProgram,
} from "./process.ts";
import { type SettingValues, serverCommand, testMasterKey } from "./server-command.ts";
import { until } from "./until.ts";

export { type EngineName, engines } from "./engines.ts";

export interface Answer {
  status: number;
  headers: Headers;
  /** Parsed JSON; undefined when there was no body. */
  // biome-ignore lint/suspicious/noExplicitAny: tests state the shape they expect
  body: any;
}

export interface CallOptions {
  method?: string;
  /** Sent as JSON. */
  body?: unknown;
  headers?: Record<string, string>;
  /** Instead of the admin key; null sends none. */
  key?: string | null;
  /** `X-Svc-Environment`. */
  environment?: string;
  /** Aborted by who leaves before the answer. */
  signal?: AbortSignal;
}

export interface Caller {
  /** `api("/api/v1/events")` */
  api(path: string, options?: CallOptions): Promise<Answer>;
  /** `rpc("SvcService", "Emit", { event: "a" })` */
  rpc(service: string, method: string, body?: unknown, options?: CallOptions): Promise<Answer>;
}

/** Asks a server at `url` as the holder of `key`. */
export function callerOf(url: () => string, key: () => string | undefined): Caller {
  const api: Caller["api"] = async (path, options = {}) => {
    const text = options.key === undefined ? key() : options.key;
    const response = await fetch(`${url()}${path}`, {
      method: options.method ?? (options.body === undefined ? "GET" : "POST"),
      headers: {
        ...(text && { authorization: `Bearer ${text}` }),
        ...(options.environment && { "x-svc-environment": options.environment }),
        ...(options.body !== undefined && { "content-type": "application/json" }),
        ...options.headers,
      },
      ...(options.body !== undefined && { body: JSON.stringify(options.body) }),
      signal: options.signal ?? null,
    });
    const { status, headers } = response;
    const answer = await response.text();
    const isJson = headers.get("content-type")?.includes("json");
    return { status, headers, body: answer === "" ? undefined : isJson ? JSON.parse(answer) : answer };
  };
  return {
    api,
    rpc: (service, method, body = {}, options = {}) =>
      api(`/svc.v1.${service}/${method}`, { ...options, body }),
  };
}

/** A database of its own without rows, and the file that the first admin key goes to. */
export interface Home {
  folder: string;
  keyFile: string;
  /** As settings. */
  place: Pick<Config, "db" | "databaseUrl">;
  remove(): Promise<void>;
}

/** `isEmpty`: without the tables, which the first node then has to make. */
export async function makeHome(engine: EngineName, { isEmpty = false } = {}): Promise<Home> {
  const databases = engine === "postgres" ? await sharedPostgres() : undefined;
  const databaseUrl = await databases?.createDatabase(
    isEmpty ? {} : { template: await migratedTemplate(databases) },
  );
  const home = await makeHomeAt(databaseUrl);
  if (!databases && !isEmpty) await copyMigrated(home.place.db);
  return {
    ...home,
    async remove() {
      if (databaseUrl !== undefined) await databases?.dropDatabase(databaseUrl);
      await home.remove();
    },
  };
}

/** For a database that somebody else made and removes, or a file in `folder`. */
export async function makeHomeAt(databaseUrl: string | undefined, folder?: string): Promise<Home> {
  const own = await mkdtemp(join(tmpdir(), "svc-server-"));
  return {
    folder: own,
    keyFile: join(own, "key.json"),
    place: { db: join(folder ?? own, "svc.db"), databaseUrl },
    remove: () => removeFolder(own),
  };
}

const defaults = (() => {
  const parsed = parseSettings([], {});
  if (!parsed.ok) throw new Error(parsed.errors.join("\n"));
  return parsed.config;
})();

/** Settings of a server in `home`: a free port, short holds, everything else as it ships. */
export const testConfig = (home: Home, changes: Partial<Config> = {}): Config => ({
  ...defaults,
  port: 0,
  grpcPort: 0,
  poolSize: 6,
  pollHoldMs: 200,
  drainMs: 2_000,
  masterKey: testMasterKey,
  ...home.place,
  bootstrapKeyFile: home.keyFile,
  ...changes,
});

export interface TestServerOptions {
  engine: EngineName;
  /** URL of a NATS server. */
  nats?: string;
  settings?: Partial<Config>;
  log?: Log;
  clock?: SystemClock;
  migrations?: readonly Migration[];
  /** Operations besides the product's own. */
  operations?: readonly Operation[];
  /** Between the server and its store, to plant what a test must find. */
  aroundStore?: (store: Store) => Store;
  /** Another server's, for more than one on one database; its owner removes it. */
  home?: Home;
}

export interface TestServer extends Caller {
  url: string;
  adminKey: string;
  /** The environment of the admin key. */
  env: string;
  home: Home;
  running: RunningServer;
  stop(): Promise<void>;
}

/** A pause of the process that tests and server share must not end a transaction: as it ships, it may last a second. */
export const patience = { idleInTransactionMs: 20_000 };

/** The answer to a defect has only an id; who writes a test must see what was thrown. */
const defectsAlone: Log = {
  ...silentLog,
  error: (name, fields) => {
    if (name === "request.defect") console.error(name, fields);
  },
};

/** `SVC_TEST_NODES=3`: what a test asks goes to each of three nodes in turn, where it wants PostgreSQL and no node of its own. */
const nodesWanted = Number(process.env.SVC_TEST_NODES ?? 1);

/** A server in this process, on a free port, with a database of its own. */
export async function startTestServer(options: TestServerOptions): Promise<TestServer> {
  const { engine, nats, home, clock, aroundStore, migrations } = options;
  const isPlain = engine === "postgres" && !(nats || home || clock || aroundStore || migrations);
  return isPlain && nodesWanted > 1 ? startTestCluster(options, nodesWanted) : startTestNode(options);
}

/** Several nodes of one database and one NATS server; `url` and `running` are those of the first. */
export async function startTestCluster(
  options: TestServerOptions,
  count: number,
): Promise<TestServer & { nodes: readonly TestServer[] }> {
  const bus = await startNats();
  const home = await makeHome("postgres");
  const nodes: TestServer[] = [];
  const stop = async () => {
    for (const node of nodes.toReversed()) await node.stop();
    await bus.stop();
    await home.remove();
  };
  try {
    for (let number = 1; number <= count; number++) {
      const settings = { ...options.settings, ...(number > 1 && { port: 0, grpcPort: 0 }) };
      nodes.push(await startTestNode({ ...options, settings, nats: bus.url, home }));
    }
  } catch (error) {
    await stop();
    throw error;
  }
  let asked = 0;
  const { adminKey } = nodes[0]!;
  return {
    ...{ ...nodes[0]!, nodes },
    ...callerOf(
      () => nodes[asked++ % nodes.length]!.url,
      () => adminKey,
    ),
    stop,
  };
}

async function startTestNode(options: TestServerOptions): Promise<TestServer> {
  const home =
    options.home ?? (await makeHome(options.engine, { isEmpty: options.migrations !== undefined }));
  const config = testConfig(home, { ...(options.nats && { natsUrl: options.nats }), ...options.settings });
  const guarded = guardedStore();
  const running = await startServer(config, {
    log: options.log ?? defectsAlone,
    ...(options.clock && { clock: options.clock }),
    store: {
      limits: patience,
      around: (store) => guarded.around(options.aroundStore?.(store) ?? store),
      ...(options.migrations && { migrations: options.migrations }),
    },
    ...(options.operations && { operations: options.operations }),
  }).catch(async (error) => {
    if (!options.home) await home.remove();
    throw error;
  });
  const adminKey = await readKey(home.keyFile);
  return {
    ...callerOf(
      () => running.url,
      () => adminKey,
    ),
    url: running.url,
    adminKey,
    env: "env_default",
    home,
    running,
    async stop() {
      const failure: unknown = await running.stop().then(
        () => undefined,
        (error) => error,
      );
      if (!options.home) await home.remove();
      if (guarded.breaches.length > 0)
        throw new Error(guarded.breaches.join("\n\n"), failure === undefined ? {} : { cause: failure });
      if (failure !== undefined) throw failure;
    },
  };
}

/** The key in a bootstrap file; empty when there is no such file. */
export async function readKey(path: string): Promise<string> {
  const text = await readFile(path, "utf8").catch(() => "{}");
  return (JSON.parse(text) as { key?: string }).key ?? "";
}

export interface SpawnOptions {
  engine: EngineName;
  nats?: string;
  /** By setting name. */
  settings?: SettingValues;
  home?: Home;
  /** In front of its own command line. */
  command?: readonly string[];
  /** Instead of the executable or these sources. */
  program?: readonly string[];
  /** Do not wait for it to listen. */
  waits?: boolean;
}

export interface SpawnedServer extends Caller {
  url: string;
  adminKey: string;
  env: string;
  home: Home;
  pid(): number;
  /** Everything it has written. */
  output(): Promise<string>;
  /** SIGKILL, as a lost machine would look like; the database stays. */
  kill9(): Promise<void>;
  /** On the same database and port. */
  restart(): Promise<void>;
  /** SIGTERM; resolves with the exit code. Does not remove the database. */
  terminate(): Promise<unknown>;
  exited(): Promise<unknown>;
  stop(): Promise<void>;
}

/** A server as a process of its own, started as a user would, gone with this process. */
export async function spawnServer(options: SpawnOptions): Promise<SpawnedServer> {
  const home = options.home ?? (await makeHome(options.engine));
  const { db, databaseUrl } = home.place;
  // Its own folder: the guard of a program removes that, not the database.
  const folder = await mkdtemp(join(tmpdir(), "svc-process-"));
  // Not one of the kernel's, which somebody else could get while the server is away.
  let port = Number(options.settings?.port ?? 0) || (await freePort());
  let program: RunningProgram;
  let url = "";
  let adminKey = "";

  const output = () => outputOf(folder);
  const listening = async () => {
    const lines = (await output()).split("\n").filter((line) => line.includes('"server.listening"'));
    if (!program.running()) return "gone";
    return lines.map((line) => JSON.parse(line) as { url: string; port: number }).at(-1);
  };
  const launch = async () => {
    await Bun.write(join(folder, "output.log"), "");
    const values = {
      bootstrapKeyFile: home.keyFile,
      ...(databaseUrl === undefined ? { db } : { databaseUrl }),
      ...(options.nats && { natsUrl: options.nats }),
      ...options.settings,
      port,
    };
    program = startProgram(serverCommand(options, values), folder);
    if (options.waits === false) return;
    const state = await until(listening, { about: "the server to listen", deadlineMs: 60_000, everyMs: 20 });
    if (state === "gone") {
      program.release();
      const said = await lastWordsOf(folder);
      await removeFolder(folder);
      if (!options.home) await home.remove();
      throw new Error(`the server does not start:\n${said}`);
    }
    ({ url, port } = state);
    adminKey = await readKey(home.keyFile);
  };
  const end = async (signal: NodeJS.Signals) => {
    if (program.running()) program.signal(signal);
    const code = await program.exited;
    program.release();
    return code;
  };
  await launch();
  return {
    ...callerOf(
      () => url,
      () => adminKey,
    ),
    get url() {
      return url;
    },
    get adminKey() {
      return adminKey;
    },
    env: "env_default",
    home,
    pid: () => program.pid,
    output,
    kill9: async () => void (await end("SIGKILL")),
    async restart() {
      // Another program may have looked whether it is free.
      await until(() => isFree(port), { about: `port ${port} to be free`, everyMs: 20 });
      await launch();
    },
    terminate: () => end("SIGTERM"),
    exited: () => program.exited,
    async stop() {
      // One that a test left frozen could not end.
      if (program.running()) program.signal("SIGCONT");
      await end("SIGTERM");
      await removeFolder(folder);
      if (!options.home) await home.remove();
    },
  };
}
