import type { Instant } from "./clock.ts";

/** A place in a trace: https://www.w3.org/TR/trace-context/#traceparent-header */
export interface TraceContext {
  traceId: string;
  /** The span that what follows is a child of. */
  spanId: string;
  /** Whether spans of the trace are kept. */
  sampled: boolean;
}

const form = /^(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:$|-)/;
/** Characters of a header of version 00, the one that we write; only later versions may continue after it. */
const length00 = 55;

/** Undefined for a text that is no `traceparent`: W3C has such a one ignored. */
export function readTraceparent(text: string | null | undefined): TraceContext | undefined {
  const [, version, traceId, spanId, flags] = form.exec(text ?? "") ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  if (version === "00" && text?.length !== length00) return undefined;
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

export const traceparentOf = ({ traceId, spanId, sampled }: TraceContext): string =>
  `00-${traceId}-${spanId}-0${sampled ? 1 : 0}`;

/** What is passed on of a header: our own form of it, however long it came. */
export function passedOn(traceparent: string | null | undefined): string | undefined {
  const context = traceparent ? readTraceparent(traceparent) : undefined;
  return context && traceparentOf(context);
}

/**
 * The span of a run, or of one of its steps, has an id made of theirs (FNV-1a, 64 bits): a worker and other
 * nodes name it as a parent before it is over and written. `sdk/wire/wire.ts` makes the same one.
 */
export function spanIdOf(runId: string, stepId?: string): string {
  const text = stepId === undefined ? runId : `${runId}/${stepId}`;
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(text))
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  return (hash || 1n).toString(16).padStart(16, "0");
}

const key = "traceparent";
const quotedKey = `"${key}"`;

/**
 * An event's metadata, as JSON text, with where its trace stands, as CloudEvents has it. What its sender says
 * there himself stays.
 */
export function withTraceparent(metadata: string | null, traceparent: string | undefined): string | null {
  if (traceparent === undefined) return metadata;
  if (metadata === null) return `{${quotedKey}:"${traceparent}"}`;
  const given = JSON.parse(metadata) as Record<string, unknown>;
  return Object.hasOwn(given, key) ? metadata : JSON.stringify({ ...given, [key]: traceparent });
}

/** Where the trace of an event stands, by its metadata. */
export function traceIn(metadata: string | null): TraceContext | undefined {
  // Most events have none, and parsing the metadata of each job would cost.
  if (!metadata?.includes(quotedKey)) return undefined;
  const given = (JSON.parse(metadata) as Record<string, unknown>)[key];
  return typeof given === "string" ? readTraceparent(given) : undefined;
}

/**
 * Where work of a run continues: at its own span, or that of a step, where the server keeps spans; else where
 * its event stands.
 */
export const traceOfRun = (
  trace: TraceContext,
  { runId, stepId, keepsSpans }: { runId: string; stepId?: string | undefined; keepsSpans: boolean },
): TraceContext => (keepsSpans ? { ...trace, spanId: spanIdOf(runId, stepId) } : trace);

/** The trace of a job, as its worker or endpoint gets it. */
export const tracedFields = ({
  trace,
  keepsSpans,
}: {
  trace?: TraceContext | undefined;
  keepsSpans?: boolean | undefined;
}) =>
  trace && {
    trace_id: trace.traceId,
    traceparent: traceparentOf(trace),
    ...(keepsSpans && { step_spans: true }),
  };

/**
 * Traces as the rest of the house sees them; the edge decides whether they are kept. Never pass a payload or
 * a name of a tenant's.
 */
export interface Span {
  /** From where what this work leads to goes on; undefined when no span is kept. */
  readonly traceparent: string | undefined;
  set(name: string, value: string | number): void;
  /** `failed` says in one word of ours what went wrong. */
  end(failed?: string): void;
}

/** A span that is over. Its id was made before, so that others could go on from it. */
export interface PastSpan {
  name: string;
  parent: TraceContext;
  spanId: string;
  startedAt: Instant;
  endedAt: Instant;
  attributes: Readonly<Record<string, string | number>>;
  /** In one word of ours. */
  failed?: string | undefined;
}

export type SpanKind = "server" | "client" | "internal";

export interface Tracer {
  /** False when no span is kept: work that only feeds spans can be left out. */
  readonly on: boolean;
  /**
   * `parent` is what a caller sent as `traceparent` (W3C Trace Context); without a valid one a trace begins
   * here. Whether it is kept says the caller, or the share of traces that are kept here for a `stranger`.
   */
  start(name: string, kind: SpanKind, parent?: string | null, from?: "stranger"): Span;
  record(span: PastSpan): void;
}

const silentSpan: Span = { traceparent: undefined, set() {}, end() {} };

/** A tracer that is off. */
export const noTracer: Tracer = { on: false, start: () => silentSpan, record() {} };
