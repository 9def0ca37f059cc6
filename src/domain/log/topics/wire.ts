import { type DataMessage, dataOf, timestampOf } from "../../../kit/wkt.ts";
import type { PublishInput } from "./rules.ts";
import type { Published, TopicInfo, TopicStats } from "./service.ts";

interface PublishMessage extends DataMessage {
  topic: string;
  idempotencyKey: string;
  metadata?: Record<string, unknown> | undefined;
}

export const fromPublish = (m: PublishMessage): PublishInput => ({
  topic: m.topic,
  idempotencyKey: m.idempotencyKey,
  ...dataOf(m),
  ...(m.metadata !== undefined && { metadata: m.metadata }),
});

/** The same from plain JSON: payloads never become messages on the hot path. */
export function fromPublishBody(body: Record<string, unknown>): Record<string, unknown> {
  const { dataValue, ...rest } = body;
  return dataValue === undefined ? rest : { ...rest, data: dataValue };
}

export const toPublished = ({ eventId, position }: Published) => ({
  eventId,
  sequence: BigInt(position ?? 0),
});

export const toPublishedBody = ({ eventId, position }: Published) => ({
  eventId,
  ...(position !== undefined && { sequence: `${position}` }),
});

export const toTopicInfo = (topic: TopicInfo) => ({
  name: topic.name,
  messageCount: BigInt(topic.message_count),
  consumerCount: topic.consumerCount,
  ...(topic.first_at !== null && { firstMessageAt: timestampOf(topic.first_at) }),
  lastMessageAt: timestampOf(topic.last_at),
});

export const toTopicStats = (topic: TopicStats) => ({
  name: topic.name,
  messageCount: BigInt(topic.message_count),
  consumerCount: topic.consumerCount,
  lag: BigInt(topic.lag),
  firstSeq: BigInt(topic.first_position ?? topic.last_position),
  lastSeq: BigInt(topic.last_position),
});
