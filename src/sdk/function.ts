import type { Steps } from "./step.ts";
import type { EventMap, FunctionDefinition, Logger } from "./types.ts";

export interface FunctionOptions<Name extends string = string> extends FunctionDefinition {
  /** Short for `triggers: [{event}]`; with `expression` and `cron` beside it one trigger of all three. */
  event?: Name;
  expression?: string;
  cron?: string;
}

export interface HandlerEvent<Data = unknown, Name extends string = string> {
  id: string;
  name: Name;
  data: Data;
  /** RFC 3339. */
  timestamp: string;
  version: number;
  /** `api`, `cron`, … */
  source?: string;
  idempotencyKey?: string;
  metadata: Record<string, unknown> | null;
}

/** What a handler gets. It is entered again for every attempt and after every sleep; finished steps are not repeated. */
export interface HandlerContext<Data = unknown, Name extends string = string> {
  event: HandlerEvent<Data, Name>;
  step: Steps;
  /** Attempts count from 1. */
  run: { id: string; functionId: string; attempt: number; maxAttempts: number; actorId?: string };
  /** Raised when this execution is no longer ours (cancelled, taken over); nothing it does afterwards is recorded. */
  signal: AbortSignal;
  log: Logger;
  /** Values of the secrets that the function names. */
  secrets: Record<string, string>;
}

/** Its result, as JSON, becomes the run's output. What it throws fails the attempt; NonRetryableError fails the run. */
export type Handler<Data = unknown, Name extends string = string> = (
  context: HandlerContext<Data, Name>,
) => unknown | Promise<unknown>;

export interface SvcFunction {
  readonly id: string;
  readonly definition: FunctionDefinition;
  readonly handler: Handler<never, never>;
}

/**
 * A durable function: its definition and its code. Pass it to `createWorker`. With a map of events its handler is typed:
 * `createFunction<Events, "order.placed">({ id: "ship", event: "order.placed" }, ({ event }) => …)`.
 * Throws TypeError without an id.
 */
export function createFunction<
  Events extends EventMap = EventMap,
  Name extends keyof Events & string = keyof Events & string,
>(options: FunctionOptions<Name>, handler: Handler<Events[Name], Name>): SvcFunction {
  const { event, expression, cron, triggers = [], ...rest } = options;
  if (!rest.id) throw new TypeError("a function needs an id");
  const own = {
    ...(event !== undefined && { event }),
    ...(expression !== undefined && { expression }),
    ...(cron !== undefined && { cron }),
  };
  const definition = { ...rest, triggers: Object.keys(own).length > 0 ? [own, ...triggers] : triggers };
  return { id: rest.id, definition, handler: handler as Handler<never, never> };
}

/** First 16 hex digits of the SHA-256 of the handler's source: a change of code is a change of the definition. */
export async function codeHash(handler: SvcFunction["handler"]): Promise<string> {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(handler.toString()));
  return Array.from(new Uint8Array(digest, 0, 8), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
