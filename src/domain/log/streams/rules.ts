import { invalid } from "../../../kit/fault.ts";
import type { EntityDraft, EventInput } from "../../engine/emit/rules.ts";

/** What callers expect who take the stream at any version. */
export const anyVersion = -1;

/** With type and event name it stays within a pattern of subscribers. */
export const entityIdBytesMax = 256;
export const entityTypeBytesMax = 128;
/** Events and streams of one `AppendEvents`. */
export const appendEventsMax = 100;
export const appendStreamsMax = 20;
/** What one `ReadStream` answers; more is refused, never cut. */
export const readEventsMax = 10_000;
export const readCharsMax = 16 * 1024 * 1024;
/** Events of one page of a history, and the runs and steps shown beside them. */
export const historyLimitDefault = 50;
export const historyLimitMax = 200;
/** Snapshots of a stream that are kept, the newest ones. */
export const snapshotsKeptMax = 10;

/** Ids that begin so are the platform's own: no caller can append to them, and reads hide them. */
const ownPrefix = "svc:";
const charset = /^[A-Za-z0-9\-._:~]*$/;

const breachOf = (text: string, bytesMax: number): string | undefined => {
  if (text === "") return "must not be empty";
  if (text.length > bytesMax) return `at most ${bytesMax} bytes`;
  if (!charset.test(text)) return "may have letters, digits and - . _ : ~";
  if (text.split(".").includes("")) return "must not contain an empty segment between dots";
  return undefined;
};

function requireLegal(field: string, text: string, bytesMax: number): void {
  const rule = breachOf(text, bytesMax);
  if (rule !== undefined) throw invalid(field, rule);
}

/** Whether a stream may have this id: any other is like that of a stream that does not exist. */
export const isEntityId = (id: string): boolean =>
  breachOf(id, entityIdBytesMax) === undefined && !id.startsWith(ownPrefix);

/** Throws the fault that names the field; `at` is the place in a batch: `streams[2].`. */
export function entityOf({ entityId, entityType, expectedVersion }: AppendTarget, at = ""): EntityDraft {
  requireLegal(`${at}entityId`, entityId, entityIdBytesMax);
  if (entityId.startsWith(ownPrefix))
    throw invalid(`${at}entityId`, `must not begin with ${ownPrefix}, which is the platform's`);
  requireLegal(`${at}entityType`, entityType, entityTypeBytesMax);
  const expected = expectedVersion ?? 0;
  if (expected < anyVersion)
    throw invalid(`${at}expectedVersion`, "must be a version, 0 for an empty stream, or -1 for any");
  return { id: entityId, type: entityType, expected: expected === anyVersion ? null : expected };
}

export interface AppendTarget {
  entityId: string;
  entityType: string;
  /** Absent and 0: the stream must be empty. */
  expectedVersion?: number;
}

/** What is appended. */
export interface StreamEventInput extends EventInput {
  eventName: string;
}

export interface AppendInput extends AppendTarget, StreamEventInput {}

/** Several events for one stream. */
export interface StreamAppend extends AppendTarget {
  events: readonly StreamEventInput[];
}

/** Throws for a batch that names too much, nothing, or a stream twice. */
export function requireBatch(streams: readonly StreamAppend[]): void {
  if (streams.length === 0) throw invalid("streams", "must not be empty");
  if (streams.length > appendStreamsMax) throw invalid("streams", `at most ${appendStreamsMax} in one batch`);
  const seen = new Set<string>();
  let events = 0;
  for (const [at, { entityId, events: own }] of streams.entries()) {
    if (seen.has(entityId)) throw invalid(`streams[${at}].entityId`, "names a stream for the second time");
    seen.add(entityId);
    if (own.length === 0) throw invalid(`streams[${at}].events`, "must not be empty");
    events += own.length;
  }
  if (events > appendEventsMax) throw invalid("streams", `at most ${appendEventsMax} events in one batch`);
}

export type Direction = "forward" | "backward";

export function directionOf(text: string | undefined): Direction {
  if (!text || text === "forward") return "forward";
  if (text === "backward") return text;
  throw invalid("direction", `unknown direction "${text.slice(0, 40)}" (one of forward, backward)`);
}

/** A version or a count that a caller names; throws below 0. */
export function requireCount(field: string, value: number | undefined): number {
  if ((value ?? 0) < 0) throw invalid(field, "must not be negative");
  return value ?? 0;
}
