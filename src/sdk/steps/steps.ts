import type { Tool } from "../client/tool-types.ts";
import type { Duration } from "../wire/duration.ts";
import type { ReportedError } from "../wire/errors.ts";
import type { Jsonify } from "../wire/jsonify.ts";
import type { EmitOptions, Emitted, EventMap, Published } from "../wire/types.ts";
import type { StepRetry } from "./step-retry.ts";
import type { HandlerEvent, SvcFunction } from "./svc-function.ts";

export interface WaitOptions {
  /** The step's name; default: the event's. */
  name?: string;
  /** A path in the data, equal in the awaited and the triggering event; or CEL over `event` and `data`. */
  match?: string;
  /** The value that the awaited event must have at `match`, in place of the triggering event's. */
  matchValue?: unknown;
  /** Default 7 days. */
  timeout?: Duration;
  /** After it `null` (default) gives null; `throw` throws WaitTimeoutError, ending the run if uncaught. */
  onTimeout?: "null" | "throw";
  /** Kept as the input of the waiting step, to be shown. */
  payload?: unknown;
}

export type ManyOptions = Pick<WaitOptions, "timeout" | "onTimeout">;
/** The step's name; default: that of what is waited for. */
export type NamedOptions = ManyOptions & Pick<WaitOptions, "name">;

/** An event, as one of several things that a step waits for. */
export interface AwaitedEvent<Name extends string = string>
  extends Pick<WaitOptions, "match" | "matchValue"> {
  event: Name;
}

/** The version that a stream has, or the one after which something is appended. */
export type StreamTest = { version: number; after?: never } | { after: number; version?: never };
/** The stream of an entity. */
export type AwaitedStream = { stream: string } & StreamTest;

/** What a key is: changed after a revision, of a value (at most 1,024 bytes), there, or not there. */
export type KeyTest = { after: number } | { equals: unknown } | { exists: true } | { deleted: true };
/** A key of a bucket. A bucket that is not there has no keys. */
export type AwaitedKey = { bucket: string; key: string } & KeyTest;

/** The end of a run that this run started. */
export interface AwaitedRun {
  run: string;
}

/** By names of your own, at most 20. */
export type AwaitedThings<Events extends EventMap> = Readonly<
  Record<string, AwaitedEvent<keyof Events & string> | AwaitedStream | AwaitedKey | AwaitedRun>
>;

export interface MetStream {
  entityId: string;
  entityType: string;
  /** When the server looked: at least what was waited for. */
  version: number;
}

/** Without its value, which `client.kv.get` reads. */
export interface MetKey {
  bucket: string;
  key: string;
  exists: boolean;
  /** Of its last change; undefined of a key that never was, or is forgotten. */
  revision?: number;
}

export interface MetRun<Output = unknown> {
  runId: string;
  functionId: string;
  status: "completed" | "failed" | "cancelled";
  /** Undefined unless completed. */
  output?: Output;
  /** The output has more than 200,000 characters: `client.getRun` has it. */
  outputLeftOut?: true;
  error?: ReportedError;
  /** Why it was cancelled. */
  cause?: string;
}

/** What met a condition, by the word of its kind. */
type MetOne<Events extends EventMap, One> = One extends { event: infer Name extends keyof Events & string }
  ? { event: HandlerEvent<Events[Name], Name> }
  : One extends { stream: string }
    ? { stream: MetStream }
    : One extends { run: string }
      ? { run: MetRun }
      : { key: MetKey };
type ValueOf<One> = One[keyof One];

/** What met these conditions, by their names. */
export type MetThings<Events extends EventMap, Given extends AwaitedThings<Events>> = {
  -readonly [Key in keyof Given]: ValueOf<MetOne<Events, Given[Key]>>;
};

/** What came first, and the name of the condition that it met. */
export type FirstMet<Events extends EventMap, Given extends AwaitedThings<Events>> = {
  [Key in keyof Given & string]: { name: Key } & MetOne<Events, Given[Key]>;
}[keyof Given & string];

/** What the code of a step is given. */
export interface StepContext {
  /** The step's id, the same in every attempt: a good idempotency key for calls to others. */
  readonly id: string;
  /** Which try of a step with `retry` this is, from 1. */
  readonly attempt: number;
  /** Raised when the step's time is over, the run was cancelled, or another worker has it. */
  readonly signal: AbortSignal;
  /** Where the step is in its run's trace, for what it calls: header `traceparent`. Undefined: no trace. */
  readonly traceparent: string | undefined;
}

