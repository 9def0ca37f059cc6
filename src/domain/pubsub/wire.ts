import type { JsonObject, JsonValue, MessageInitShape } from "@bufbuild/protobuf";
import { fromJson } from "@bufbuild/protobuf";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import type { SubscribeOptions, SubscriptionEventSchema } from "../../gen/svc/v1/pubsub_pb.ts";
import { timestampOf } from "../../kit/wkt.ts";
import type { Delivery } from "./delivery.ts";
import type { ChannelSpec, Start } from "./hub.ts";
import type { Streamed } from "./stream.ts";

export const fromOptions = (
  pattern: string,
  options: SubscribeOptions | undefined,
): Record<string, unknown> & { pattern: string } => ({
  pattern,
  ...(options && {
    replay: options.replay,
    includeMetadata: options.includeMetadata,
    filter: options.filter,
    consumerGroup: options.consumerGroup,
    ...(options.startAfterSequence !== undefined && {
      startAfterSequence: `${options.startAfterSequence}`,
    }),
    withStart: options.withStart,
    ...(options.epoch !== undefined && { epoch: `${options.epoch}` }),
  }),
});

const isObject = (value: JsonValue): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Objects travel in `data`, anything else in its twin (contract.md rulings). */
function payload(text: string) {
  const value = JSON.parse(text) as JsonValue;
  return isObject(value) ? { data: value } : { dataValue: fromJson(ValueSchema, value) };
}

export const toStreamMessage = (one: Streamed): MessageInitShape<typeof SubscriptionEventSchema> =>
  "start" in one ? toStartMessage(one.spec, one.start) : toEventMessage(one.spec, one.delivery);

const toStartMessage = (spec: ChannelSpec, start: Start | undefined) => ({
  subscriptionId: spec.id,
  ...(start && { sequence: BigInt(start.sequence), epoch: BigInt(start.epoch) }),
});

export const toEventMessage = (
  spec: Pick<ChannelSpec, "id" | "includeMetadata" | "pattern">,
  delivery: Delivery,
): MessageInitShape<typeof SubscriptionEventSchema> => ({
  subscriptionId: spec.id,
  eventId: delivery.eventId ?? "",
  topic: delivery.topic,
  ...payload(delivery.data),
  sequence: BigInt(delivery.sequence ?? 0),
  deliveryAttempt: delivery.attempt,
  ...(spec.includeMetadata && {
    metadata: {
      timestamp: timestampOf(delivery.at),
      source: delivery.source,
      namespace: spec.pattern.namespace,
      ...(delivery.custom !== null && { custom: JSON.parse(delivery.custom) as JsonObject }),
    },
  }),
});
