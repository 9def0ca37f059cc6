import { type Duration, timeoutNames, withUnits } from "../wire/duration.ts";
import type { ReportedError } from "../wire/errors.ts";
import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import { digestHex } from "../wire/payload.ts";
import type {
  AttributeValue,
  EventMap,
  FunctionDefinition,
  Logger,
  RegisteredDefinition,
} from "../wire/types.ts";
import type { Steps } from "./steps.ts";
import type { HandlerEvent, SvcFunction } from "./svc-function.ts";

type Period =
  | { period: Duration; periodMs?: never }
  | {
      /** @deprecated Write `period`. */
      periodMs: number;
      period?: never;
    };

/** What of a definition has durations, and other names here than on the wire. */
interface TimedOptions {
  /** Attempts count the first one. Server's defaults, also for 0: 3, 1 s, factor 2, at most 5 minutes. */
  retry?: {
    maxAttempts?: number;
    delay?: Duration;
    /** By what the delay grows with each attempt. */
    backoff?: number;
    maxDelay?: Duration;
    /** @deprecated Write `delay`. */
    initialDelayMs?: number;
    /** @deprecated Write `backoff`. */
    backoffFactor?: number;
    /** @deprecated Write `maxDelay`. */
    maxDelayMs?: number;
  };
  /** Bounds the whole run from its creation. */
  timeout?: Duration;
  /** @deprecated Write `timeout`. */
  timeoutMs?: number;
  /** Runs once the events have been quiet for that long, with the last one; after `maxWait` in any case. */
  debounce?: {
    key?: string;
    maxWait?: Duration;
    /** @deprecated Write `maxWait`. */
    maxWaitMs?: number;
  } & Period;
  /** At most so many runs begin in a period, `burst` (1) of them at once; the others wait. */
  throttle?: { limit: number; burst?: number; key?: string } & Period;
  /** At most so many runs begin in a period, per value at path `key`; emit tells which events start none. */
  rateLimit?: { limit: number; key?: string } & Period;
  /** CEL over the event: of events with one value within the period (a day) only the first starts a run. */
  idempotency?: {
    key: string;
    period?: Duration;
    /** @deprecated Write `period`. */
    periodMs?: number;
  };
  /** A run that has not begun by then is cancelled, with the cause `start-within`. */
  startWithin?: Duration;
  /** @deprecated Write `startWithin`. */
  startWithinMs?: number;
  /** How long a pinned run waits for its deployment once its last worker is gone. Default 10 minutes. */
  pinGrace?: Duration;
  /** @deprecated Write `pinGrace`. */
  pinGraceMs?: number;
  /**
   * One run gets many events, as `events`: `size` (at most 1,000) of them, or what there is `timeout` after
   * the first; per value at the path `key`, or of CEL over the event.
   */
  batch?: { size: number; key?: string } & (
    | { timeout: Duration; timeoutMs?: never }
    | {
        /** @deprecated Write `timeout`. */
        timeoutMs: number;
        timeout?: never;
      }
  );
}

/** Durations are milliseconds, or texts such as `"2s"`. */
export interface FunctionOptions<
  Name extends string = string,
  Data = unknown,
  Events extends EventMap = EventMap,
> extends TimedOptions,
    Omit<FunctionDefinition, keyof TimedOptions> {
  /** Short for `triggers: [{event}]`; with `expression` and `cron` beside it one trigger of all three. */
  event?: Name;
  expression?: string;
  cron?: string;
  /**
   * Called once a run has failed for good and its compensations ran, with the error and steps of its own. It
   * is retried like a compensation, and cannot sleep or wait.
   */
  onFailure?: (context: FailureContext<Data, Name, Events>) => unknown;
}

const named = (...names: string[]): Readonly<Record<string, true>> =>
  Object.fromEntries(names.map((name) => [name, true]));

const knownPeriod = { period: true, periodMs: "period" } as const;

export const knownOfFunction: KnownOptions<FunctionOptions> = {
  ...{ id: true, name: true, description: true, event: true, expression: true, cron: true },
  triggers: named("event", "expression", "cron"),
  retry: {
    ...named("maxAttempts", "delay", "backoff", "maxDelay"),
    ...{ initialDelayMs: "delay", backoffFactor: "backoff", maxDelayMs: "maxDelay" },
  },
  ...timeoutNames,
  concurrency: named("limit", "key"),
  debounce: { ...knownPeriod, ...named("key", "maxWait"), maxWaitMs: "maxWait" },
  priority: true,
  throttle: { ...knownPeriod, ...named("limit", "burst", "key") },
  rateLimit: { ...knownPeriod, ...named("limit", "key") },
  idempotency: { ...knownPeriod, ...named("key") },
  singleton: named("mode", "key"),
  ...{ startWithin: true, startWithinMs: "startWithin" },
  ...{ pin: true, pinGrace: true, pinGraceMs: "pinGrace", pinGone: true },
  batch: { ...timeoutNames, ...named("size", "key") },
  actorKey: true,
  cancelOn: named("event", "match"),
  ...{ secrets: true, recording: true, recordingProfile: true, recordingRetention: true },
  ...{ mode: true, endpointUrl: true, metadata: true, changeReason: true, attributes: true },
  ...{ compensateOnCancel: true, nondeterminism: true, onFailure: true },
};

