import { type CelBudget, type CelProgram, itemsToRead } from "../../../kit/cel/cel.ts";
import type { Instant } from "../../../kit/clock.ts";
import type { LogName } from "../../../kit/sequence.ts";
import { eventText } from "../../../kit/stored-event.ts";
import type { Feeds, Following } from "../../log/core/feed.ts";
import type { LogEntry, Past } from "../../log/core/feed-reader.ts";
import type { LoggedEvent } from "../../log/core/service.ts";
import type { TopicMessage } from "../../log/topics/past.ts";
import { tokensOf } from "./rules.ts";

export interface DeliveryFacts {
  /** With its namespace: `events:order.created`. */
  topic: string;
  /** Undefined for system frames. */
  eventId: string | undefined;
  /** JSON text. */
  data: string;
  /** JSON text of the metadata that the emitter attached. */
  custom: string | null;
  at: Instant;
  /** What a subscription can resume after: the position in the log, or the place in a run's history. */
  sequence: number | undefined;
  source: "user" | "system";
  /** The event's name; undefined for messages and frames. */
  eventName?: string | undefined;
  /** The entity to whose stream the event belongs. */
  stream?: string | undefined;
  /** What filters see as `event`, beside its id, data, metadata and time. */
  event?: EventWords;
  /** Counts from 1 how often a group has delivered it; always 1 outside groups. */
  attempt?: number;
}

/** Messages and frames have only a name, which is their topic. */
interface EventWords {
  name: string;
  version?: number;
  source?: string;
}

/** One event, message or frame on one topic, shared by all of its subscribers. */
export class Delivery implements DeliveryFacts {
  readonly topic: string;
  readonly eventId: string | undefined;
  readonly data: string;
  readonly custom: string | null;
  readonly at: Instant;
  readonly sequence: number | undefined;
  readonly source: "user" | "system";
  readonly eventName: string | undefined;
  readonly stream: string | undefined;
  readonly attempt: number;
  readonly event?: EventWords;
  /** Cache of `eventFrame`: the text that frames of one form have in common. */
  readonly texts: (string | undefined)[] = [];
  /** What filters see, while in use: a parsed payload takes five times its text, and readers may be slow. */
  #seen: WeakRef<Record<string, unknown>> | undefined;

  constructor(facts: DeliveryFacts) {
    this.topic = facts.topic;
    this.eventId = facts.eventId;
    this.data = facts.data;
    this.custom = facts.custom;
    this.at = facts.at;
    this.sequence = facts.sequence;
    this.source = facts.source;
    this.eventName = facts.eventName;
    this.stream = facts.stream;
    this.attempt = facts.attempt ?? 1;
    if (facts.event) this.event = facts.event;
  }

  /** Whether it is a position without a payload. Everything that matched up to there came before it. */
  get isPosition(): boolean {
    return this.topic === "";
  }

  /** The same delivery with another attempt. */
  again(attempt: number): Delivery {
    return attempt === this.attempt ? this : new Delivery({ ...this, attempt });
  }

