import type { SvcError } from "../wire/errors.ts";
import type { EventMap } from "../wire/types.ts";

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