export interface RunOptions<Output = unknown> {
  /** After it the try fails with STEP_TIMEOUT, which is retried; `signal` is raised, the code not awaited. */
  timeout?: Duration;
  /**
   * Tries the step again by itself, without entering the handler again; otherwise a failed step waits for the
   * run's next attempt. A worker that dies loses no tries. After the last one the step has failed for good:
   * StepFailedError, which ends the run unless caught. An error that is not retried ends the tries.
   */
  retry?: StepRetry;
  /** Registers `compensate(name, …)` once the step has its result. */
  compensate?: (output: Output) => unknown;
}

export interface InvokeOptions<Input = unknown> {
  /** The data of the child's event. */
  input?: Input;
  /** How long the child may take. Left out, only the run's own `timeout` ends the wait. */
  timeout?: Duration;
  /** @deprecated Write `timeout`. */
  timeoutMs?: number;
}

export interface PublishOptions {
  /** Default: made of run and step, so that a repeated step publishes once. */
  idempotencyKey?: string;
}

export interface ParallelOptions {
  /** Waits for all branches and returns, in place of results, what `Promise.allSettled` would. */
  allSettled?: boolean;
}

export interface MapOptions extends ParallelOptions {
  /** Items at a time; default: all. */
  concurrency?: number;
}

export type Branch<Events extends EventMap = EventMap> = (steps: Steps<Events>) => unknown;
export type Branches<Events extends EventMap = EventMap> =
  | readonly Branch<Events>[]
  | Readonly<Record<string, Branch<Events>>>;

/** The results of branches, in the shape the branches were given. */
export type BranchResults<Given> = {
  -readonly [Key in keyof Given]: Given[Key] extends (...given: never) => infer Result
    ? Awaited<Result>
    : never;
};
export type BranchesSettled<Given> = {
  -readonly [Key in keyof Given]: Given[Key] extends (...given: never) => infer Result
    ? PromiseSettledResult<Awaited<Result>>
    : never;
};

/**
 * The durable pieces of a handler. Names may repeat; the n-th use of a name is its own step, so a handler
 * must reach the same steps in the same order each time it is entered. What a step returns is stored as JSON
 * and given back as such: a Date comes back as text, undefined as null.
 */
