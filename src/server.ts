import { roleIdOf } from "./access/actions.ts";
import { requireKnownActions } from "./access/gate.ts";
import { openAudit } from "./audit.ts";
import { openBus } from "./bus/open.ts";
import { timeBase } from "./cluster/time-base.ts";
import { type Keyring, openKeyring } from "./domain/access/keyring/service.ts";
import { type Bootstrapped, bootstrap, dashboardEmail } from "./domain/access/keys/bootstrap.ts";
import type { Keys } from "./domain/access/keys/service.ts";
import { openPlatformAudit } from "./domain/access/platform/audit.ts";
import { openPurge } from "./domain/access/tenancy/purge.ts";
import { defaultOrgId } from "./domain/access/tenancy/rules.ts";
import { tenancy as openTenancy, type Tenancy } from "./domain/access/tenancy/service.ts";
import type { Workers } from "./domain/engine/workers/service.ts";
import type { Events } from "./domain/log/events/service.ts";
import type { Feeds } from "./domain/log/log/feed.ts";
import { type Frames, openFrames } from "./domain/realtime/pubsub/frames.ts";
import type { AuthAudit } from "./domain/record/audit/service.ts";
import { authenticator } from "./edge/authenticate.ts";
import type { Edge } from "./edge/call.ts";
import { docsPages } from "./edge/docs-page.ts";
import { listenGrpc } from "./edge/grpc.ts";
import { listenEdge } from "./edge/http.ts";
import { listenApart, openWatch } from "./edge/open-watch.ts";
import { probes } from "./edge/probes.ts";
import { followRequests } from "./edge/request-log.ts";
import { services } from "./edge/services.ts";
import { openUnknownFields } from "./edge/unknown-fields.ts";
import { openEngine } from "./engine.ts";
import { type SystemClock, systemClock } from "./kit/clock.ts";
import { closing, within } from "./kit/closing.ts";
import type { Draining } from "./kit/draining.ts";
import { Fault } from "./kit/fault.ts";
import { type Ids, systemIds } from "./kit/ids.ts";
import { clockUncertaintyMsMax, drainHintMsMax } from "./kit/limits.ts";
import { type Log, silentLog } from "./kit/log.ts";
import { type Loop, type LoopFacts, type LoopOptions, loop } from "./kit/loop.ts";
import type { Caller, Operation } from "./kit/operation.ts";
import { secretFiles } from "./kit/secret-files.ts";
import { FileProblem } from "./kit/tls-files.ts";
import { version } from "./kit/version.ts";
import { watchLoop } from "./kit/watch.ts";
import { openClusterPart } from "./members.ts";
import { openRealtime, realtimeFeatures } from "./realtime.ts";
import { bootstrapKeyFileOf, type Config, masterKeyFileOf } from "./settings.ts";
import { type OpenStoreOptions, openStore } from "./store/open.ts";
import { type Store, StoreError } from "./store/store.ts";
import { openPeople, openTenants } from "./tenants.ts";

export interface ServerOptions {
  clock?: SystemClock;
  ids?: Ids;
  log?: Log;
  /** Instead of the product's own: other migrations for tests of upgrades, limits for tests that stand still. */
  store?: Pick<OpenStoreOptions, "migrations" | "limits" | "around">;
  /** Operations besides the product's own, for tests of the edge. */
  operations?: readonly Operation[];
}

export interface RunningServer {
  url: string;
  port: number;
  /** Undefined when gRPC is switched off. */
  grpcUrl: string | undefined;
  config: Config;
  /** Where metrics are read; undefined when they are off. */
  metricsUrl: string | undefined;
  nodeId: string;
  bootstrapped: Bootstrapped;
  /** Where the admin key of the first boot is, or was, written. */
  bootstrapKeyFile: string;
  /** The services behind the operations, for tests and for what has no operation. */
  domain: {
    store: Store;
    keys: Keys;
    tenancy: Tenancy;
    keyring: Keyring;
    feeds: Feeds;
    events: Events;
    frames: Frames;
    workers: Workers;
    audit: AuthAudit;
  };
  /** All that the server offers, as it is asked for. */
  registry: readonly Operation[];
  /** All background loops. */
  loops: readonly LoopFacts[];
  /** One round of a background loop by its name, behind the one under way; for tests. */
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
  roles: [roleIdOf("admin"), roleIdOf("platform_admin")],
};

