import type { Duration } from "../wire/duration.ts";
import type { SvcError } from "../wire/errors.ts";
import type { EventMap, Logger } from "../wire/types.ts";

/** Something that happened on a topic. */
export interface Delivery<Topic extends string = string, Data = unknown> {
  /** In full: `events:order.placed`, `system.run.run_1.completed`. */
  topic: Topic;
  /** Null with `topicOnly`. */
  data: Data;
  /** Absent for `system.*`. */
  eventId?: string;
  /** Place in the log, or in a run's history; absent where there is none. */
  sequence?: number;
  /** RFC 3339. */
  timestamp?: string;
  /** The metadata with which it was emitted. */
  metadata?: Record<string, unknown>;
}

type TopicMatches<Pattern extends string, Name extends string> = Pattern extends ">"
  ? true
  : Pattern extends `${infer Wanted}.${infer WantedRest}`
    ? Name extends `${infer First}.${infer Rest}`
      ? Wanted extends "*" | First
        ? TopicMatches<WantedRest, Rest>
        : false
      : false
    : Pattern extends "*"
      ? Name extends `${string}.${string}`
        ? false
        : true
      : Pattern extends Name
        ? true
        : false;

type BareOf<Pattern extends string> = Pattern extends `events:${infer Name}`
  ? Name
  : Pattern extends `${string}:${string}` | `system.${string}`
    ? never
    : Pattern;

/** Event names of `Events` that a pattern stands for. */
export type NamesOf<Events, Pattern extends string> = {
  [Name in keyof Events & string]: TopicMatches<BareOf<Pattern>, Name> extends true ? Name : never;
}[keyof Events & string];

type Named<Events, Name extends keyof Events & string> = {
  [One in Name]: Delivery<`events:${One}`, Events[One]>;
}[Name];

/** What a pattern brings, by the client's event types: `order.*` brings each name with its own data. */
export type DeliveryOf<Events, Pattern extends string> = string extends keyof Events | Pattern
  ? Delivery
  : [BareOf<Pattern>] extends [never]
    ? Delivery
    : [NamesOf<Events, Pattern>] extends [never]
      ? Delivery
      : Named<Events, NamesOf<Events, Pattern>>;

/** A place to continue from, as in another process: `client.subscribe(pattern, { after: place })`. */
export interface Place {
  /** Decimal digits. */
  sequence: string;
  /** The epoch of the log where it was seen. A restore from a backup changes it and refuses older places. */
  epoch?: string;
}

export type SubscriptionState = "connecting" | "live" | "waiting" | "over";

/** A change in the life of an open subscription. */
export type SubscriptionNotice =
  | { type: "live" }
  /** The connection is gone or the server cannot continue; it is tried again after `delayMs`. */
  | { type: "waiting"; delayMs: number; error: SvcError | undefined }
  /** Deliveries are missing: see `onGap`. */
  | { type: "gap"; error: SvcError }
  /** The reader was too slow, and what was dropped is in no log from which it could be read later. */
  | { type: "dropped"; count: number };

export interface SubscribeOptions {
  /** So many past deliveries first, at most 1,000. Not with `after`. */
  replay?: number;
  /** A CEL expression on `data`, `metadata` and `topic`. */
  filter?: string;
  /** Only that something happened: `data` is null. */
  topicOnly?: boolean;
  /** Whether `timestamp` and `metadata` come along. Default true. */
  includeMetadata?: boolean;
  /** Begins after this: the `place` of an earlier subscription, or a sequence; 0 = the oldest kept. */
  after?: Place | number | bigint | string | undefined;
  /** Ends the subscription. */
  signal?: AbortSignal | undefined;
  /**
   * Default `auto`: a WebSocket where there are any (browsers, Bun, Node 22), one for many subscriptions;
   * else Connect over fetch, a request each.
   */
  over?: "auto" | "websocket" | "connect";
  /** Deliveries that may wait for a slow reader before the server has to pause. Default 1,000. */
  bufferMax?: number;
  /**
   * When the place to continue from has expired, or the log was restored from a backup: `fail` (default) ends
   * the subscription with an error, `earliest` begins with the oldest kept, `latest` with what comes next.
   */
  onGap?: "fail" | "earliest" | "latest";
  onNotice?: (notice: SubscriptionNotice) => void;
}

/** Calls back for each delivery in order, one after the other; what it throws ends the subscription. */
export type OnDelivery<One> = (delivery: One) => void | Promise<void>;

/**
 * An open subscription. It reconnects by itself and continues where it was: nothing on `events:`, `entity:`
 * and `topic:` is left out or comes twice. `system.*` frames are hints; those that fall into a reconnect are
 * lost, except those of a single run.
 */
export interface Subscription<One = Delivery> extends AsyncIterable<One> {
  readonly state: SubscriptionState;
  /** Behind the last delivery that the reader took; undefined before there is one. */
  readonly place: Place | undefined;
  /** Resolves when the server has confirmed it for the first time: what happens afterwards is delivered. */
  readonly ready: Promise<void>;
  /**
   * Resolves when it was closed; rejects with what ended it. If the subscription calls a function and nobody
   * asks for `done`, the SDK logs the error, and the process goes on.
   */
  readonly done: Promise<void>;
  /** The reader still gets what has arrived. */
  close(): void;
}

