import { ROOT_CONTEXT, SpanKind, SpanStatusCode, TraceFlags, trace } from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { resourceFromAttributes } from "@opentelemetry/resources";
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import type { Clock } from "../kit/clock.ts";
import type { Log } from "../kit/log.ts";
import type { Tracer } from "../kit/trace.ts";

export interface TracesHost {
  clock: Clock;
  log: Log;
  /** Base of the collector, `http://host:4318`; or the whole address when it has a path. */
  endpoint: string;
  /** Share of the traces that begin here, 0 to 1; a caller's own decision is followed. */
  sampleRate: number;
  serviceName: string;
  version: string;
  nodeId: string;
}

export interface OpenTracer extends Tracer {
  /**
   * Sends the spans still waiting, within a time limit: a collector that is away must not hold up the
   * shutdown.
   */
  close(): Promise<void>;
}

const exportMsMax = 5_000;
const closeMsMax = 2_000;
const sendEveryMs = 2_000;

const addressOf = (endpoint: string): string => {
  const url = new URL(endpoint);
  if (url.pathname === "/") url.pathname = "/v1/traces";
  return url.href;
};

/** https://www.w3.org/TR/trace-context/#traceparent-header */
const traceparent = /^(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:$|-)/;

function contextOf(parent: string | null | undefined) {
  const [, traceId, spanId, flags] = traceparent.exec(parent ?? "") ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return ROOT_CONTEXT;
  const traceFlags = Number.parseInt(flags, 16) & TraceFlags.SAMPLED;
  return trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags, isRemote: true });
}

/** Says once that spans are lost, and once that they arrive again. */
function loggingLosses(exporter: SpanExporter, log: Log): SpanExporter {
  let lost = false;
  return {
    export: (spans, done) =>
      exporter.export(spans, (result) => {
        const failed = result.code !== 0;
        if (failed && !lost) log.warn("traces.lost", { spans: spans.length, error: result.error });
        if (!failed && lost) log.info("traces.sent_again");
        lost = failed;
        done(result);
      }),
    forceFlush: async () => exporter.forceFlush?.(),
    shutdown: () => exporter.shutdown(),
  };
}

/**
 * Spans to an OpenTelemetry collector, in batches. Imported only when one is configured: the packages weigh
 * megabytes.
 */
export function openTracer(host: TracesHost): OpenTracer {
  const { clock, log } = host;
  const exporter = new OTLPTraceExporter({ url: addressOf(host.endpoint), timeoutMillis: exportMsMax });
  const processor = new BatchSpanProcessor({
    exporter: loggingLosses(exporter, log),
    scheduledDelayMillis: sendEveryMs,
    exportTimeoutMillis: exportMsMax,
  });
  const provider = new TracerProvider({
    resource: resourceFromAttributes({
      "service.name": host.serviceName,
      "service.version": host.version,
      "service.instance.id": host.nodeId,
    }),
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(host.sampleRate) }),
    spanProcessors: [processor],
  });
  const tracer = provider.getTracer("svc", host.version);
  return {
    on: true,
    start(name, kind, parent) {
      const spanKind = kind === "server" ? SpanKind.SERVER : SpanKind.CLIENT;
      const span = tracer.startSpan(name, { kind: spanKind }, contextOf(parent));
      return {
        set: (attribute, value) => void span.setAttribute(attribute, value),
        end(failed) {
          if (failed !== undefined) span.setStatus({ code: SpanStatusCode.ERROR, message: failed });
          span.end();
        },
      };
    },
    async close() {
      const over = new AbortController();
      // The exporter has logged what could not be sent.
      const sent = provider.shutdown().catch((error: unknown) => log.debug("traces.closed", { error }));
      await Promise.race([sent, clock.sleep(closeMsMax, over.signal)]);
      over.abort();
    },
  };
}