export interface Steps<Events extends EventMap = EventMap> {
  /**
   * Runs `work` once and for all: its result (at most 4 MiB of JSON) is stored, and given back instead of
   * running it again. What it throws is recorded and thrown on; the next attempt runs it again, unless it was
   * a NonRetryableError that ended the run. A crash between the end of `work` and its storing runs it again.
   */
  run<Output>(
    name: string,
    work: (context: StepContext) => Output | Promise<Output>,
    options?: RunOptions<Jsonify<Output>>,
  ): Promise<Jsonify<Output>>;
  /** Frees the worker for that long (`250`, `"10s"`, `"7d"`); the handler is entered again afterwards. */
  sleep(name: string, duration: Duration): Promise<void>;
  /** The same until an instant: Date, RFC 3339 text or milliseconds since 1970. */
  sleepUntil(name: string, at: Date | string | number): Promise<void>;
  /** Frees the worker until such an event is emitted, and returns it; null when none came in time. */
  waitForEvent<Name extends keyof Events & string>(
    event: Name,
    options: WaitOptions & { onTimeout: "throw" },
  ): Promise<HandlerEvent<Events[Name], Name>>;
  waitForEvent<Name extends keyof Events & string>(
    event: Name,
    options?: WaitOptions,
  ): Promise<HandlerEvent<Events[Name], Name> | null>;
  /** Waits until one of these conditions is met, and says which; drops the rest. Null if none was in time. */
  waitForAny<const Given extends AwaitedThings<Events>>(
    name: string,
    things: Given,
    options: ManyOptions & { onTimeout: "throw" },
  ): Promise<FirstMet<Events, Given>>;
  waitForAny<const Given extends AwaitedThings<Events>>(
    name: string,
    things: Given,
    options?: ManyOptions,
  ): Promise<FirstMet<Events, Given> | null>;
  /** Waits until all of these conditions are met. Null when one was not in time. */
  waitForAll<const Given extends AwaitedThings<Events>>(
    name: string,
    things: Given,
    options: ManyOptions & { onTimeout: "throw" },
  ): Promise<MetThings<Events, Given>>;
  waitForAll<const Given extends AwaitedThings<Events>>(
    name: string,
    things: Given,
    options?: ManyOptions,
  ): Promise<MetThings<Events, Given> | null>;
  /** Waits for `timeout` without one of these being met, then null; otherwise at once the one that was. */
  waitForNone<const Given extends AwaitedThings<Events>>(
    name: string,
    things: Given,
    options: { timeout: Duration },
  ): Promise<FirstMet<Events, Given> | null>;
  /**
   * Waits until the stream of an entity has this version, or more than `after`; one that has it already ends
   * the wait at once. Null when it was not in time.
   */
  waitForStream(
    entityId: string,
    options: StreamTest & NamedOptions & { onTimeout: "throw" },
  ): Promise<MetStream>;
  waitForStream(entityId: string, options: StreamTest & NamedOptions): Promise<MetStream | null>;
  /**
   * Waits until a key is as it says, or changes after a revision; one that already is so ends the wait. A
   * value replaced in the same moment may be missed, its revision never. Null when it was not in time.
   */
  waitForKey(
    bucket: string,
    key: string,
    options: KeyTest & NamedOptions & { onTimeout: "throw" },
  ): Promise<MetKey>;
  waitForKey(bucket: string, key: string, options: KeyTest & NamedOptions): Promise<MetKey | null>;
  /** Waits until a run that this run started is over, however it ended. Null when it was not in time. */
  waitForRun<Output = unknown>(
    runId: string,
    options: NamedOptions & { onTimeout: "throw" },
  ): Promise<MetRun<Output>>;
  waitForRun<Output = unknown>(runId: string, options?: NamedOptions): Promise<MetRun<Output> | null>;
  /**
   * Waits for what `client.runs.signal` sends to this run under the name, and gives its data; a signal that
   * came before is kept for it. Null when none was in time, so let data that is null say so by `onTimeout`.
   */
  waitForSignal<Data = unknown>(
    signal: string,
    options: NamedOptions & { onTimeout: "throw" },
  ): Promise<Data>;
  waitForSignal<Data = unknown>(signal: string, options?: NamedOptions): Promise<Data | null>;
  /**
   * Starts another function, whatever its triggers, and returns its output; the worker is free meanwhile. A
   * child that failed or took too long throws NonRetryableError, with the code of its error or INVOKE_FAILED.
   */
  invoke<Input, Output>(
    target: SvcFunction<Input, Output>,
    options?: InvokeOptions<NoInfer<Input>>,
  ): Promise<Jsonify<Output>>;
  invoke<Output = unknown>(target: string, options?: InvokeOptions): Promise<Output>;
  /** Starts another function and continues without waiting for it. */
  invokeAsync<Input>(
    target: SvcFunction<Input> | string,
    options?: Pick<InvokeOptions<NoInfer<Input>>, "input">,
  ): Promise<{ runId: string }>;
  /**
   * Calls an agent's tool through the server, and stores its output. Its step is named `tool.{agent}.{tool}`.
   * An error that the tool answers fails the attempt with the tool's code; a repeated step calls it again.
   */
  tool<Input, Output>(tool: Tool<Input, Output>, input: NoInfer<Input>): Promise<Jsonify<Output>>;
  tool<Output = unknown>(tool: string, input?: unknown): Promise<Output>;
  /** Puts a message on a topic, once; it starts nothing. */
  publish(topic: string, data: unknown, options?: PublishOptions): Promise<Published>;
  /** Emits an event, once, whatever happens to the run. Without a key one is made of run and step. */
  emit<Name extends keyof Events & string>(
    event: Name,
    data: Events[Name],
    options?: Omit<EmitOptions, "traceparent">,
  ): Promise<Emitted>;
  /**
   * Runs branches side by side, given as a list or by name. All run until they end or wait; the first error
   * then fails the whole (with `allSettled` none does). Their sleeps, waits and invokes run at the same time.
   */
  parallel<const Given extends Branches<Events>>(
    name: string,
    branches: Given,
    options: ParallelOptions & { allSettled: true },
  ): Promise<BranchesSettled<Given>>;
  parallel<const Given extends Branches<Events>>(
    name: string,
    branches: Given,
    options?: ParallelOptions,
  ): Promise<BranchResults<Given>>;
  /** A branch for every item, `concurrency` at a time; no further ones begin after an error. */
  map<Item, Output>(
    name: string,
    items: readonly Item[],
    work: (item: Item, index: number) => Output | Promise<Output>,
    options: MapOptions & { allSettled: true },
  ): Promise<PromiseSettledResult<Output>[]>;
  map<Item, Output>(
    name: string,
    items: readonly Item[],
    work: (item: Item, index: number) => Output | Promise<Output>,
    options?: MapOptions,
  ): Promise<Output[]>;
  /**
   * How to undo what `name` did. Should the run end without success, these run in reverse order, each
   * recorded as a step `compensate:{name}`; one that fails does not stop the others.
   */
  compensate(name: string, undo: () => unknown): void;
}
