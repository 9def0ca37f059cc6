import { roleIdOf } from "./access/actions.ts";
import { gate, requireKnownActions } from "./access/gate.ts";
import type { Bus } from "./bus/bus.ts";
import { localHub } from "./bus/local.ts";
import { openNatsBus } from "./bus/nats.ts";
import { timeBase } from "./cluster/time-base.ts";
import { type Bootstrapped, bootstrap, dashboardEmail } from "./domain/keys/bootstrap.ts";
import { type Keys, keys as openKeys } from "./domain/keys/service.ts";
import { defaultOrgId } from "./domain/tenancy/rules.ts";
import { tenancy as openTenancy, type Tenancy } from "./domain/tenancy/service.ts";
import { users as openUsers } from "./domain/users/service.ts";
import { authenticator } from "./edge/authenticate.ts";
import { docsPages } from "./edge/docs-page.ts";
import { listenGrpc } from "./edge/grpc.ts";
import { listenEdge } from "./edge/http.ts";
import type { Edge } from "./edge/perform.ts";
import { probes } from "./edge/probes.ts";
import { services } from "./edge/services.ts";
import { openEngine } from "./engine.ts";
import { type SystemClock, systemClock } from "./kit/clock.ts";
import type { Draining } from "./kit/draining.ts";
import { type Ids, systemIds } from "./kit/ids.ts";
import { type Log, silentLog } from "./kit/log.ts";
import { type Loop, type LoopOptions, loop } from "./kit/loop.ts";
import type { Caller, Operation } from "./kit/operation.ts";
import { secretFiles } from "./kit/secret-files.ts";
import { FileProblem } from "./kit/tls-files.ts";
import { version } from "./kit/version.ts";
import { bootstrapKeyFileOf, type Config } from "./settings.ts";
import { openStore } from "./store/open.ts";
import { type Store, StoreError } from "./store/store.ts";

export interface ServerOptions {
  clock?: SystemClock;
  ids?: Ids;
  log?: Log;
  /** Operations besides the product's own, for tests of the edge. */
  operations?: readonly Operation[];
}

export interface RunningServer {
  url: string;
  port: number;
  /** Undefined when gRPC is switched off. */
  grpcUrl: string | undefined;
  config: Config;
  nodeId: string;
  bootstrapped: Bootstrapped;
  /** Where the admin key of the first boot is, or was, written. */
  bootstrapKeyFile: string;
  /** The services behind the operations, for tests and for what has no operation. */
  domain: { store: Store; keys: Keys; tenancy: Tenancy };
  /** One round of a background loop by its name, for tests. */
  tick(loopName: string): Promise<void>;
  /** Drains and closes, in the reverse order of the start. */
  stop(): Promise<void>;
}

/** A start that failed for a reason that the operator can do something about; the message is for them. */
export class StartFailure extends Error {
  constructor(message: string, cause: unknown) {
    super(message, { cause });
    this.name = "StartFailure";
  }
}

export const dashboardAddress = dashboardEmail;

const developer: Caller = {
  kind: "dev",
  id: "dev",
  orgId: defaultOrgId,
  roles: [roleIdOf("admin")],
};

function explained(error: unknown, config: Config, flag: "--port" | "--grpc-port" = "--port"): unknown {
  if (error instanceof StartFailure) return error;
  if (error instanceof FileProblem) return new StartFailure(error.message, error.cause);
  const code = (error as { code?: unknown }).code;
  const place = `${config.host}:${flag === "--port" ? config.port : config.grpcPort}`;
  if (code === "EADDRINUSE") {
    return new StartFailure(
      `${place} is in use: stop the program that has it, or choose another ${flag}`,
      error,
    );
  }
  if (code === "EACCES" || code === "EADDRNOTAVAIL") {
    return new StartFailure(`cannot listen on ${place}: ${(error as Error).message}`, error);
  }
  if (error instanceof StoreError && error.trouble === "unavailable") {
    return new StartFailure(`the database cannot be reached: ${error.detail}`, error);
  }
  return error;
}

