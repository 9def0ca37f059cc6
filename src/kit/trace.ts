import type { Instant } from "./clock.ts";
import type { TraceContext } from "./trace-context.ts";

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
  /** Its parent. */
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
