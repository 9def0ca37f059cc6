import type { Duration } from "../wire/duration.ts";
import type { ReportedError } from "../wire/errors.ts";
import type { EventMap } from "../wire/types.ts";
import type { HandlerEvent } from "./svc-function.ts";

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