  /** What filters see. The first call spends the budget for parsing the payload. */
  read(budget?: CelBudget): Record<string, unknown> {
    const before = this.#seen?.deref();
    if (before) return before;
    const data = JSON.parse(this.data);
    const metadata = this.custom === null ? {} : JSON.parse(this.custom);
    const known = { id: this.eventId ?? "", data, metadata, timestamp: new Date(this.at) };
    // On an entity's topic the payload is the whole event.
    const payload = this.topic.startsWith("entity:") ? { ...data, timestamp: known.timestamp } : known;
    const seen = {
      data,
      metadata,
      topic: this.topic,
      event: { ...payload, ...(this.event ?? { name: this.topic }) },
    };
    if (!this.#seen) budget?.spend(itemsToRead(this.data) + itemsToRead(this.custom ?? ""));
    this.#seen = new WeakRef(seen);
    return seen;
  }

  /**
   * Whether the filter holds. It does not when it fails on this data, or needs more than the budget has left.
   */
  passes(filter: CelProgram, budget?: CelBudget): boolean {
    try {
      return filter.run(this.read(budget), budget) === true;
    } catch {
      return false;
    }
  }
}

export interface TopicDelivery {
  delivery: Delivery;
  tokens: readonly string[];
}

/** An event has the topic of its name and, when it belongs to an entity, that of the entity. */
export function deliveriesOf(event: LoggedEvent): TopicDelivery[] {
  const facts = {
    eventId: event.id,
    eventName: event.name,
    stream: event.entity_id ?? undefined,
    custom: event.metadata,
    at: event.at,
    sequence: event.position,
    source: "user",
    event: { name: event.name, version: event.version, source: event.source },
  } as const;
  const named = withTokens(new Delivery({ ...facts, topic: `events:${event.name}`, data: event.data }));
  if (event.entity_type === null || event.entity_id === null) return [named];
  const topic = `entity:${event.entity_type}.${event.entity_id}.${event.name}`;
  return [named, withTokens(new Delivery({ ...facts, topic, data: wholeEvent(event) }))];
}

/** Among the data, so that nothing that was delivered before comes behind it. */
export const positionDelivery = (sequence: number, at: Instant): Delivery =>
  new Delivery({
    ...{ topic: "", eventId: undefined, data: "null", custom: null },
    ...{ at, sequence, source: "user" },
  });

/** A message of a developer topic. */
const messageDelivery = ({ id, position, topic, data, metadata, at }: TopicMessage): TopicDelivery =>
  withTokens(
    new Delivery({
      topic: `topic:${topic}`,
      eventId: id,
      data,
      custom: metadata,
      at,
      sequence: position,
      source: "user",
      event: { name: topic },
    }),
  );

const withTokens = (delivery: Delivery): TopicDelivery => ({ delivery, tokens: tokensOf(delivery.topic) });

/** The whole event, as subscribers of entities get it. */
const wholeEvent = (event: LoggedEvent): string =>
  eventText(
    event,
    { entityId: event.entity_id, entityType: event.entity_type, entityVersion: event.entity_version },
    "null",
  );

/** The entry at one position of a log, under each of its topics. */
export interface SourceEntry {
  position: number;
  placed: readonly TopicDelivery[];
}

/** A log that serves subscriptions: its past, and a feed of what is committed. */
export interface Source extends Past<SourceEntry> {
  follow(
    environmentId: string,
    reader: { onEntries: (list: readonly SourceEntry[]) => void; onEnd: () => void },
  ): Promise<Following>;
}

export type Sources = Readonly<Record<LogName, Source>>;

function sourceOf<Event extends LogEntry>(
  feeds: Pick<Feeds<Event>, "follow">,
  past: Past<Event>,
  placedOf: (event: Event) => readonly TopicDelivery[],
): Source {
  const entryOf = (event: Event): SourceEntry => ({ position: event.position, placed: placedOf(event) });
  return {
    follow: (environmentId, { onEntries, onEnd }) =>
      feeds.follow(environmentId, { onEvents: (events) => onEntries(events.map(entryOf)), onEnd }),
    head: past.head,
    between: async (...asked) => (await past.between(...asked)).map(entryOf),
    newest: async (...asked) => (await past.newest(...asked)).map(entryOf),
    at: async (...asked) => (await past.at(...asked)).map(entryOf),
  };
}

export interface SourcesDeps {
  feeds: Pick<Feeds, "follow">;
  past: Past;
  topicFeeds: Pick<Feeds<TopicMessage>, "follow">;
  topicsPast: Past<TopicMessage>;
}

export const sourcesOf = ({ feeds, past, topicFeeds, topicsPast }: SourcesDeps): Sources => ({
  events: sourceOf<LoggedEvent>(feeds, past, deliveriesOf),
  topics: sourceOf<TopicMessage>(topicFeeds, topicsPast, (message) => [messageDelivery(message)]),
});
