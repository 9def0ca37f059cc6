import type { JsonSchemaText } from "../wire/json-schema.ts";
import type { EventMap } from "../wire/types.ts";

/** An event to append. */
export type EventToAppend<Events extends EventMap = EventMap> = {
  [Name in keyof Events & string]: {
    event: Name;
    data: Events[Name];
    metadata?: Record<string, unknown>;
    /** Of the event's schema. */
    version?: number;
    /** A second append with the same key is answered like the first, whatever it expects. */
    idempotencyKey?: string;
  };
}[keyof Events & string];

export interface AppendTo {
  entityId: string;
  /** The first append fixes it for the stream. */
  entityType: string;
  /**
   * The version that the stream must have, 0 for a stream that does not exist. SvcError `aborted` when it has
   * another. Default -1: any.
   */
  expectedVersion?: number;
}

/** Who calls. */
export interface ByRun {
  /** The run whose handler calls, `run.id`: it is linked with the stream. */
  runId?: string;
}

export interface AppendedEvent {
  eventId: string;
  /** Of the stream, after this event. */
  version: number;
  /** The event's position in the log of the environment. */
  sequence: number;
}

/** An event as its stream has it. */
export type EntityEvent<Events extends EventMap = EventMap> = {
  [Name in keyof Events & string]: {
    id: string;
    name: Name;
    /** Null of a redacted event. */
    data: Events[Name];
    metadata?: Record<string, unknown>;
    /** In the stream, from 1. */
    version: number;
    /** Of the event's schema. */
    schemaVersion: number;
    /** RFC 3339. */
    timestamp: string;
    source: string;
    sequence: number;
    idempotencyKey?: string;
    runId?: string;
    /** When its payloads were overwritten. */
    redactedAt?: string;
  };
}[keyof Events & string];

export interface EntityStream {
  entityId: string;
  entityType: string;
  /** How many events it has. */
  version: number;
  createdAt: string;
  updatedAt: string;
  deleted: boolean;
}

export interface ReadStreamOptions extends ByRun {
  /** The first version to read. Default: the first one in the direction. */
  fromVersion?: number;
  /** Events at most. Default: all. */
  limit?: number;
  /** Default `forward`. */
  direction?: "forward" | "backward";
  signal?: AbortSignal;
}

export interface HistoryRun {
  runId: string;
  functionId: string;
  status: string;
  startedAt?: string;
  endedAt?: string;
  durationMs?: number;
  steps: {
    stepId: string;
    name: string;
    type: string;
    status: string;
    durationMs?: number;
    errorMessage?: string;
  }[];
}

export interface HistoryOfEvent {
  eventId: string;
  eventName: string;
  data: unknown;
  version: number;
  timestamp: string;
  source: string;
  runs: HistoryRun[];
}

export interface EntitySnapshot<State = unknown> {
  snapshotId: string;
  entityType: string;
  /** The version whose state it is. */
  version: number;
  state: State;
  createdAt: string;
}

export interface FoldOptions<State> extends ByRun {
  /** The state before the first event. */
  initial: State;
  /** Stores a snapshot whenever so many events were folded since the last one. Default: never. */
  snapshotEvery?: number;
  /** Whether a fold begins at the latest snapshot. Default true. */
  fromSnapshot?: boolean;
}

export interface Folded<State> {
  state: State;
  /** The version that was folded up to, to expect with the next append; 0 for a missing stream. */
  version: number;
}

