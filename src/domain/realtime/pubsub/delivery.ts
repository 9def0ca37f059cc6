import { type CelBudget, type CelProgram, itemsToRead } from "../../../kit/cel/cel.ts";
import type { Instant } from "../../../kit/clock.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import type { LoggedEvent } from "../../log/log/service.ts";
import type { TopicMessage } from "../../log/topics/past.ts";
import { tokensOf } from "./rules.ts";

export interface DeliveryFacts {
  /** In its public form. */
  topic: string;
  /** Undefined for system frames. */
  eventId: string | undefined;
  /** JSON text. */
  data: string;
  /** JSON text of what was attached when it was emitted. */
  custom: string | null;
  at: Instant;
  /** What a subscription can go on from: the position in the log, or the place in a run's history. */
  sequence: number | undefined;
  source: "user" | "system";
  /** Name of the event that it is; undefined for what is none. */
  eventName?: string | undefined;
  /** What filters see as `event` besides its id, data, metadata and time. */
  event?: EventWords;
  /** Which time it is given to a member of its group; others are given it once. */
  attempt?: number;
}

/** Of an event of the log; a message and a frame have a name, their topic. */
interface EventWords {
  name: string;
  version?: number;
  source?: string;
}

/** What happened on one topic, as every subscriber of it gets it. */
export class Delivery implements DeliveryFacts {
  readonly topic: string;
  readonly eventId: string | undefined;
  readonly data: string;
  readonly custom: string | null;
  readonly at: Instant;
  readonly sequence: number | undefined;
  readonly source: "user" | "system";
  readonly eventName: string | undefined;
  readonly attempt: number;
  readonly event?: EventWords;
  /** Kept by whoever writes frames: by their form, what all of that form have in common. */
  readonly texts: (string | undefined)[] = [];
  #seen: Record<string, unknown> | undefined;

  constructor(facts: DeliveryFacts) {
    this.topic = facts.topic;
    this.eventId = facts.eventId;
    this.data = facts.data;
    this.custom = facts.custom;
    this.at = facts.at;
    this.sequence = facts.sequence;
    this.source = facts.source;
    this.eventName = facts.eventName;
    this.attempt = facts.attempt ?? 1;
    if (facts.event) this.event = facts.event;
  }

  /** The same, as it is given for the so-manieth time. */
  again(attempt: number): Delivery {
    return attempt === this.attempt ? this : new Delivery({ ...this, attempt });
  }

  /** What filters see of it; the first who asks pays for the reading. */
  read(budget?: CelBudget): Record<string, unknown> {
    if (this.#seen) return this.#seen;
    const data = JSON.parse(this.data);
    const metadata = this.custom === null ? {} : JSON.parse(this.custom);
    const known = { id: this.eventId ?? "", data, metadata, timestamp: new Date(this.at) };
    // The payload of an entity's topic is the whole event.
    const payload = this.topic.startsWith("entity:") ? { ...data, timestamp: known.timestamp } : known;
    this.#seen = {
      data,
      metadata,
      topic: this.topic,
      event: { ...payload, ...(this.event ?? { name: this.topic }) },
    };
    budget?.spend(itemsToRead(this.data) + itemsToRead(this.custom ?? ""));
    return this.#seen;
  }

  /** Whether the filter holds; one that does not apply to this data, or is more than the budget has left, does not hold. */
  passes(filter: CelProgram, budget?: CelBudget): boolean {
    try {
      return filter.run(this.#seen ?? this.read(budget), budget) === true;
    } catch {
      return false;
    }
  }
}

export interface TopicDelivery {
  delivery: Delivery;
  tokens: readonly string[];
}

/** The topics of an event: its name, and the stream it was appended to. */
export function deliveriesOf(event: LoggedEvent): TopicDelivery[] {
  const facts = {
    eventId: event.id,
    eventName: event.name,
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

/** A message of a developer topic. */
export const messageDelivery = ({ id, position, topic, data, metadata, at }: TopicMessage): TopicDelivery =>
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

/**
 * The full event, as entity subscribers get it (proto/README.md 'Topics and payloads'). Payloads are JSON
 * texts already.
 */
function wholeEvent(event: LoggedEvent): string {
  const head = JSON.stringify({
    id: event.id,
    name: event.name,
    entityId: event.entity_id,
    entityType: event.entity_type,
    entityVersion: event.entity_version,
    version: event.version,
    timestamp: rfc3339(event.at),
    source: event.source,
  });
  return `${head.slice(0, -1)},"data":${event.data},"metadata":${event.metadata ?? "null"}}`;
}