/** What a handler of failures gets. */
export interface FailureContext<
  Data = unknown,
  Name extends string = string,
  Events extends EventMap = EventMap,
> extends HandlerContext<Data, Name, Events> {
  /** What the run failed with. */
  error: ReportedError;
}

/** What a handler gets. It is entered again for each attempt and yield; finished steps are not repeated. */
export interface HandlerContext<
  Data = unknown,
  Name extends string = string,
  Events extends EventMap = EventMap,
> {
  event: HandlerEvent<Data, Name>;
  /** Of a function with `batch`: all events of the run, in their order. Else the one event. */
  events: HandlerEvent<Data, Name>[];
  step: Steps<Events>;
  /**
   * Attempts count from 1; `maxAttempts` is 0 where it is not known. `actorId` is the value at the function's
   * `actorKey`. `sequence` is where the event stands: `client.consistent({ after: run.sequence })` reads
   * nothing older.
   */
  run: {
    id: string;
    functionId: string;
    attempt: number;
    maxAttempts: number;
    actorId?: string;
    sequence?: string;
    /**
     * What the run is found by: `run.set({ orderId, total, paidAt: new Date() })`. It travels with the next
     * report; setting it again changes it, and `null` takes it away. At most 32 names a run, 256 bytes a
     * text; a name keeps its type in the environment.
     */
    set(attributes: Record<string, AttributeValue | null>): void;
    /**
     * What others read while the run goes on (`client.runs.output`), such as the tokens of a model. A chunk
     * is any JSON of at most 64 KiB, stored once, within 50 ms with others; 4 MiB an output, 8 outputs a run.
     * What a step wrote in a try that failed is superseded by the next try. The promise is for who wants to
     * wait until it is stored, or to know that it is refused; it need not be awaited. Endpoints of `serve`
     * keep nothing.
     */
    output(name: string): { write(chunk: unknown): Promise<void> };
  };
  /** Raised when the run was cancelled or another worker has it; nothing done afterwards is recorded. */
  signal: AbortSignal;
  /** The worker's logger; its lines carry run, function and attempt. */
  log: Logger;
  /** Values of the secrets that the function names. */
  secrets: Record<string, string>;
  /** Where the run is in its event's trace (W3C Trace Context), for spans and calls of the handler. */
  traceparent: string | undefined;
}

/**
 * Its result, as JSON, becomes the run's output. What it throws fails the attempt, and the run is tried again
 * by the function's `retry`; NonRetryableError fails the run.
 */
export type Handler<
  Data = unknown,
  Name extends string = string,
  Events extends EventMap = EventMap,
  Output = unknown,
> = (context: HandlerContext<Data, Name, Events>) => Output | Promise<Output>;

/**
 * A durable function: its definition and its code. Pass it to `createWorker`, `serve` or `testFunction`. With
 * a map of events its handler is typed:
 * `createFunction<Events, "order.placed">({ id: "ship", event: "order.placed" }, …)`; a client's or
 * `defineEvents`' `createFunction` needs no such words. Throws TypeError without an id, on an option that
 * does not exist, and for what is no duration.
 */
export function createFunction<
  Events extends EventMap = EventMap,
  Name extends keyof Events & string = keyof Events & string,
  Output = unknown,
>(
  options: FunctionOptions<Name, Events[Name], Events>,
  handler: Handler<Events[Name], Name, Events, Output>,
): SvcFunction<Events[Name], Output> {
  requireKnown("createFunction", options, knownOfFunction);
  const given = withUnits("createFunction", options, knownOfFunction);
  const { event, expression, cron, triggers = [], onFailure, ...rest } = given;
  if (!rest.id) throw new TypeError("a function needs an id");
  if (typeof handler !== "function")
    throw new TypeError(`function ${rest.id}: its handler, a function, comes behind its options`);
  const own = {
    ...(event !== undefined && { event }),
    ...(expression !== undefined && { expression }),
    ...(cron !== undefined && { cron }),
  };
  const definition = {
    ...(rest as FunctionDefinition),
    triggers: Object.keys(own).length > 0 ? [own, ...triggers] : triggers,
  };
  return { id: rest.id, definition, handler, ...(onFailure && { onFailure }) };
}

/** First 16 hex digits of the SHA-256 of the handler's source: changed code is a changed definition. */
export const codeHash = (handler: SvcFunction["handler"]): Promise<string> =>
  digestHex(handler.toString(), 8);

/**
 * A function as it is registered: its definition, with the hash of its code in the metadata, and when its
 * worker is to be handed a run once more to undo it.
 */
export async function registration({
  definition: { compensateOnCancel = true, ...definition },
  handler,
  onFailure,
}: SvcFunction): Promise<RegisteredDefinition> {
  return {
    ...definition,
    metadata: { ...definition.metadata, __svc_code_hash: await codeHash(handler) },
    compensateOn: compensateOnCancel ? ["failure", "cancel"] : ["failure"],
    ...(onFailure && { onFailure: true }),
  };
}
