import { ROOT_CONTEXT, SpanKind, SpanStatusCode, TraceFlags, trace } from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { resourceFromAttributes } from "@opentelemetry/resources";
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  RandomIdGenerator,
  SamplingDecision,
  type SpanExporter,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import type { Clock, Instant } from "../kit/clock.ts";
import type { Log } from "../kit/log.ts";
import { readTraceparent, type TraceContext, type Tracer, traceparentOf } from "../kit/trace.ts";

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

const kinds = { server: SpanKind.SERVER, client: SpanKind.CLIENT, internal: SpanKind.INTERNAL };

/** Spans that wait to be sent; what comes beyond them is lost. */
const queuedSpansMax = 8_192;

function contextOf(parent: TraceContext | undefined) {
  if (!parent) return ROOT_CONTEXT;
  const { traceId, spanId, sampled } = parent;
  const traceFlags = sampled ? TraceFlags.SAMPLED : TraceFlags.NONE;
  return trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags, isRemote: true });
}

/** As OpenTelemetry takes it for a time of the wall clock: seconds and nanoseconds. */
const timeOf = (at: Instant): [number, number] => [Math.floor(at / 1_000), Math.round((at % 1_000) * 1e6)];

/** Random ids, except for a span whose id is given; spans are made synchronously, so that is the next one. */
function openSpanIds() {
  const random = new RandomIdGenerator();
  let given: string | undefined;
  return {
    generateTraceId: () => random.generateTraceId(),
    generateSpanId() {
      const next = given ?? random.generateSpanId();
      given = undefined;
      return next;
    },
    give(spanId: string) {
      given = spanId;
    },
  };
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
    maxQueueSize: queuedSpansMax,
  });
  const spanIds = openSpanIds();
  const share = new TraceIdRatioBasedSampler(host.sampleRate);
  /** Without this, a stranger's flag would have everything traced that his call leads to. */
  const asOwn = (parent: TraceContext | undefined) =>
    parent && {
      ...parent,
      sampled:
        parent.sampled &&
        share.shouldSample(ROOT_CONTEXT, parent.traceId).decision === SamplingDecision.RECORD_AND_SAMPLED,
    };
  const provider = new TracerProvider({
    resource: resourceFromAttributes({
      "service.name": host.serviceName,
      "service.version": host.version,
      "service.instance.id": host.nodeId,
    }),
    sampler: new ParentBasedSampler({ root: share }),
    spanProcessors: [processor],
    idGenerator: spanIds,
  });
  const tracer = provider.getTracer("svc", host.version);
  return {
    on: true,
    start(name, kind, parent, from) {
      const given = readTraceparent(parent);
      const context = contextOf(from === "stranger" ? asOwn(given) : given);
      const span = tracer.startSpan(name, { kind: kinds[kind] }, context);
      return {
        get traceparent() {
          const { traceId, spanId, traceFlags } = span.spanContext();
          return traceparentOf({ traceId, spanId, sampled: (traceFlags & TraceFlags.SAMPLED) !== 0 });
        },
        set: (attribute, value) => void span.setAttribute(attribute, value),
        end(failed) {
          if (failed !== undefined) span.setStatus({ code: SpanStatusCode.ERROR, message: failed });
          span.end();
        },
      };
    },
    record({ name, parent, spanId, startedAt, endedAt, attributes, failed }) {
      spanIds.give(spanId);
      const options = {
        kind: SpanKind.INTERNAL,
        startTime: timeOf(startedAt),
        attributes: { ...attributes },
      };
      const span = tracer.startSpan(name, options, contextOf(parent));
      if (failed !== undefined) span.setStatus({ code: SpanStatusCode.ERROR, message: failed });
      span.end(timeOf(endedAt));
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
