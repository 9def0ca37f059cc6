import type { EventReader, HandlerEvent } from "../steps/svc-function.ts";
import type { NamesOf, SubscribeOptions, Subscription } from "../subscriptions/subscription-types.ts";
import type { Duration, TimeoutOption } from "../wire/duration.ts";
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

/** A projection, or its name. */
export type WhichProjection<State = unknown> = SvcProjection<State> | string;

export type ReadModelStatus = "active" | "paused" | "rebuilding" | "error";

export interface RegisteredProjection {
  name: string;
  mode: "managed" | "external" | "sql";
  status: ReadModelStatus;
  events: string[];
  /** Empty: one partition. */
  partitionKey: string;
  version: number;
  /** Position in the log up to which it has seen everything. */
  sequence: number;
  errorMessage?: string;
  description?: string;
  createdAt: string;
  updatedAt: string;
}

export interface PartitionState<State = unknown> {
  partition: string;
  /** Undefined before the first event of the partition. */
  state: State | undefined;
  /** Position of the last event that is folded into it. */
  sequence: number;
  lastEventId?: string;
  lastEventTime?: string;
  updatedAt?: string;
  projection: RegisteredProjection;
}

/** How a projection stands. */
export interface ProjectionProgress {
  name: string;
  status: ReadModelStatus;
  mode: string;
  version: number;
  sequence: number;
  /** Its events that it has not seen. */
  lag: number;
  /** What stopped a partition, or an external projection. */
  error?: { message: string; eventId: string; sequence: number; partition: string };
  /** A generation that is folded beside the one that is read, and how far it is. */
  building?: { generation: number; sequence: number };
  updatedAt: string;
}

/** `timeout` is at most 60 s; default 30 s. */
export interface ProjectionWaitOptions extends TimeoutOption {
  /** Default: the whole projection. */
  partition?: string;
  signal?: AbortSignal;
}

export interface WaitOutcome {
  /** False when the time was over first. */
  caughtUp: boolean;
  sequence: number;
  target: number;
  behindByEvents: number;
  /** Another generation is folded beside the one that is read. */
  rebuilding: boolean;
}

export interface RebuildOptions {
  /** Default `side_by_side`: stored states are read until new ones caught up. `in_place`: they go first. */
  strategy?: "side_by_side" | "in_place";
  /** Only this partition, in place. */
  partition?: string;
  fromEventId?: string;
  toEventId?: string;
  /** Only tells how much there is to fold. */
  dryRun?: boolean;
}

export interface RebuildProgress {
  id: string;
  status: "running" | "completed" | "cancelled" | "failed";
  strategy: "side_by_side" | "in_place";
  eventsProcessed: number;
  totalEvents: number;
  /** From 0 to 1. */
  progress: number;
  generation: number;
  startedAt: string;
  remainingMs?: number;
  error?: string;
}

export interface SqlQuery {
  /** Columns, literals, comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL. */
  where?: string;
  orderBy?: string;
  /** Default 100. */
  limit?: number;
  offset?: number;
}

/** What a change of a state brings, as `state`; see `client.subscribe`. */
export interface ProjectionUpdate<State = unknown> {
  topic: string;
  data: { state: State; last_event_id: string; last_event_name: string };
}

/** Read models: reading them, waiting for them, and steering them. */
export interface ProjectionCalls {
  get<State = unknown>(
    projection: WhichProjection<State>,
    options?: {
      partition?: string;
      /** The state as last saved with no event after that time, for projections that are `recording`. */
      asOf?: Date | string;
    },
  ): Promise<PartitionState<State>>;
  /** Keys of partitions that have a state, by key; `search` is a part of them. At most 1,000. */
  partitions(projection: WhichProjection, options?: { search?: string; limit?: number }): Promise<string[]>;
  /** Until it has seen a position: the `sequence` of an emit. SvcError `failed_precondition` if stopped. */
  wait(projection: WhichProjection, sequence: number, options?: ProjectionWaitOptions): Promise<WaitOutcome>;
  /** Until it has seen an event. */
  waitForEvent(
    projection: WhichProjection,
    eventId: string,
    options?: ProjectionWaitOptions,
  ): Promise<WaitOutcome>;
  /** Rows of an SQL projection, by column. */
  query<Row = Record<string, unknown>>(
    projection: WhichProjection,
    query?: SqlQuery,
  ): Promise<{ rows: Row[]; columns: string[]; totalCount: number }>;
  list(options?: {
    status?: ReadModelStatus;
    mode?: string;
    limit?: number;
    offset?: number;
  }): Promise<{ projections: RegisteredProjection[]; totalCount: number }>;
  status(projection: WhichProjection): Promise<ProjectionProgress>;
  pause(projection: WhichProjection): Promise<void>;
  /** Also tries again what failed, or passes over the event at which it failed. */
  resume(projection: WhichProjection, options?: { skipEventId?: string }): Promise<void>;
  rebuild(projection: WhichProjection, options?: RebuildOptions): Promise<RebuildProgress>;
  /** The last rebuild; undefined when there was none. */
  rebuildProgress(projection: WhichProjection): Promise<RebuildProgress | undefined>;
  /** One beside leaves no trace. */
  cancelRebuild(projection: WhichProjection): Promise<void>;
  /** Changes of states, of one partition or all. A hint: those that fall into a reconnect are lost. */
  subscribe<State = unknown>(
    projection: WhichProjection<State>,
    options?: Pick<SubscribeOptions, "signal" | "over" | "onNotice"> & { partition?: string },
    onUpdate?: (update: ProjectionUpdate<State>) => void | Promise<void>,
  ): Subscription<ProjectionUpdate<State>>;
  /** With its states. A worker that still folds it lets go of it. */
  delete(projection: WhichProjection): Promise<void>;
}
