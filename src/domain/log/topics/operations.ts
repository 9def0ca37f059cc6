import { type Static, Type } from "@sinclair/typebox";
import { PubSubService } from "../../../gen/svc/v1/pubsub_pb.ts";
import { invalid } from "../../../kit/fault.ts";
import { listed, type Operation, rpc, unary } from "../../../kit/operation.ts";
import { requestOf } from "../../../kit/request.ts";
import { lastPosition } from "../../../kit/sequence.ts";
import { type DataMessage, dataOf, eachOf, timestampOf } from "../../../kit/wkt.ts";
import { draftOf, type PublishInput, topicName, topicPrefix } from "./rules.ts";
import type { Published, TopicInfo, TopicStats, Topics } from "./service.ts";

interface PublishMessage extends DataMessage {
  topic: string;
  idempotencyKey: string;
  metadata?: Record<string, unknown> | undefined;
}

const fromPublish = (m: PublishMessage): PublishInput => ({
  topic: m.topic,
  idempotencyKey: m.idempotencyKey,
  ...dataOf(m),
  ...(m.metadata !== undefined && { metadata: m.metadata }),
});

/** The same from plain JSON: payloads never become messages on the hot path. */
function fromPublishBody(body: Record<string, unknown>): Record<string, unknown> {
  const { dataValue, ...rest } = body;
  return dataValue === undefined ? rest : { ...rest, data: dataValue };
}

const toPublished = ({ eventId, position }: Published) => ({
  eventId,
  sequence: BigInt(position ?? 0),
});

const toPublishedBody = ({ eventId, position }: Published) => ({
  eventId,
  ...(position !== undefined && { sequence: `${position}` }),
});

const toTopicInfo = (topic: TopicInfo) => ({
  name: topic.name,
  messageCount: BigInt(topic.message_count),
  consumerCount: topic.consumerCount,
  ...(topic.first_at !== null && { firstMessageAt: timestampOf(topic.first_at) }),
  lastMessageAt: timestampOf(topic.last_at),
});

const toTopicStats = (topic: TopicStats) => ({
  name: topic.name,
  messageCount: BigInt(topic.message_count),
  consumerCount: topic.consumerCount,
  lag: BigInt(topic.lag),
  firstSeq: BigInt(topic.first_position ?? topic.last_position),
  lastSeq: BigInt(topic.last_position),
});

const publishBatchMax = 100;

const Publish = Type.Object({
  topic: Type.String(),
  data: Type.Optional(Type.Unknown()),
  metadata: Type.Optional(Type.Union([Type.Record(Type.String(), Type.Unknown()), Type.Null()])),
  idempotencyKey: Type.Optional(Type.String()),
});

const Batch = Type.Object({ messages: Type.Array(Publish) });

/** As deny policies may name a topic: as subscribers do. */
const about = (topic: string) => topicPrefix + topicName(topic);

const subscribe = { action: "events:subscribe", reads: true, waitsFor: "log" } as const;

export const topicsOperations = (topics: Topics): Operation[] => [
  unary({
    name: "topics.publish",
    action: "events:emit",
    summary: "Stores one message of a developer topic; starts no function.",
    input: Publish,
    writes: { log: "topics", positionOf: ({ position }: Published) => position },
    about: ({ topic }: Static<typeof Publish>) => [about(topic)],
    rpc: rpc(PubSubService.method.publish, fromPublish, toPublished, {
      decode: fromPublishBody,
      encode: toPublishedBody,
    }),
    async handle(input, call) {
      const draft = draftOf(input as PublishInput, call.idempotencyKey);
      const [published] = await topics.publish([draft], call);
      return published!;
    },
  }),
  unary({
    name: "topics.publishBatch",
    action: "events:emit",
    summary: `Stores up to ${publishBatchMax} messages in order; one that is illegal refuses all.`,
    input: Batch,
    writes: { log: "topics", positionOf: lastPosition },
    about: ({ messages }: Static<typeof Batch>) => messages.map(({ topic }) => about(topic)),
    rpc: rpc(
      PubSubService.method.publishBatch,
      (m) => ({ messages: m.messages.map(fromPublish) }),
      (list: Published[]) => ({ results: list.map(toPublished) }),
      {
        decode: (body) => ({ ...body, messages: eachOf(body.messages, fromPublishBody) }),
        encode: (list) => ({ results: list.map(toPublishedBody) }),
      },
    ),
    handle(input, call) {
      if (input.messages.length > publishBatchMax)
        throw invalid("messages", `at most ${publishBatchMax} in one batch`);
      if (call.idempotencyKey)
        throw invalid("Idempotency-Key", "give each message of a batch its own idempotencyKey");
      const drafts = input.messages.map((item, at) =>
        draftOf(item as PublishInput, undefined, `messages[${at}].`),
      );
      return topics.publish(drafts, call);
    },
  }),
  unary({
    name: "topics.list",
    ...subscribe,
    summary: "Topics that have messages, by name.",
    ...requestOf(PubSubService.method.listTopics, (page: Awaited<ReturnType<Topics["list"]>>) => ({
      topics: page.topics.map(toTopicInfo),
      nextCursor: page.nextCursor ?? "",
    })),
    handle: ({ limit, cursor }, call) => topics.list(call.environmentId, { limit, cursor }),
    lists: listed(({ topic }: { topic: string }) => [about(topic)], { under: "topics" }),
  }),
  unary({
    name: "topics.stats",
    ...subscribe,
    summary: "How many messages of a topic are kept, and where they stand.",
    ...requestOf(PubSubService.method.getTopicStats, toTopicStats),
    about: ({ topic }: { topic: string }) => [about(topic)],
    handle: ({ topic }, call) => topics.get(call.environmentId, topic),
  }),
];
