import { requireEventName } from "../../../kit/event-names.ts";
import { keyOf } from "../../../kit/key-claims.ts";
import { jsonText } from "../../../kit/payload-json.ts";

/** What a caller publishes, before it is checked. */
export interface PublishInput {
  /** With or without `topic:` in front. */
  topic: string;
  /** Any JSON value; absent means `{}`. */
  data?: unknown;
  metadata?: Record<string, unknown> | null;
  idempotencyKey?: string;
}

/** The same, checked, with payloads as the JSON text that is stored. */
export interface PublishDraft {
  topic: string;
  data: string;
  metadata: string | null;
  idempotencyKey: string | null;
  /** Its place in the caller's batch: `messages[3].`. */
  at?: string;
}

/** How subscribers name a topic, and what a key was used for that published on it. */
export const topicPrefix = "topic:";

/** The name of a topic without its namespace. */
export const topicName = (text: string): string =>
  text.startsWith(topicPrefix) ? text.slice(topicPrefix.length) : text;

/** Throws the fault that names the field; `at` is its place in a batch: `messages[3].`. */
export function draftOf(input: PublishInput, headerKey: string | undefined, at = ""): PublishDraft {
  const topic = topicName(input.topic);
  requireEventName(`${at}topic`, topic);
  const { data = {}, metadata } = input;
  return {
    topic,
    data: jsonText(`${at}data`, data),
    metadata: metadata ? jsonText(`${at}metadata`, metadata) : null,
    idempotencyKey: keyOf(input.idempotencyKey, headerKey, at),
    ...(at !== "" && { at }),
  };
}
