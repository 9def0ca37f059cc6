import type { Instant } from "../../../kit/clock.ts";
import { eventText } from "../../../kit/stored-event.ts";
import type { LoggedEvent } from "../../log/core/service.ts";

/**
 * `control`: a message to the worker that holds a run. `mirror`: an event for external subscribers of the
 * bus.
 */
export const entryKinds = ["control", "mirror"] as const;
export type EntryKind = (typeof entryKinds)[number];

/**
 * What waits for no bus, and is a dead letter from the beginning. `delayed`: a delayed event that was refused
 * at its time. `group`: a delivery that a consumer group gave up.
 */
export type GivenUpKind = "delayed" | "group";
export type LetterKind = EntryKind | GivenUpKind;

/** An entry before it is inserted with its fact. */
export interface EntryDraft {
  environmentId: string;
  /** The id of the event, or the stable id of a control message. */
  eventId: string;
  entityId?: string;
  topic: string;
  kind: LetterKind;
  /** JSON text of the message. */
  payload: string;
  /** What else the sender of the kind needs. */
  metadata: Readonly<Record<string, unknown>>;
}

/** A change of dead letters, announced to subscribers. */
export type OutboxFrame =
  | {
      change: "dead_lettered";
      environmentId: string;
      eventId: string;
      outboxId: string;
      entityId: string;
      topic: string;
      kind: string;
      attempts: number;
      lastError: string;
      at: Instant;
    }
  | { change: "requeued" | "discarded"; environmentId: string; eventId: string; at: Instant };

/** What is announced of an entry that became a dead letter. */
export const deadFrame = (
  row: {
    id: string;
    environment_id: string;
    event_id: string;
    entity_id: string | null;
    topic: string;
    kind: string;
    attempts: number;
    last_error: string | null;
  },
  at: Instant,
): OutboxFrame => ({
  ...{ change: "dead_lettered", environmentId: row.environment_id, eventId: row.event_id, outboxId: row.id },
  ...{ entityId: row.entity_id ?? "", topic: row.topic, kind: row.kind, attempts: row.attempts },
  ...{ lastError: row.last_error ?? "", at },
});

/** Where a mirrored event goes. */
export interface MirrorAddress {
  subject: string;
  messageId: string;
  headers: Record<string, string>;
}

const token = (text: string): string => text.replaceAll(/[\s\p{Cc}*>]/gu, "_");

/**
 * The messages of an event for external subscribers, one by its name and one by its entity: subjects
 * `{environment}.events.{name}` and `{environment}.entity.{type}.{id}.{name}`.
 */
export function mirrorDrafts(environmentId: string, event: LoggedEvent): EntryDraft[] {
  const more = {
    environmentId,
    sequence: event.position,
    ...(event.entity_id !== null && {
      entityId: event.entity_id,
      entityType: event.entity_type,
      entityVersion: event.entity_version,
    }),
    ...(event.run_id !== null && { runId: event.run_id }),
  };
  const payload = eventText(event, more, "null");
  const draft = (topic: string): EntryDraft => {
    const place: MirrorAddress = {
      subject: `${token(environmentId)}.${token(topic.replace(":", "."))}`,
      messageId: `${event.id}/${topic}`,
      headers: { "Svc-Topic": topic, "Svc-Sequence": String(event.position) },
    };
    return {
      environmentId,
      eventId: event.id,
      ...(event.entity_id !== null && { entityId: event.entity_id }),
      topic,
      kind: "mirror",
      payload,
      metadata: { ...place },
    };
  };
  const named = draft(`events:${event.name}`);
  if (event.entity_id === null || event.entity_type === null) return [named];
  return [named, draft(`entity:${event.entity_type}.${event.entity_id}.${event.name}`)];
}
