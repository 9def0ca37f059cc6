import { openHost, type ServerHost, timeLoop } from "./app/host.ts";
import { openIdentity } from "./app/identity.ts";
import { loadParts } from "./app/loading.ts";
import { Loops } from "./app/loops.ts";
import type { Parts } from "./app/parts.ts";
import { openPrimaryWatch, troubleLoop } from "./app/primary.ts";
import { explained } from "./app/start-failure.ts";
import { openConnections } from "./edge/connections.ts";
import { requireKnownActions } from "./gate/gate.ts";
import { type SystemClock, systemClock } from "./kit/clock.ts";
import { closing, type Draining, within } from "./kit/closing.ts";
import { type Ids, systemIds } from "./kit/ids.ts";
import { type Log, silentLog } from "./kit/log.ts";
import type { Operation } from "./kit/operation.ts";
import { version } from "./kit/version.ts";
import type { Config } from "./settings/settings.ts";
import type { OpenStoreOptions } from "./store/open.ts";

/** Telling the other nodes of a shutdown takes at most this, and so does letting go who waits here. */
const drainHintMsMax = 1_000;

export interface ServerOptions {
  clock?: SystemClock;
  ids?: Ids;
  log?: Log;
  /**
   * Instead of the product's own: other migrations for tests of upgrades, limits for tests that stand still.
   */
  store?: Pick<OpenStoreOptions, "migrations" | "limits" | "around">;
  /** Operations besides the product's own, for tests of the edge. */
  operations?: readonly Operation[];
}

export type RunningServer = Awaited<ReturnType<typeof startServer>>;

function capabilitiesOf({ config, watch }: ServerHost, { realtime }: Parts) {
  const transports = ["rest", "connect", "grpc-web", "websocket", "grpc-sse"];
  const features: string[] = [...realtime.features];
  if (watch.metrics.on) features.push("prometheus-metrics");
  return { authRequired: !config.dev, transports, features };
}

function openDrain({ clock, log, config }: ServerHost, { members, all }: Parts, draining: Draining) {
  let drained = Promise.resolve(true);
  return {
    /** Tells everyone who waits for this node, or might come to it, to find another. */
    async begin() {
      draining.active = true;
      const announced = members.announceDrain().catch((error) => log.warn("cluster.drain_untold", { error }));
      // The database may be the reason to stop: the notice and the workers do not wait for it for long.
      await within(clock, drainHintMsMax, announced);
      // Held polls are let go at once: their workers find another node.
      const mostMs = config.drainNoticeMs + drainHintMsMax + config.drainMs;
      drained = within(clock, mostMs, all.drain());
      drained.catch(() => {}); // Who awaits it is told.
      await Promise.all([within(clock, drainHintMsMax, drained), clock.sleep(config.drainNoticeMs)]);
      await all.disconnect();
    },

    /** Calls of endpoints that are under way have the time of open requests. */
    async end() {
      if (!(await drained)) log.warn("server.calls_left", { ms: config.drainMs });
    },
  };
}

/**
 * Opens store, bus, parts and ports, in this order. What was opened is closed again when a later part fails.
 */
export async function startServer(config: Config, options: ServerOptions = {}) {
  const { clock = systemClock(), log = silentLog } = options;
  const ids = options.ids ?? systemIds(clock);
  const nodeId = config.nodeId ?? ids.next("node");
  const closers = closing({ clock, log });
  const draining: Draining = { active: false };
  let url = "";
  const loading = loadParts();
  loading.catch(() => {}); // Who awaits it is told.
  try {
    const host = await openHost({ config, clock, ids, log, nodeId, draining, closers, store: options.store });
    const { store, time, bus, watch, frames, troubles } = host;
    const primaries = openPrimaryWatch(host);
    const { connectionsMax: most } = config;
    const connections = openConnections({ clock, log: host.log, metrics: watch.metrics, most });
    const loops = new Loops({ clock, log: host.log, metrics: watch.metrics });
    troubles.onTurn((isAway) => !isAway && loops.retryFailed());
    const loopProgress = () => loops.progress();
    const registry: Operation[] = [];
    let parts: Parts;
    const identity = openIdentity(host, { reseal: (...asked) => parts.reseal(...asked) });
    const [{ openParts, listen, probes }, opened] = await Promise.all([loading, identity]);
    parts = openParts(host, {
      ...{ identity: opened, clock, time, closers, loopProgress },
      url: () => url,
      registry: () => registry,
    });
    const { engine, audit, record, all } = parts;
    const capabilities = capabilitiesOf(host, parts);
    registry.push(
      ...all.operations,
      ...probes({
        ...{ clock, version, store, draining },
        capabilities,
        warnings: () => [...record.warnings(), ...time.warnings()],
        troubles: () => [...loops.troubles(), ...record.troubles()],
        registry: () => registry,
        ...(bus.kind === "nats" && { bus }),
      }),
      ...(options.operations ?? []),
    );
    requireKnownActions(registry);

    await primaries.askOthers();
    const own = [timeLoop(time), troubleLoop(store, troubles), ...connections.loops, ...primaries.loops];
    loops.add([...own, ...all.loops]);
    loops.start();
    closers.push("loops", () => loops.stop());
    closers.push("parts", all.settled);
    const drain = openDrain(host, parts, draining);
    const { tls } = host;
    const listening = await listen(host, {
      ...{ parts, registry, watch, tls, draining, connections, closers },
      callsEnd: drain.end,
    });
    closers.push("drain", drain.begin, config.drainNoticeMs);
    url = listening.url;
    const { port, grpcUrl } = listening;
    if (grpcUrl !== undefined) capabilities.transports.push("grpc", "grpc-bidirectional");
    log.info("server.listening", { url, port, grpcUrl, engine: store.engine, dev: config.dev });
    const { keys, tenancy, keyring, bootstrapped, bootstrapKeyFile, signInToken } = opened;
    const { feeds, events, workers } = engine;
    return {
      ...{ ...listening, config, nodeId, bootstrapped },
      /** Signs the first user in once; of the boot that made it. */
      signInToken,
      /** Where the admin key of the first boot is, or was, written. */
      bootstrapKeyFile,
      /** Every operation of the server. */
      registry,
      /** The services behind the operations, for tests and for what has no operation. */
      domain: { store, keys, tenancy, keyring, feeds, events, workers, audit: audit.audit, frames },
      /** Every background loop of the server. */
      loops: loops.facts(),
      /** One round of a background loop by its name, behind the one under way; for tests. */
      tick: (loopName: string) => loops.tick(loopName),
      /** Drains and closes, in the reverse order of the start. */
      stop: closers.close,
    };
  } catch (error) {
    await closers.close().catch((failure) => log.warn("server.close_failed", { error: failure }));
    throw explained(error, config);
  }
}
