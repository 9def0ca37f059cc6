import { type Static, Type } from "@sinclair/typebox";
import { PubSubService } from "../../../gen/svc/v1/pubsub_pb.ts";
import { invalid } from "../../../kit/fault.ts";
import { listed, type Operation, rpc, unary } from "../../../kit/operation.ts";
import { lastPosition } from "../../../kit/sequence.ts";
import { stated } from "../../../kit/stated.ts";
import { draftOf, type PublishInput, topicName, topicPrefix } from "./rules.ts";
import type { Published, Topics } from "./service.ts";
import {
  fromPublish,
  fromPublishBody,
  toPublished,
  toPublishedBody,
  toTopicInfo,
  toTopicStats,
} from "./wire.ts";

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

/** Names of a batch's items come in either case; those of the outer message were put right before. */
function fromItem(item: unknown): unknown {
  if (typeof item !== "object" || item === null || Array.isArray(item)) return item;
  const { idempotency_key, data_value, ...rest } = item as Record<string, unknown>;
  return fromPublishBody({
    ...stated({ idempotencyKey: idempotency_key, dataValue: data_value }),
    ...rest,
  });
}

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
        decode: (body) => ({
          ...body,
          messages: Array.isArray(body.messages) ? body.messages.map(fromItem) : (body.messages ?? []),
        }),
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
    action: "events:subscribe",
    summary: "Topics that have messages, by name.",
    reads: true,
    waitsFor: "log",
    input: Type.Object({ limit: Type.Optional(Type.Integer()), cursor: Type.Optional(Type.String()) }),
    rpc: rpc(
      PubSubService.method.listTopics,
      ({ limit, cursor }) => ({ limit, cursor }),
      (page: Awaited<ReturnType<Topics["list"]>>) => ({
        topics: page.topics.map(toTopicInfo),
        nextCursor: page.nextCursor ?? "",
      }),
    ),
    handle: ({ limit, cursor }, call) => topics.list(call.environmentId, { limit, cursor }),
    lists: listed(({ topic }: { topic: string }) => [about(topic)], { under: "topics" }),
  }),
  unary({
    name: "topics.stats",
    action: "events:subscribe",
    summary: "How many messages of a topic are kept, and where they stand.",
    reads: true,
    waitsFor: "log",
    input: Type.Object({ topic: Type.String() }),
    about: ({ topic }: { topic: string }) => [about(topic)],
    rpc: rpc(PubSubService.method.getTopicStats, ({ topic }) => ({ topic }), toTopicStats),
    handle: ({ topic }, call) => topics.get(call.environmentId, topic),
  }),
];