/** Opens store, domain and edge, in this order. What was opened is closed again when a later part fails. */
export async function startServer(config: Config, options: ServerOptions = {}): Promise<RunningServer> {
  const clock = options.clock ?? systemClock();
  const ids = options.ids ?? systemIds(clock);
  const log = options.log ?? silentLog;
  const nodeId = config.nodeId ?? ids.next("node");
  const startedAt = clock.now();
  const closers: (() => Promise<void>)[] = [];
  const close = async () => {
    const failures: unknown[] = [];
    for (const closer of closers.splice(0).reverse()) await closer().catch((error) => failures.push(error));
    if (failures.length > 0) throw new AggregateError(failures, "not everything could be closed");
  };
  const loops = new Map<string, { running: Loop; tick: LoopOptions["tick"] }>();
  const background = (options: LoopOptions) => {
    const onError = (name: string, error: unknown) => log.warn("loop.failed", { loop: name, error });
    loops.set(options.name, { running: loop({ clock, onError }, options), tick: options.tick });
  };

  const draining: Draining = { active: false };

  try {
    const { tls, databaseTls, natsAccess } = secretFiles(config);

    // Store.
    const { databaseUrl, db: file, poolSize } = config;
    const driver = config.libsqlDriver === "bun" ? "bun:sqlite" : "libsql";
    // Half of the connections are for flushes, so that slow writes cannot keep them waiting.
    const pools = { hotPoolSize: Math.ceil(poolSize / 2), poolSize: Math.max(1, Math.floor(poolSize / 2)) };
    const store = await openStore({ clock, log, databaseUrl, file, driver, tls: databaseTls, ...pools });
    closers.push(() => store.close());
    const time = timeBase(store, clock);
    await time.sample();
    background({ name: "cluster.time", everyMs: 5_000, tick: async () => void (await time.sample()) });

    // Domain, low to high.
    const tenancy = openTenancy({ store, clock, ids, log, strictEnvironment: config.strictEnvironment });
    const keys = openKeys({ store, clock, ids });
    const users = openUsers({ store, clock, ids });
    await tenancy.createDefaults();
    const bootstrapKeyFile = bootstrapKeyFileOf(config);
    const { bootstrapAdminKey: adminKey, bootstrapAdminPassword: adminPassword } = config;
    const first = { path: bootstrapKeyFile, adminKey, adminPassword };
    const bootstrapped = await bootstrap({ store, clock, ids, log, keys, users, ...first });
    background({ name: "keys.used", everyMs: 5_000, tick: keys.writeUsed });
    closers.push(() => keys.writeUsed().catch((error) => log.warn("keys.used_lost", { error })));

    // Bus: the server may be away; nothing waits for it.
    const facts = () => ({ version, startedAt });
    const bus: Bus =
      config.natsUrl === undefined
        ? localHub()({
            clock,
            nodeId,
            facts,
            onError: (subject, error) => log.warn("bus.handler_failed", { subject, error }),
          })
        : openNatsBus({ clock, log, nodeId, url: config.natsUrl, facts, ...natsAccess });
    closers.push(() => bus.close());

    const engine = openEngine({
      config,
      store,
      clock,
      ids,
      log,
      tellOthers: (lanes) => {
        if (bus.kind === "nats") bus.hint("dispatch", JSON.stringify({ from: nodeId, lanes }));
      },
      wakeBy: (at) => loops.get("runs.wake")?.running.wakeIn(at - clock.now()),
    });
    for (const options of engine.loops) background(options);
    bus.onHint("dispatch", (payload) => {
      const { from, lanes } = JSON.parse(new TextDecoder().decode(payload));
      if (from !== nodeId) engine.queuedElsewhere(lanes);
    });

    const capabilities = {
      authRequired: !config.dev,
      transports: ["rest", "connect", "grpc-web", ...(config.grpcPort === 0 ? [] : ["grpc"])],
      features: [],
    };
    const registry: Operation[] = [
      ...engine.operations,
      ...probes({
        clock,
        version,
        store,
        capabilities,
        draining,
        registry: () => registry,
        ...(bus.kind === "nats" && { bus }),
      }),
      ...(options.operations ?? []),
    ];
    requireKnownActions(registry);

    // Loops.
    for (const { running } of loops.values()) running.start();
    closers.push(async () => {
      await Promise.all([...loops.values()].map(({ running }) => running.stop()));
    });

    // Edge.
    closers.push(engine.settled);
    const everyone = config.dev ? developer : undefined;
    const authenticate = authenticator({ clock, keys, environments: tenancy, everyone });
    const edge: Edge = { clock, ids, log, authenticate, gate, observe: () => {} };
    const bodyBytesMax = config.requestBodyBytesMax;
    const offered = { edge, registry, services, bodyBytesMax, tls, hostname: config.host };
    const listening = await listenEdge({ ...offered, pages: docsPages, draining, port: config.port });
    const stops = [listening.stop];
    closers.push(async () => void (await Promise.all(stops.map((stop) => stop(config.drainMs)))));
    let grpcUrl: string | undefined;
    if (config.grpcPort !== 0) {
      const failed = (error: unknown) => Promise.reject(explained(error, config, "--grpc-port"));
      const grpc = await listenGrpc({ ...offered, port: config.grpcPort }).catch(failed);
      stops.push(grpc.stop);
      grpcUrl = grpc.url;
    }
    closers.push(engine.drain);
    closers.push(async () => {
      draining.active = true;
      await clock.sleep(config.drainNoticeMs);
    });

    const { url, port } = listening;
    log.info("server.listening", { url, port, grpcUrl, engine: store.engine, dev: config.dev });
    return {
      url,
      port,
      grpcUrl,
      config,
      nodeId,
      bootstrapped,
      bootstrapKeyFile,
      domain: { store, keys, tenancy },
      async tick(name) {
        const found = loops.get(name);
        if (!found) throw new Error(`no loop ${name}`);
        await found.tick();
      },
      stop: close,
    };
  } catch (error) {
    await close().catch((failure) => log.warn("server.close_failed", { error: failure }));
    throw explained(error, config);
  }
}
