/**
 * Traces as the rest of the house sees them; the edge decides whether they are kept. Never pass a payload or
 * a name of a tenant's.
 */
export interface Span {
  set(name: string, value: string | number): void;
  /** `failed` says in one word of ours what went wrong. */
  end(failed?: string): void;
}

export interface Tracer {
  /** False when no span is kept: work that only feeds spans can be left out. */
  readonly on: boolean;
  /**
   * `parent` is what a caller sent as `traceparent` (W3C Trace Context); without a valid one a trace begins
   * here.
   */
  start(name: string, kind: "server" | "client", parent?: string | null): Span;
}

const silentSpan: Span = { set() {}, end() {} };

/** A tracer that is off. */
export const noTracer: Tracer = { on: false, start: () => silentSpan };