function explained(error: unknown, config: Pick<Config, "host" | "port">, setting = "--port"): unknown {
  if (error instanceof StartFailure) return error;
  if (error instanceof Fault) return new StartFailure(error.message, error);
  if (error instanceof FileProblem) return new StartFailure(error.message, error.cause);
  const code = (error as { code?: unknown }).code;
  const place = `${config.host}:${config.port}`;
  if (code === "EADDRINUSE") {
    return new StartFailure(
      `${place} is in use: stop the program that has it, or choose another ${setting}`,
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
  const closers = closing({ clock, log });
  const watch = await openWatch({ clock, log, version, nodeId, config });
  closers.push("watch", () => watch.close());
  const { metrics } = watch;
  let url = "";
  const loops = new Map<string, Loop>();
  const background = (options: LoopOptions) => {
    const onError = (name: string, error: unknown) => log.warn("loop.failed", { loop: name, error });
    const running = loop({ clock, onError }, options);
    watchLoop(metrics, running);
    loops.set(options.name, running);
  };

  const draining: Draining = { active: false };

  try {
    const { tls, databaseTls, natsAccess } = secretFiles(config);

    // Store.
    const { databaseUrl, db: file, poolSize } = config;
    const driver = config.libsqlDriver === "bun" ? "bun:sqlite" : "libsql";
    // Half of the connections are for flushes, so that slow writes cannot keep them waiting.
    const pools = { hotPoolSize: Math.ceil(poolSize / 2), poolSize: Math.max(1, Math.floor(poolSize / 2)) };
    const open = { clock, log, metrics, tls: databaseTls, ...pools, ...options.store };
    const store = await openStore({ databaseUrl, file, driver, ...open });
    closers.push("store", () => store.close());
    const labels = ["version", "engine"] as const;
    const build = metrics.gauge({ name: "svc_build_info", help: "What runs here.", labels });
    build(version, store.engine).set(1);
    const time = timeBase(store, clock, metrics);
    await time.sample();
    background({
      name: "cluster.time",
      about: "Measures how far this node's clock is from the database's.",
      everyMs: 5_000,
      tick: time.sampleOnce,
    });

    // Domain, low to high.
    const tenancy = openTenancy({ store, clock, ids, log, strictEnvironment: config.strictEnvironment });
    const people = openPeople({
      ...{ store, clock, ids, tenancy },
      rolesOf: (reader, orgId) => tenants.rolesOf(reader, orgId),
    });
    const { keys, users } = people;
    await tenancy.createDefaults();
    const bootstrapKeyFile = bootstrapKeyFileOf(config);
    const { bootstrapAdminKey: adminKey, bootstrapAdminPassword: adminPassword } = config;
    const first = { path: bootstrapKeyFile, adminKey, adminPassword };
    const bootstrapped = await bootstrap({ store, clock, ids, log, keys, users, ...first });
    background({
      name: "keys.used",
      about: "Writes when each API key was last used, in one statement.",
      everyMs: 5_000,
      tick: keys.writeUsed,
    });
    closers.push("keys", () => keys.writeUsed().catch((error) => log.warn("keys.used_lost", { error })));
    const { masterKey, jwtSecret, signingKey } = config;
    const given = { jwt_secret: jwtSecret, signing_key: signingKey };
    const masterFile = masterKeyFileOf(config);
    const keyring = await openKeyring({
      ...{ store, clock, ids, log, masterKey, masterFile, given },
      reseal: (session, again) => engine.secrets.reseal(session, again),
    });
    background({
      name: "keyring.follow",
      about: "Takes up secrets that other nodes rotated.",
      everyMs: 30_000,
      tick: keyring.refresh,
    });

    const flushIn = (ms: number) => loops.get("audit.flush")?.wakeIn(ms);
    const audited = openAudit({ config, store, clock, ids, log, keyring, tenancy, flushIn });
    background(audited.loop);
    closers.push("audit", audited.audit.close);

    // Bus.
    const facts = () => ({ version, startedAt });
    const bus = openBus({ clock, log, nodeId, url: config.natsUrl, facts, metrics, ...natsAccess });
    closers.push("bus", () => bus.close());

    const knowsTime = () => time.uncertaintyMs() <= clockUncertaintyMsMax;
    const frames = openFrames({ bus, clock, log, self: ids.uuid() });
    const engine = openEngine({
      callTrail: audited.callTrail((call) => tenants.may(call, "orgs:read", { type: "org", id: "*" })),
      frames,
      config,
      keyring,
      tenancy,
      store,
      clock,
      ids,
      log,
      watch,
      bus,
      tellOthers: (lanes) => {
        if (bus.kind === "nats") bus.hint("dispatch", JSON.stringify({ from: nodeId, lanes }));
      },
      knowsTime,
      wakeLoop: (name, inMs) => loops.get(name)?.wakeIn(inMs),
      wake: (name) => loops.get(name)?.wake(),
      nodeId,
      isDraining: () => draining.active,
      wakeBy: (at) => loops.get("runs.wake")?.wakeIn(at - clock.now()),
    });
    for (const options of engine.loops) background(options);
    const { feeds } = engine;
    const heard = { bus, feeds, frames, nodeId, knowsTime };
    const realtime = openRealtime({ config, store, clock, ids, log, watch, ...heard });
    for (const options of realtime.loops) background(options);
    const platformAudit = openPlatformAudit({ store, clock, ids, log });
    background({
      name: "platform.audit",
      about: "Writes what platform credentials did in tenants' orgs, many rows a statement.",
      everyMs: 1_000,
      tick: platformAudit.writeOnce,
    });
    closers.push("platform.audit", () =>
      platformAudit.writeOnce().catch((error) => log.warn("platform.audit_lost", { error })),
    );
    const purge = openPurge({ store, clock, metrics });
    const members = openClusterPart({
      ...{ store, bus, clock, ids, log, nodeId, version, keyring, tenancy, platformAudit, ...people },
      url: () => url,
      tenants: () => tenants,
      duties: [...engine.duties, ...realtime.duties, platformAudit.duty, audited.duty, purge.duty],
      uncertaintyMs: time.uncertaintyMs,
      loopFacts: () =>
        [...loops].map(([name, running]) => ({
          name,
          progress_at: running.progressAt() ?? null,
          failures: running.failures(),
        })),
    });
    for (const options of members.loops) background(options);
    const { pastDecisions } = audited.audit;
    const { forgetKey } = members;
    const tenants = openTenants({
      ...{ store, clock, ids, bus, frames, letGo: engine.letGo, forgetKey, pastDecisions },
      ...{ tenancy, ...people, keyring, platformAudit, registry: () => registry },
    });
    for (const options of tenants.loops) background(options);
    // Others hear of it with the next sign of life: let that be now.
    bus.onConnection(() => loops.get("cluster.nodes")?.wake());
    closers.push("members", members.leave);
    bus.onHint("dispatch", (payload) => {
      const { from, lanes } = JSON.parse(new TextDecoder().decode(payload));
      if (from !== nodeId) engine.queuedElsewhere(lanes);
    });

    const capabilities = {
      authRequired: !config.dev,
      transports: [
        "rest",
        "connect",
        "grpc-web",
        "websocket",
        "grpc-sse",
        ...(config.grpcPort === 0 ? [] : ["grpc", "grpc-bidirectional"]),
      ],
      features: [...realtimeFeatures, ...(metrics.on ? ["prometheus-metrics"] : [])],
    };
    const registry: Operation[] = [
      ...engine.operations,
      ...realtime.operations,
      ...members.operations,
      ...tenants.operations,
      ...audited.operations,
      ...probes({
        clock,
        version,
        store,
        capabilities,
        draining,
        warnings: engine.warnings,
        registry: () => registry,
        ...(bus.kind === "nats" && { bus }),
      }),
      ...(options.operations ?? []),
    ];
    requireKnownActions(registry);

    // Loops.
    for (const running of loops.values()) running.start();
    closers.push("loops", async () => {
      await Promise.all([...loops.values()].map((running) => running.stop()));
    });

    // Edge.
    closers.push("engine", engine.settled);
    closers.push("topics", realtime.settled);
    const everyone = config.dev ? developer : undefined;
    const authenticate = authenticator({
      clock,
      keys,
      sessions: tenants.sessions,
      environments: tenancy,
      everyone,
    });
    const requests = followRequests({ clock, log, ...watch, everyRequest: config.logLevel === "debug" });
    const watching = audited.watching((seen) => {
      requests.observe(seen);
      if (seen.caller.impersonates) platformAudit.impersonated({ ...seen, operation: seen.operation.name });
    });
    const { reauthorizer } = realtime;
    const asked = { authenticate, ...tenants.gate, reauthorizer, loopbackOnly: config.dev };
    const unknownFields = openUnknownFields({ log, ...watch, strict: config.strictInput });
    const edge: Edge = { clock, ids, log, unknownFields, ...asked, ...requests, ...watching };
    const { host: hostname, metricsPort, grpcPort } = config;
    const apart =
      watch.pages.length === 0 || metricsPort === undefined
        ? undefined
        : await listenApart({ edge, pages: watch.pages, hostname, port: metricsPort }).catch((error) => {
            throw explained(error, { host: hostname, port: metricsPort }, "SVC_METRICS_PORT");
          });
    if (apart) closers.push("edge.metrics", () => apart.stop(0));
    const offered = { edge, registry, services, bodyBytesMax: config.requestBodyBytesMax, tls, hostname };
    const pages = apart ? docsPages : [...docsPages, ...watch.pages];
    const { trustProxy, port: wanted } = config;
    const sockets = realtime.standAt(edge);
    const listening = await listenEdge({ ...offered, ...sockets, pages, draining, trustProxy, port: wanted });
    const stops = [listening.stop];
    closers.push(
      "edge",
      async () => void (await Promise.all(stops.map((stop) => stop(config.drainMs)))),
      config.drainMs,
    );
    let grpcUrl: string | undefined;
    if (grpcPort !== 0) {
      const grpc = await listenGrpc({ ...offered, port: grpcPort }).catch((error: unknown) => {
        throw explained(error, { host: hostname, port: grpcPort }, "--grpc-port");
      });
      stops.push(grpc.stop);
      grpcUrl = grpc.url;
    }
    const drain = async () => {
      draining.active = true;
      const told = members.drain().catch((error) => log.warn("cluster.drain_untold", { error }));
      // The database may be the reason to stop: the notice and the workers do not wait for it for long.
      await within(clock, drainHintMsMax, told);
      // Held polls are let go at once: their workers find another node.
      await Promise.all([engine.drain(), clock.sleep(config.drainNoticeMs)]);
      realtime.drain();
    };
    closers.push("drain", drain, config.drainNoticeMs);

    const { port } = listening;
    url = listening.url;
    const metricsUrl = watch.pages.length > 0 ? `${(apart ?? listening).url}/metrics` : undefined;
    log.info("server.listening", { url, port, grpcUrl, engine: store.engine, dev: config.dev });
    return {
      url,
      port,
      grpcUrl,
      config,
      metricsUrl,
      nodeId,
      bootstrapped,
      bootstrapKeyFile,
      domain: {
        store,
        keys,
        tenancy,
        keyring,
        feeds,
        events: engine.events,
        workers: engine.workers,
        audit: audited.audit,
        frames,
      },
      registry,
      loops: [...loops.values()].map(({ facts: { name, about, everyMs, duty } }) => ({
        name,
        about,
        everyMs,
        ...(duty !== undefined && { duty }),
      })),
      async tick(name) {
        const found = loops.get(name);
        if (!found) throw new Error(`no loop ${name}`);
        await found.tick();
      },
      stop: closers.close,
    };
  } catch (error) {
    await closers.close().catch((failure) => log.warn("server.close_failed", { error: failure }));
    throw explained(error, config);
  }
}