export interface SubscribeCalls<Events extends EventMap = EventMap> {
  /**
   * Follows what happens on the topics of a pattern: `order.placed`, `order.*`, `entity:order.>`,
   * `topic:news`, `system.run.>`. Begins at once; read it with `for await`, or give a function to be called.
   */
  subscribe<const Pattern extends string>(
    pattern: Pattern,
    options?: SubscribeOptions,
    onDelivery?: OnDelivery<DeliveryOf<Events, Pattern>>,
  ): Subscription<DeliveryOf<Events, Pattern>>;
}

/** What is shared by the members of a consumer group, and how. */
export interface GroupSettings {
  pattern: string;
  /** A CEL expression on `data`, `metadata` and `topic`. */
  filter?: string;
  /**
   * `manual`: a delivery is given again until a member has handled it. `auto` (default): a delivery counts as
   * handled once it was sent to a member.
   */
  ackMode?: "auto" | "manual";
  /** Deliveries that may be with members at once. Default 100. */
  maxInflight?: number;
  /** How often a delivery is given at most. Default 3. */
  maxRedeliveries?: number;
  /** How long a member has for a delivery before another member gets it. Default 5 s. */
  redeliverDelay?: Duration;
  /** @deprecated Write `redeliverDelay`. */
  redeliverDelayMs?: number;
  metadata?: Record<string, unknown>;
}

export interface ConsumerGroup
  extends Required<Pick<GroupSettings, "pattern" | "ackMode" | "maxInflight" | "maxRedeliveries">> {
  id: string;
  namespace: string;
  name: string;
  filter?: string;
  redeliverDelayMs: number;
  metadata?: Record<string, unknown>;
  status: "active" | "paused";
  memberCount: number;
  /** RFC 3339. */
  createdAt: string;
  updatedAt: string;
}

export interface InNamespace {
  /** Default `default`. */
  namespace?: string;
}

/** A delivery to one member of a group. */
export interface GroupDelivery<Data = unknown> extends Delivery<string, Data> {
  /** How often it was given, from 1, to this member or to another. */
  attempt: number;
}

export type MembershipNotice =
  | { type: "live" }
  | { type: "waiting"; delayMs: number; error: SvcError | undefined }
  /** The handler threw: the delivery is given again, or no more when it threw a NonRetryableError. */
  | { type: "failed"; delivery: GroupDelivery; error: unknown }
  /** The handler took too long: the delivery went to another member meanwhile, or could not be settled. */
  | { type: "lost"; delivery: GroupDelivery; error: SvcError };

export interface JoinOptions extends InNamespace {
  /** Identifies the member to the server, over reconnects too. Default: a random one. */
  consumerId?: string;
  /** Handlers at once. Default 1. */
  concurrency?: number;
  signal?: AbortSignal | undefined;
  onNotice?: (notice: MembershipNotice) => void;
  /** Gets that the membership ended by an error, or that `onNotice` threw. Default: the console. */
  log?: Logger;
}

/** A place among the members of a group. */
export interface Membership {
  readonly consumerId: string;
  readonly state: SubscriptionState;
  /** Resolves when it takes part for the first time. */
  readonly ready: Promise<void>;
  /**
   * Resolves when the member has left and its handlers are done; rejects with what ended it. Its rejection is
   * logged and does not end the process, also where the program does not await it.
   */
  readonly done: Promise<void>;
  /** Takes no more deliveries, waits for its handlers, settles, then leaves. Resolves as `done` does. */
  leave(): Promise<void>;
}

/** Consumer groups: many members on any nodes share what comes; each delivery goes to one at a time. */
export interface GroupCalls {
  /**
   * The group begins with what happens from now on. SvcError `already_exists` for a name that is taken; with
   * `ifNotExists` the group of that name, with the settings that it has.
   */
  create(
    name: string,
    settings: GroupSettings & InNamespace & { ifNotExists?: boolean },
  ): Promise<ConsumerGroup>;
  get(name: string, options?: InNamespace): Promise<ConsumerGroup>;
  list(
    options?: InNamespace & { status?: "active" | "paused"; limit?: number; cursor?: string },
  ): Promise<{ groups: ConsumerGroup[]; nextCursor?: string; totalCount: number }>;
  update(
    name: string,
    change: Partial<GroupSettings> & { status?: "active" | "paused" } & InNamespace,
  ): Promise<ConsumerGroup>;
  delete(name: string, options?: InNamespace): Promise<void>;
  /**
   * Takes part in a group, and reconnects by itself. With `ackMode` manual a delivery comes at least once: it
   * is settled when the handler returns or throws NonRetryableError; after any other error this member or
   * another gets it again. With `auto` what the handler throws ends the membership.
   */
  join<Data = unknown>(
    name: string,
    options: JoinOptions,
    handler: (delivery: GroupDelivery<Data>) => unknown,
  ): Membership;
}
