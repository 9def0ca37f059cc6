import type { EventReader, HandlerEvent } from "../steps/svc-function.ts";
import type { NamesOf } from "../subscriptions/subscription-types.ts";
import type { Duration } from "../wire/duration.ts";
import type { EventMap, Logger } from "../wire/types.ts";

/** An event as a projection gets it. */
export interface ProjectedEvent<Data = unknown, Name extends string = string>
  extends HandlerEvent<Data, Name> {
  /** Position in the log of the environment. */
  sequence: number;
  /** `__global__` without a partition key, and for events without a value there. */
  partition: string;
}

/** What a pattern of event names brings, by the types of the events. */
export type ProjectedBy<Events, Pattern extends string> = string extends keyof Events
  ? ProjectedEvent
  : {
      [Name in NamesOf<Events, Pattern>]: ProjectedEvent<Events[Name], Name>;
    }[NamesOf<Events, Pattern>];

type Depth = [never, 0, 1, 2, 3];

type PathsIn<Data, Level extends number> = [Level] extends [never]
  ? never
  : Data extends readonly unknown[]
    ? never
    : Data extends object
      ? {
          [Key in keyof Data & string]: Key | `${Key}.${PathsIn<NonNullable<Data[Key]>, Depth[Level]>}`;
        }[keyof Data & string]
      : never;

/** `$.data.customer.id`, up to four names deep; `$.entity_id` stands for the entity of an appended event. */
export type PartitionPath<Events> = string extends keyof Events
  ? string
  : `$.data.${{ [Name in keyof Events]: PathsIn<Events[Name], 4> }[keyof Events]}` | "$.entity_id";

interface AnyProjection<Events extends EventMap> {
  /** Unique in the environment. */
  name: string;
  /** Rises with every change that makes the stored states outdated, and never falls. Default 1. */
  version?: number;
  /** A path inside the event. Each value has a state of its own; without a path there is one. */
  partitionKey?: PartitionPath<Events>;
  /**
   * What a worker does that finds an older version: `side_by_side` folds all events into new states while the
   * old ones are read and takes over when it has caught up, `in_place` throws the old ones away first,
   * `never` (default) continues with them.
   */
  rebuild?: "side_by_side" | "in_place" | "never";
  /** Events at a time, at most 1,000. Default 500. */
  batchSize?: number;
  /** How long events are gathered before they are stored together. Default 20 ms. */
  gather?: Duration;
  /** @deprecated Write `gather`. */
  gatherMs?: number;
  /** Tries of a throwing handler, with the first, before its partition stops. Default 3, 100 ms doubling. */
  retry?: {
    maxAttempts?: number;
    delay?: Duration;
    /** @deprecated Write `delay`. */
    initialDelayMs?: number;
  };
}

/** The next state, or nothing when it changed the one that it was given. */
export type FoldedState<State> = State | void | Promise<State | void>;

/** Folds events into states that the server keeps. A state holds what JSON can hold. */
export interface ManagedProjectionOptions<Events extends EventMap, State, Pattern extends string>
  extends AnyProjection<Events> {
  /** Before the first event of a partition: a value, or what makes one. */
  initialState: State | ((partition: string) => State);
  /** Names and patterns (`order.*`). Default: those that have a handler. */
  events?: readonly Pattern[];
  /** By event name. */
  handlers?: {
    readonly [Name in keyof Events & string]?: (
      state: NoInfer<State>,
      event: ProjectedEvent<Events[Name], Name>,
    ) => FoldedState<NoInfer<State>>;
  };
  /** For events without a handler of their own. */
  reduce?: (state: NoInfer<State>, event: ProjectedBy<Events, Pattern>) => FoldedState<NoInfer<State>>;
  /** The server keeps each saved state for 30 days: `client.projections.get(…, { asOf })`. Default false. */
  recording?: boolean;
  /** States kept in memory at most, those unused for longest leave first. Default 10,000. */
  statesMax?: number;
}

export interface EffectContext {
  /** Raised when the worker was stopped, or another one has the projection. */
  signal: AbortSignal;
  log: Logger;
  /** From 1. */
  attempt: number;
}

/** Hands events to code with effects of its own, at least once each, in order within a partition. */
export interface ExternalProjectionOptions<Events extends EventMap, Pattern extends string>
  extends AnyProjection<Events> {
  initialState?: never;
  /** Names and patterns (`order.*`). Default: those that have a handler. */
  events?: readonly Pattern[];
  /** By event name. */
  handlers?: {
    readonly [Name in keyof Events & string]?: (
      event: ProjectedEvent<Events[Name], Name>,
      context: EffectContext,
    ) => unknown;
  };
  /** For events without a handler of their own. */
  handle?: (event: ProjectedBy<Events, Pattern>, context: EffectContext) => unknown;
  /** Partitions at a time. Default 1. */
  concurrency?: number;
}

/** Folded by the server into a table of its own. */
export interface SqlProjectionOptions<Events extends EventMap> {
  /** Lower case letters, digits and `_`; the table is `proj_{name}`. */
  name: string;
  description?: string;
  /** One CREATE TABLE. */
  tableSql: string;
  /** By event: one INSERT, UPDATE or DELETE with parameters `:data.total`, `:entity_id`, `:timestamp`, …. */
  statements: { readonly [Name in keyof Events & string]?: string };
}

/** `createProjection` for the events of a map, or of a registry. */
export interface CreateProjection<Events extends EventMap> {
  (options: SqlProjectionOptions<Events>): SvcProjection<never>;
  <const Pattern extends string = keyof Events & string>(
    options: ExternalProjectionOptions<Events, Pattern>,
  ): SvcProjection<never>;
  // The last overload: type errors describe this one, the most used.
  <State, const Pattern extends string = keyof Events & string>(
    options: ManagedProjectionOptions<Events, State, Pattern>,
  ): SvcProjection<State>;
}

/** What a runner does with the events of a projection. */
export type ProjectionWork =
  | {
      mode: "managed";
      initial: (partition: string) => unknown;
      fold: (state: never, event: never) => unknown;
      statesMax: number;
    }
  | { mode: "external"; handle: (event: never, context: EffectContext) => unknown; concurrency: number }
  | { mode: "sql"; tableSql: string; statements: Record<string, string>; description: string };

/** A projection: its definition and its code. */
export interface SvcProjection<State = unknown> {
  readonly name: string;
  readonly events: readonly string[];
  readonly version: number;
  /** Empty: one partition. */
  readonly partitionKey: string;
  readonly rebuild: "side_by_side" | "in_place" | "never";
  readonly batchSize: number;
  readonly gatherMs: number;
  readonly retry: { maxAttempts: number; initialDelayMs: number };
  readonly recording: boolean;
  readonly work: ProjectionWork;
  /** How its events are checked and brought up to date. */
  readonly reader?: EventReader;
  /** Never there; carries the type of its state. */
  readonly types?: { readonly state: State };
}
