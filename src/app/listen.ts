import { apiPages } from "../edge/api-page.ts";
import { authenticator } from "../edge/authenticate.ts";
import type { Edge } from "../edge/call.ts";
import type { Connections } from "../edge/connections.ts";
import { dashboardPages } from "../edge/dashboard-pages.ts";
import { docsPages } from "../edge/docs-pages.ts";
import type { GrpcOptions, ListeningGrpc } from "../edge/grpc.ts";
import { type ListeningEdge, listenEdge } from "../edge/http.ts";
import { listenApart, type OpenWatch } from "../edge/open-watch.ts";
import { rateLimit } from "../edge/publish-pace.ts";
import { followRequests } from "../edge/request-log.ts";
import { services } from "../edge/services.ts";
import { openUnknownFields } from "../edge/unknown-fields.ts";
import type { Closing, Draining } from "../kit/closing.ts";
import type { Operation } from "../kit/operation.ts";
import type { KeyPair } from "../kit/secret-files.ts";
import { grpcPortDefault } from "../settings/listen.ts";
import { developer } from "./caller-now.ts";
import { buildDashboard } from "./dashboard.ts";
import type { ServerHost } from "./host.ts";
import { mcpPage } from "./mcp.ts";
import type { Host } from "./part.ts";
import type { Parts } from "./parts.ts";
import { explained } from "./start-failure.ts";

/** Loaded by the first reader: a start does not wait for it. */
const buildDocs = async () => (await import("../docs/site.ts")).buildDocs();

/** Who asks, what they may, and what is seen of their calls: the same for every protocol. */
function openEdge(
  host: ServerHost,
  { identity, audit, access, rights, debug, realtime, sequences }: Parts,
): Edge {
  const { config, clock, ids, log, watch, installation } = host;
  const { keys, tenancy, platformAudit } = identity;
  const authenticate = authenticator({
    ...{ clock, keys, sessions: access.sessions, environments: tenancy },
    everyone: config.dev ? developer : undefined,
  });
  const requests = followRequests({ clock, log, ...watch, everyRequest: config.logLevel === "debug" });
  const { keyRateLimit: perSecond, keyRateBurst: burst = 2 * perSecond } = config;
  return {
    ...{ clock, ids, log, authenticate, installation },
    unknownFields: openUnknownFields({ log, ...watch, strict: config.strictInput }),
    ...rights.gate,
    sequences,
    reauthorizer: realtime.reauthorizer,
    isGoing: access.isGoing,
    loopbackOnly: config.dev,
    ...requests,
    observe(seen) {
      requests.observe(seen);
      if (seen.caller.impersonates) platformAudit.impersonated({ ...seen, operation: seen.operation.name });
      audit.audit.observe(seen);
      debug.observe(seen);
      if (seen.outcome === "ok") host.changes.observe(seen);
    },
    ...(perSecond > 0 && { limit: rateLimit({ clock, perSecond, burst }) }),
  };
}

export interface ListenNeeds {
  /** Resolves when no call of an endpoint is under way any more, or they had the time of open requests. */
  callsEnd: () => Promise<void>;
  parts: Parts;
  registry: readonly Operation[];
  /** Pages with metrics, when they are on. */
  watch: Pick<OpenWatch, "pages">;
  tls: KeyPair | undefined;
  draining: Draining;
  connections: Connections;
  closers: Pick<Closing, "push">;
}

export interface Listening extends Pick<ListeningEdge, "url" | "port"> {
  /** Undefined when gRPC is switched off. */
  grpcUrl: string | undefined;
  /** Undefined when metrics are off. */
  metricsUrl: string | undefined;
}

/** gRPC without a port of its own is left out when its usual port is taken: a second server needs no flag. */
async function listenGrpcAt(
  { log, config: { host } }: Host,
  wanted: number | undefined,
  offered: Omit<GrpcOptions, "port">,
): Promise<ListeningGrpc | undefined> {
  if (wanted === 0) return undefined;
  const port = wanted ?? grpcPortDefault;
  try {
    return await (await import("../edge/grpc.ts")).listenGrpc({ ...offered, port });
  } catch (error) {
    const isTaken = (error as { code?: unknown }).code === "EADDRINUSE";
    if (wanted !== undefined || !isTaken) throw explained(error, { host, port }, "--grpc-port");
    log.warn("grpc.left_away", { port, reason: "another program has the port: --grpc-port chooses another" });
    return undefined;
  }
}

/** Listens on every port that the settings want; each is closed again with the server. */
export async function listen(host: ServerHost, needs: ListenNeeds): Promise<Listening> {
  const { parts, registry, watch, tls, draining, connections, closers, callsEnd } = needs;
  const {
    host: hostname,
    port,
    metricsPort,
    grpcPort,
    trustProxy,
    drainMs,
    requestBodyBytesMax,
  } = host.config;
  const edge = openEdge(host, parts);
  const explaining = (at: number, setting: string) => (error: unknown) => {
    throw explained(error, { host: hostname, port: at }, setting);
  };
  const apart =
    watch.pages.length === 0 || metricsPort === undefined
      ? undefined
      : await listenApart({ edge, pages: watch.pages, hostname, port: metricsPort }).catch(
          explaining(metricsPort, "SVC_METRICS_PORT"),
        );
  if (apart) {
    closers.push("edge.metrics", () => apart.stop(0));
    connections.listensAt(apart.port);
  }
  const offered = { connections, edge, registry, services, bodyBytesMax: requestBodyBytesMax, tls, hostname };
  let url = "";
  const own = [...apiPages, ...docsPages(buildDocs), ...dashboardPages(buildDashboard)];
  // It calls this node, and cannot judge the node's own certificate.
  if (!tls) own.push(mcpPage(edge, () => url));
  const pages = apart ? own : [...own, ...watch.pages];
  const sockets = parts.realtime.serveAt(edge, registry);
  const listening = await listenEdge({ ...offered, ...sockets, pages, draining, trustProxy, port });
  ({ url } = listening);
  const stops = [listening.stop];
  const stop = async () => {
    await Promise.all(stops.map((one) => one(drainMs)));
    await callsEnd();
  };
  closers.push("edge", stop, drainMs);
  const grpc = await listenGrpcAt(host, grpcPort, offered);
  if (grpc) stops.push(grpc.stop);
  return {
    url: listening.url,
    port: listening.port,
    grpcUrl: grpc?.url,
    metricsUrl: watch.pages.length > 0 ? `${(apart ?? listening).url}/metrics` : undefined,
  };
}
