import type { Instant } from "../../../kit/clock.ts";
import { requireEventName, runFailedEvent } from "../../../kit/event-names.ts";
import { type Fault, invalid } from "../../../kit/fault.ts";
import { keyOf } from "../../../kit/key-claims.ts";
import type { Call } from "../../../kit/operation.ts";
import { jsonText } from "../../../kit/payload-json.ts";
import type { Arrival } from "./arrival.ts";

/** What a caller emits, before it is checked. */
export interface EmitInput extends EventInput {
  event: string;
  /** Asks for the functions that no connected worker serves. */
  tellUnserved?: boolean;
}

/** The same without its name, which requests call differently. */
export interface EventInput {
  /** Any JSON value; absent means `{}`. */
  data?: unknown;
  /** From 1; absent and 0 mean 1. */
  version?: number;
  metadata?: Record<string, unknown> | null;
  idempotencyKey?: string;
  /** When it is to be emitted, if later; one of them. */
  delayMs?: number;
  at?: string;
}

/** An event that is emitted later. */
export interface DelayedEvent {
  id: string;
  name: string;
  dueAt: Instant;
  createdAt: Instant;
  /** The id of the key or user that sent it in; empty where that is not known. */
  sentBy: string;
}

/** The entity of an event. */
export interface EntityDraft {
  id: string;
  type: string;
  /** The version that its stream must be at, 0 for an empty one; null for any. */
  expected: number | null;
}

/** The same, checked, with payloads as the JSON text that is stored. */
export interface EventDraft {
  name: string;
  version: number;
  value: unknown;
  data: string;
  metadata: string | null;
  metadataValue: Record<string, unknown> | null;
  idempotencyKey: string | null;
  /** The key is the server's own: see `storedKey`. */
  ownKey?: true;
  /** A delayed event whose time has come: the quota of bytes refuses it no longer. */
  isAccepted?: true;
  /** The stream that it is appended to; left out for an event of no entity. */
  entity?: EntityDraft;
  /** The webhook delivery that brings it; written with it. */
  arrival?: Arrival;
  /** Its place in the caller's batch: `events[3].`. */
  at?: string;
  /** Thrown where the event would start the function of its own name: its sender may not start that one. */
  startRefused?: Fault;
}

/** Where events come from that the server emits by itself: no door lets a caller say it. */
export const serverSource = "svc";
/** The same of slots of schedules. */
export const cronSource = "cron";

/** Throws for the name that the server alone emits: every door leads through here. */
export function requireEmittable(drafts: readonly EventDraft[], { source }: { source: string }): void {
  if (source === serverSource) return;
  for (const { name, at = "" } of drafts)
    if (name === runFailedEvent)
      throw invalid(`${at}event`, `the server alone emits ${runFailedEvent}: choose another name`);
}

/**
 * Throws the fault that names the field; `at` is its place in a batch: `events[3].`, `nameField` what the
 * request calls the event's name.
 */
export const draftOf = (input: EmitInput, headerKey: string | undefined, at = ""): EventDraft =>
  draftNamed("event", input.event, input, { headerKey, at });

/** The same with its name beside it: spreading an event to rename one field costs more than checking it. */
export function draftNamed(
  nameField: string,
  name: string,
  input: EventInput,
  { headerKey, at }: { headerKey: string | undefined; at: string },
): EventDraft {
  requireEventName(`${at}${nameField}`, name);
  const version = input.version ?? 0;
  if (version < 0) throw invalid(`${at}version`, "must not be negative");
  const value = input.data === undefined ? {} : input.data;
  const metadata = input.metadata ?? null;
  return {
    name,
    version: version === 0 ? 1 : version,
    value,
    data: jsonText(`${at}data`, value),
    metadata: metadata && jsonText(`${at}metadata`, metadata),
    metadataValue: metadata,
    idempotencyKey: keyOf(input.idempotencyKey, headerKey, at),
    ...(at !== "" && { at }),
  };
}

/**
 * An event that no trigger matches starts the function of its name, so its sender must be one who may invoke
 * that. Which functions there are is known in the flush: here the drafts take along what it would come to.
 */
export function noteStarts(
  call: Pick<Call, "screen">,
  drafts: readonly EventDraft[],
): Promise<void> | undefined {
  const opening = call.screen("functions:invoke", "function");
  if (!opening) return undefined;
  return (async () => {
    const found = await opening;
    if (!found) return;
    for (const draft of drafts) {
      const refused = await found.refusalOf([draft.name]);
      if (refused) draft.startRefused = refused;
    }
  })();
}
