import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import type { SubscribeOptions, SubscriptionEventSchema } from "../../../gen/svc/v1/pubsub_pb.ts";
import { storedJson } from "../../../kit/payload-json.ts";
import { payload, timestampOf } from "../../../kit/wkt.ts";
import type { ChannelSpec, Start } from "./channel.ts";
import type { Delivery } from "./delivery.ts";
import type { Streamed } from "./subscription-streams.ts";

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
    withPositions: options.withPositions,
    ...(options.epoch !== undefined && { epoch: `${options.epoch}` }),
  }),
});

export const toStreamMessage = (one: Streamed): MessageInitShape<typeof SubscriptionEventSchema> =>
  "start" in one ? toStartMessage(one.spec, one.start) : toEventMessage(one.spec, one.delivery);

const toStartMessage = (spec: Pick<ChannelSpec, "id">, start: Start | undefined) => ({
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
  ...payload("data", "dataValue", delivery.data),
  sequence: BigInt(delivery.sequence ?? 0),
  deliveryAttempt: delivery.attempt,
  ...(spec.includeMetadata && {
    metadata: {
      timestamp: timestampOf(delivery.at),
      source: delivery.source,
      namespace: spec.pattern.namespace,
      ...(delivery.custom !== null && { custom: storedJson(delivery.custom) as JsonObject }),
    },
  }),
});
