import type { Clock } from "../kit/clock.ts";
import type { Log } from "../kit/log.ts";
import { noMetrics } from "../kit/metrics.ts";
import { noTracer } from "../kit/trace.ts";
import type { Watch } from "../kit/watch.ts";
import type { Edge } from "./call.ts";
import type { ListeningEdge, StaticPage } from "./http.ts";

export interface WatchHost {
  clock: Clock;
  log: Log;
  version: string;
  nodeId: string;
  config: {
    readonly metricsEnabled: boolean;
    readonly otelEndpoint: string | undefined;
    readonly otelSampleRate: number;
    readonly otelServiceName: string;
  };
}

export interface OpenWatch extends Watch {
  /** `GET /metrics`, wherever it is served; none when metrics are off. */
  pages: readonly StaticPage[];
  /** Sends the traces that are still waiting. */
  close(): Promise<void>;
}

/** Opens metrics and traces by the settings. Modules of what is off are not loaded. */
export async function openWatch({ clock, log, version, nodeId, config }: WatchHost): Promise<OpenWatch> {
  const metrics = config.metricsEnabled
    ? (await import("./metrics.ts")).openMetrics({
        onError: (error) => log.warn("metrics.unread", { error }),
      })
    : undefined;
  const tracer =
    config.otelEndpoint === undefined
      ? undefined
      : (await import("./traces.ts")).openTracer({
          clock,
          log,
          version,
          nodeId,
          endpoint: config.otelEndpoint,
          sampleRate: config.otelSampleRate,
          serviceName: config.otelServiceName,
        });
  const page: StaticPage | undefined = metrics && {
    path: "/metrics",
    handle: async () =>
      new Response(await metrics.text(), {
        headers: { "content-type": metrics.contentType, "cache-control": "no-store" },
      }),
  };
  return {
    metrics: metrics ?? noMetrics,
    tracer: tracer ?? noTracer,
    pages: page ? [page] : [],
    close: async () => tracer?.close(),
  };
}

/**
 * Pages on a port of their own, which may be reachable where the rest must not be. Its requests are not
 * counted.
 */
export async function listenApart(options: {
  edge: Edge;
  pages: readonly StaticPage[];
  hostname: string;
  port: number;
}): Promise<ListeningEdge> {
  const { clock, ids, log, authenticate, gate, observe, loopbackOnly } = options.edge;
  const edge: Edge = {
    clock,
    ids,
    log,
    authenticate,
    gate,
    observe,
    ...(loopbackOnly !== undefined && { loopbackOnly }),
  };
  const { listenEdge } = await import("./http.ts");
  return listenEdge({ ...options, edge, registry: [], services: [], bodyBytesMax: 1024 });
}
