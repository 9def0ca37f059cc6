import type { SubscribeOptions, Subscription } from "../subscriptions/subscription-types.ts";
import type { TimeoutOption } from "../wire/duration-options.ts";
import type { SvcProjection } from "./projection-types.ts";

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