/** Streams of entities: events with a version of their own, appended where the caller expects them. */
export interface StreamCalls<Events extends EventMap = EventMap> {
  append(target: AppendTo & EventToAppend<Events>, options?: ByRun): Promise<AppendedEvent>;
  /** All of them or none, to several streams: 100 events, 20 streams. Answers in the order given. */
  appendMany(
    streams: readonly (AppendTo & { events: readonly EventToAppend<Events>[] })[],
    options?: ByRun,
  ): Promise<AppendedEvent[]>;
  /** One event after the other, fetched page by page; none of a stream that does not exist. */
  read(entityId: string, options?: ReadStreamOptions): AsyncIterableIterator<EntityEvent<Events>>;
  /** Undefined for a stream that does not exist. */
  info(entityId: string): Promise<EntityStream | undefined>;
  list(options?: {
    entityType?: string;
    search?: string;
    includeDeleted?: boolean;
    limit?: number;
    offset?: number;
    /** Instead of `offset`: `nextCursor` of the page before. */
    cursor?: string;
  }): Promise<{
    streams: EntityStream[];
    /** Absent on the last page. A page may be short, or empty, and have one. */
    nextCursor?: string;
    totalCount: number;
    /** The page ended because `scanned` streams had been looked at. */
    truncated?: boolean;
    scanned?: number;
  }>;
  /** The latest snapshot at or before a version; undefined when there is none. */
  snapshot<State = unknown>(
    entityId: string,
    options?: { beforeVersion?: number },
  ): Promise<EntitySnapshot<State> | undefined>;
  createSnapshot(snapshot: {
    entityId: string;
    entityType: string;
    version: number;
    state: unknown;
  }): Promise<{ snapshotId: string }>;
  /** Events beside the runs and steps that they started; `nextVersion` is the first one of the next page. */
  history(
    entityId: string,
    options?: {
      fromVersion?: number;
      limit?: number;
      direction?: "forward" | "backward";
      since?: Date | string;
      until?: Date | string;
    },
  ): Promise<{ entries: HistoryOfEvent[]; nextVersion?: number }>;
  /** For good. `purge` overwrites what its events carry. */
  delete(entityId: string, options?: { purge?: boolean }): Promise<void>;
  /** Overwrites what one event carries. */
  redact(entityId: string, eventId: string): Promise<void>;
  /**
   * The state that follows from the events of a stream, from the latest snapshot on. A snapshot holds what
   * JSON can hold. One that a newer reducer made outdated is skipped with `fromSnapshot: false`.
   */
  fold<State>(
    entityId: string,
    reducer: (state: State, event: EntityEvent<Events>) => State,
    options: FoldOptions<State>,
  ): Promise<Folded<State>>;
}

export interface SchemaInfo {
  eventName: string;
  version: number;
  description: string;
  createdAt: string;
}

export interface EventSchema extends SchemaInfo {
  schema: JsonSchemaText;
}

export interface UpcastResult {
  data: unknown;
  /** The changes that the schemas on the way say, in order; empty when none says any. */
  stepsApplied: { fromVersion: number; toVersion: number; description: string }[];
}

export interface SchemaEnforcement {
  mode: "off" | "warn" | "enforce";
  trafficWindowHours: number;
  totalSchemas: number;
  schemas: {
    eventName: string;
    version: number;
    schemaHash: string;
    /** Whether there is data that it refuses. */
    asserts: boolean;
    /** Why it cannot be used; empty when it can. */
    compileError: string;
    /** Recent events that it would refuse now. */
    traffic: { version: number; schemaHash: string; count: number }[];
    trafficTruncated: boolean;
  }[];
}

export interface PushedSchemas {
  /** `order.placed/2` each. */
  registered: string[];
  unchanged: string[];
  /** Events of the registry whose rule tells no JSON Schema. */
  untold: string[];
}

/** JSON Schemas of events, which the server checks data by. */
export interface SchemaCalls {
  /** From now on the name has only the registered versions. The schema of a version never changes. */
  register(
    eventName: string,
    schema: JsonSchemaText,
    options?: { version?: number; description?: string },
  ): Promise<"registered" | "unchanged">;
  list(options?: {
    eventName?: string;
    limit?: number;
    offset?: number;
  }): Promise<{ schemas: SchemaInfo[]; totalCount: number }>;
  /** The latest version, when none is named. */
  get(eventName: string, version?: number): Promise<EventSchema>;
  delete(eventName: string, version: number): Promise<void>;
  /** Brings data up to a version (the latest, when none is named) by what the schemas say; stores nothing. */
  testUpcast(
    eventName: string,
    data: unknown,
    versions: { from: number; to?: number },
  ): Promise<UpcastResult>;
  /** How schemas are enforced, and what they would say of events of the last `hours` (24 by default). */
  check(options?: { eventName?: string; hours?: number }): Promise<SchemaEnforcement>;
  /** Registers what the rules of the client's `events` tell, in the version that each names. */
  push(): Promise<PushedSchemas>;
}
