import { type Instant, rfc3339 } from "./clock.ts";

/** An event as its log has it, in the names of its columns. `data` and `metadata` are JSON text. */
export interface StoredEvent {
  id: string;
  name: string;
  version: number;
  data: string;
  metadata: string | null;
  source: string;
  at: Instant;
  idempotency_key: string | null;
}

/** What an expression of a trigger or a wait sees of an event, with its payloads parsed. */
export interface SeenEvent {
  id: string;
  name: string;
  data: unknown;
  metadata: unknown;
  version: number;
  source: string;
  timestamp: Instant;
}

/** What every reader of an event gets beside its payloads, and `more` that only this reader gets. */
export const eventFields = ({ id, name, at, version, source }: StoredEvent, more?: object) => ({
  id,
  name,
  timestamp: rfc3339(at),
  version,
  source,
  ...more,
});

export const keyField = ({ idempotency_key }: StoredEvent) =>
  idempotency_key === null ? undefined : { idempotency_key };

/**
 * The same as JSON text, with its payloads. They go as the text they are stored as: parsing and writing them
 * again would double the cost of a job. `noMetadata` says what this reader sees of an event without metadata.
 */
export function eventText(
  event: StoredEvent,
  more: object | undefined,
  noMetadata: "null" | "absent",
): string {
  const head = JSON.stringify(eventFields(event, more)).slice(0, -1);
  if (event.metadata === null && noMetadata === "absent") return `${head},"data":${event.data}}`;
  return `${head},"data":${event.data},"metadata":${event.metadata ?? "null"}}`;
}

/** The events of a batch as a further member of JSON text; nothing for an event that stands alone. */
export const eventsText = (
  events: readonly StoredEvent[] | undefined,
  noMetadata: "null" | "absent",
): string =>
  events ? `,"events":[${events.map((one) => eventText(one, keyField(one), noMetadata)).join(",")}]` : "";
