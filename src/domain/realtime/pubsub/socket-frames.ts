import { rfc3339 } from "../../../kit/clock.ts";
import type { Delivery } from "./delivery.ts";
import type { ChannelSpec, Start } from "./hub.ts";
import type { SubscribeInput } from "./options.ts";
import { type RefusalCode, refusal } from "./rules.ts";

/** A frame of a WebSocket client (proto/README.md 'Socket frames'), checked. */
export type ClientFrame =
  | { type: "subscribe"; input: SubscribeInput }
  | { type: "unsubscribe"; subscriptionId: string }
  | { type: "ack"; eventId: string; ackType: string; redeliverDelay: number | undefined };

type JsonFields = Record<string, unknown>;

const isFields = (value: unknown): value is JsonFields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const malformed = (what: string) => refusal("INVALID_PATTERN", what);

/** An integer that a double cannot hold, with all its digits. */
class Whole {
  readonly digits: string;
  constructor(digits: string) {
    this.digits = digits;
  }
}

type Reviver = (key: string, value: unknown, context?: { source?: string }) => unknown;

/** Positions may be larger than what a JSON number of JavaScript keeps apart. */
const withWhole: Reviver = (key, value, context) =>
  typeof value === "number" &&
  (key === "startAfterSequence" || key === "epoch") &&
  context?.source !== undefined &&
  /^\d+$/.test(context.source)
    ? new Whole(context.source)
    : value;

function parsed(text: string): JsonFields {
  let value: unknown;
  try {
    value = JSON.parse(text, withWhole as (key: string, value: unknown) => unknown);
  } catch {
    throw malformed("the frame is not JSON");
  }
  if (!isFields(value)) throw malformed("the frame is not an object");
  return value;
}

/** Undefined and null are as good as left out. */
function option<T>(options: JsonFields, name: string, is: (value: unknown) => value is T, wanted: string) {
  const value = options[name];
  if (value === undefined || value === null) return undefined;
  if (!is(value)) throw malformed(`${name}: must be ${wanted}`);
  return value;
}

const isText = (value: unknown): value is string => typeof value === "string";
const isFlag = (value: unknown): value is boolean => typeof value === "boolean";
const isInteger = (value: unknown): value is number => Number.isInteger(value);

const sequenceMax = 2n ** 64n - 1n;

function wholeOf(options: JsonFields, name: string): bigint | undefined {
  const value = options[name];
  if (value === undefined || value === null) return undefined;
  const digits = value instanceof Whole ? value.digits : value;
  const read = typeof digits === "string" && /^\d{1,20}$/.test(digits) ? BigInt(digits) : undefined;
  if (read === undefined || read > sequenceMax)
    throw malformed(`${name}: must be an unsigned 64-bit integer`);
  return read;
}

function subscribeOf(frame: JsonFields): SubscribeInput {
  const { subscription } = frame;
  if (!isFields(subscription)) throw malformed("subscribe: subscription must be an object");
  const { pattern, options = {} } = subscription;
  if (!isText(pattern)) throw malformed("subscribe: subscription.pattern must be text");
  if (options !== null && !isFields(options)) throw malformed("subscribe: options must be an object");
  const given = options ?? {};
  return {
    pattern,
    replay: option(given, "replay", isInteger, "an integer"),
    includeMetadata: option(given, "includeMetadata", isFlag, "true or false"),
    topicOnly: option(given, "topicOnly", isFlag, "true or false"),
    filter: option(given, "filter", isText, "text"),
    consumerGroup: option(given, "consumerGroup", isText, "text"),
    startAfterSequence: wholeOf(given, "startAfterSequence"),
    withStart: option(given, "withStart", isFlag, "true or false"),
    epoch: wholeOf(given, "epoch"),
  };
}

/** What was asked to be subscribed to, when that can be read at all: errors name it. */
export function patternOf(text: string): string | undefined {
  const { type, subscription } = fieldsOf(text);
  const pattern = isFields(subscription) ? subscription.pattern : undefined;
  return type === "subscribe" && isText(pattern) ? pattern : undefined;
}

/** Empty for what is no object, or no JSON. */
function fieldsOf(text: string | undefined): JsonFields {
  try {
    const value: unknown = JSON.parse(text ?? "");
    return isFields(value) ? value : {};
  } catch {
    return {};
  }
}

/** Throws INVALID_PATTERN for what is malformed. Options that are not known are passed over. */
export function readClientFrame(text: string): ClientFrame {
  const frame = parsed(text);
  switch (frame.type) {
    case "subscribe":
      return { type: "subscribe", input: subscribeOf(frame) };
    case "unsubscribe":
      if (!isText(frame.subscriptionId)) throw malformed("unsubscribe: subscriptionId must be text");
      return { type: "unsubscribe", subscriptionId: frame.subscriptionId };
    case "ack":
      return {
        type: "ack",
        eventId: String(frame.eventId).slice(0, 100),
        ackType: String(frame.ackType).slice(0, 10),
        redeliverDelay: isInteger(frame.redeliverDelay) ? frame.redeliverDelay : undefined,
      };
    default:
      throw malformed("type: must be subscribe, unsubscribe or ack");
  }
}

/** What the frames of all subscriptions with the same options have in common. Payloads are JSON texts already and go as they are. */
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
  const form = (spec.topicOnly ? 1 : 0) + (spec.includeMetadata ? 2 : 0);
  delivery.texts[form] ??= commonOf(spec, delivery);
  return `{"type":"event","subscriptionId":"${spec.id}${delivery.texts[form]}`;
}

/** The start only for who asked for it: digits, as positions may be larger than what a JSON number keeps apart. */
export const okFrame = (pattern: string, subscriptionId: string, start: Start | undefined): string => {
  const startFields = start && { startSequence: `${start.sequence}`, epoch: `${start.epoch}` };
  const result = { pattern, status: "ok", subscriptionId, ...startFields };
  return JSON.stringify({ type: "subscription_result", results: [result] });
};

/** `reason`: what a refused place means for a client that goes on by itself. */
export const refusedFrame = (
  pattern: string,
  { code, message, reason }: { code: string; message: string; reason: string | undefined },
): string =>
  JSON.stringify({
    type: "subscription_result",
    results: [{ pattern, status: "error", code, message, ...(reason !== undefined && { reason }) }],
  });

/** For clients of before subprotocols. */
export const subscribedFrame = (pattern: string, subscriptionId: string): string =>
  JSON.stringify({ type: "subscribed", subscriptionId, pattern });

export const troubleFrame = (
  subscriptionId: string,
  {
    code,
    message,
    retrying,
  }: { code: RefusalCode | "PERMISSION_DENIED"; message: string; retrying: boolean },
): string => JSON.stringify({ type: "subscription_error", subscriptionId, code, message, retrying });

/** Of a frame that names no pattern that could be answered about: one about subscriptions in their words, any other as an error. */
export function malformedFrame(text: string | undefined, code: string, message: string): string {
  const { type, subscriptionId } = fieldsOf(text);
  return type === "subscribe" || type === "unsubscribe"
    ? JSON.stringify({
        type: "subscription_error",
        subscriptionId: isText(subscriptionId) ? subscriptionId : "",
        code,
        message,
        retrying: false,
      })
    : JSON.stringify({ type: "error", code, message });
}
