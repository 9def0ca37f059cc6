import type { Static } from "@sinclair/typebox";
import type { ValueError } from "@sinclair/typebox/errors";
import { rfc3339 } from "../../../kit/clock.ts";
import { compiled, fieldOf } from "../../../kit/explain.ts";
import type { Fault } from "../../../kit/fault.ts";
import type { ChannelSpec, Start } from "./channel.ts";
import type { Delivery } from "./delivery.ts";
import { refusal, type SocketCode } from "./rules.ts";
import { clientFrames, type serverFrames } from "./socket-binding.ts";

export type ClientFrameType = keyof typeof clientFrames;

/** A checked frame of a WebSocket client. */
export type ClientFrame<Type extends ClientFrameType = ClientFrameType> = {
  [One in Type]: ReturnType<(typeof clientFrames)[One]["decode"]>;
}[Type];

type JsonFields = Record<string, unknown>;

const isFields = (value: unknown): value is JsonFields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const malformed = (what: string) => refusal("INVALID_PATTERN", what);

type Reviver = (key: string, value: unknown, context?: { source?: string }) => unknown;

/**
 * Leaves out what is null, which is as good as nothing. Keeps the digits of positions, which may be larger
 * than the integers that a double can hold.
 */
const withDigits: Reviver = (key, value, context) => {
  if (value === null) return undefined;
  const isPosition = typeof value === "number" && (key === "startAfterSequence" || key === "epoch");
  return isPosition && context?.source !== undefined && /^\d+$/.test(context.source) ? context.source : value;
};

function parsed(text: string): JsonFields {
  let value: unknown;
  try {
    value = JSON.parse(text, withDigits as (key: string, value: unknown) => unknown);
  } catch {
    throw malformed("the frame is not JSON");
  }
  if (!isFields(value)) throw malformed("the frame is not an object");
  return value;
}

const kinds: Record<string, string> = {
  object: "an object",
  string: "text",
  boolean: "true or false",
  integer: "an integer",
};

/** Names the field at fault; an option by its name alone. */
function mistake(type: string, { path, schema }: ValueError): Fault {
  const field = fieldOf(path).replace(/^subscription\.(?=options\b)/, "");
  const kind = kinds[schema.type] ?? "as the frame's schema says";
  const wanted = schema.format === "uint64" ? "an unsigned 64-bit integer" : kind;
  const option = /^options\.(.*)/.exec(field)?.[1];
  return malformed(option ? `${option}: must be ${wanted}` : `${type}: ${field} must be ${wanted}`);
}

/** Checks the fields of a frame by its schema and decodes them. */
function readerOf<Type extends ClientFrameType>(type: Type) {
  const { schema, decode } = clientFrames[type];
  const check = compiled(() => schema);
  return (fields: JsonFields) => {
    if (!check().Check(fields)) throw mistake(type, check().Errors(fields).First()!);
    return (decode as (fields: JsonFields) => ClientFrame)(fields);
  };
}

const clientTypes = Object.keys(clientFrames) as ClientFrameType[];
const readers = new Map<unknown, (fields: JsonFields) => ClientFrame>(
  clientTypes.map((type) => [type, readerOf(type)]),
);
const anyType = `${clientTypes.slice(0, -1).join(", ")} or ${clientTypes.at(-1)}`;

/** Throws INVALID_PATTERN for a malformed frame. Unknown fields are passed over. */
export function readClientFrame(text: string): ClientFrame {
  const fields = parsed(text);
  const read = readers.get(fields.type);
  if (!read) throw malformed(`type: must be ${anyType}`);
  return read(fields);
}

/**
 * The pattern of a subscribe frame, for the answer to a frame that was refused; undefined when it cannot be
 * read.
 */
export function patternOf(text: string): string | undefined {
  const { type, subscription } = fieldsOf(text);
  const pattern = isFields(subscription) ? subscription.pattern : undefined;
  return type === "subscribe" && isText(pattern) ? pattern : undefined;
}

const isText = (value: unknown): value is string => typeof value === "string";

/** The fields of a JSON object; empty for any other text. */
function fieldsOf(text: string | undefined): JsonFields {
  try {
    const value: unknown = JSON.parse(text ?? "");
    return isFields(value) ? value : {};
  } catch {
    return {};
  }
}

/**
 * The text that frames of all subscriptions with these options share. Payloads are JSON texts and go as they
 * are.
 */
function commonOf({ topicOnly, includeMetadata }: ChannelSpec, delivery: Delivery): string {
  const { eventId, topic, sequence } = delivery;
  const event = eventId === undefined ? "" : `,"eventId":"${eventId}"`;
  const head = `"${event},"topic":${JSON.stringify(topic)},"data":${topicOnly ? "null" : delivery.data}`;
  if (!includeMetadata) return `${head}}`;
  const place = sequence === undefined ? "" : `,"sequence":${sequence},"sequenceExact":"${sequence}"`;
  const custom = delivery.custom === null ? "" : `,"custom":${delivery.custom}`;
  return `${head},"meta":{"timestamp":"${rfc3339(delivery.at)}"${place}${custom}}}`;
}

export function eventFrame(spec: ChannelSpec, delivery: Delivery): string {
  if (delivery.isPosition)
    return frameText("position", { subscriptionId: spec.id, sequence: `${delivery.sequence}` });
  const form = (spec.topicOnly ? 1 : 0) + (spec.includeMetadata ? 2 : 0);
  delivery.texts[form] ??= commonOf(spec, delivery);
  return `{"type":"event","subscriptionId":"${spec.id}${delivery.texts[form]}`;
}

type ServerFrames = typeof serverFrames;

const frameText = <Type extends keyof ServerFrames>(
  type: Type,
  fields: Static<ServerFrames[Type]["schema"]>,
): string => JSON.stringify({ type, ...fields });

/** Positions of the start are digits, because they may be larger than the integers that a double can hold. */
export const okFrame = (
  pattern: string,
  {
    subscriptionId,
    start,
    consumerId,
  }: { subscriptionId: string; start: Start | undefined; consumerId: string | undefined },
): string => {
  const startFields = start && { startSequence: `${start.sequence}`, epoch: `${start.epoch}` };
  return frameText("subscription_result", {
    results: [{ pattern, status: "ok", subscriptionId, ...startFields, ...(consumerId && { consumerId }) }],
  });
};

/** `reason` tells a client that resumes by itself why its position was refused. */
export const refusedFrame = (
  pattern: string,
  { code, message, reason }: { code: SocketCode; message: string; reason: string | undefined },
): string =>
  frameText("subscription_result", {
    results: [{ pattern, status: "error", code, message, ...(reason !== undefined && { reason }) }],
  });

/** For clients that know no subprotocol. */
export const subscribedFrame = (pattern: string, subscriptionId: string): string =>
  frameText("subscribed", { subscriptionId, pattern });

export const troubleFrame = (
  subscriptionId: string,
  trouble: { code: SocketCode; message: string; retrying: boolean },
): string => frameText("subscription_error", { subscriptionId, ...trouble });

/**
 * Answers a frame whose pattern cannot be read: one about subscriptions as a `subscription_error`, any other
 * as an `error`.
 */
export function malformedFrame(text: string | undefined, code: SocketCode, message: string): string {
  const { type, subscriptionId } = fieldsOf(text);
  if (type !== "subscribe" && type !== "unsubscribe") return frameText("error", { code, message });
  return troubleFrame(isText(subscriptionId) ? subscriptionId : "", { code, message, retrying: false });
}
