import { requireEventName } from "../../../kit/event-names.ts";
import { missing } from "../../../kit/fault.ts";
import { pageOf, readNameCursor, writeNameCursor } from "../../../kit/page.ts";
import type { RequireRoom } from "../../engine/quotas/service.ts";
import type { Published } from "./answers.ts";
import { openPublishQueue, type PublishQueueDeps } from "./publish-queue.ts";
import { countBehind, findUsedKeys, getTopic, listTopics, type TopicRow } from "./rows.ts";
import { type PublishDraft, topicName } from "./rules.ts";

/** Topics in one answer. */
const topicsListMax = 1_000;

export type { Published };

/** A consumer group that reads a topic: how far it has come, and who is in it. */
export interface TopicConsumer {
  position: number;
  memberCount: number;
}

export type ConsumersOf = (environmentId: string) => Promise<(topic: string) => TopicConsumer[]>;

export interface TopicInfo extends TopicRow {
  /** Members of the groups that read it. */
  consumerCount: number;
}

export interface TopicStats extends TopicInfo {
  /** Messages that the slowest of these groups has not been handed, counted up to `countCap`. */
  lag: number;
}

export type Topics = ReturnType<typeof openTopics>;

export interface TopicsDeps extends PublishQueueDeps {
  consumersOf: ConsumersOf;
  requireRoom: RequireRoom;
}

export function openTopics({ consumersOf, requireRoom, ...deps }: TopicsDeps) {
  const { store } = deps;
  const queue = openPublishQueue(deps);

  return {
    /**
     * Commits the messages in order, all or none of them; resolves when they are durable. A repeated key
     * answers the first, a key that names something else refuses them all, `already_exists`.
     */
    async publish(
      drafts: readonly PublishDraft[],
      { environmentId, runId }: { environmentId: string; runId?: string | undefined },
    ) {
      if (drafts.length === 0) return [];
      const bytesOf = (some: readonly PublishDraft[]) =>
        some.reduce((sum, { data, metadata }) => sum + data.length + (metadata ?? "").length, 0);
      await requireRoom(environmentId, bytesOf(drafts), async () => {
        const keys = drafts.flatMap(({ idempotencyKey: key }) =>
          key === null ? [] : { environmentId, key },
        );
        const used = new Set((await findUsedKeys(store, keys)).map(({ key }) => key));
        return bytesOf(drafts.filter(({ idempotencyKey: key }) => key === null || !used.has(key)));
      });
      return queue.submit({ environmentId, runId, drafts });
    },

    /** Topics that have messages, by name. */
    async list(
      environmentId: string,
      { limit = 0, cursor }: { limit: number | undefined; cursor: string | undefined },
    ): Promise<{ topics: TopicInfo[]; nextCursor: string | undefined }> {
      const most = limit > 0 ? Math.min(limit, topicsListMax) : topicsListMax;
      const after = cursor ? readNameCursor("cursor", cursor) : "";
      const found = await listTopics(store, environmentId, { after, limit: most + 1 });
      const read = await consumersOf(environmentId);
      const { items, nextCursor } = pageOf(found, most, ({ name }) => writeNameCursor(name));
      const topics = items.map(
        (topic): TopicInfo => ({ ...topic, consumerCount: membersOf(read(topic.name)) }),
      );
      return { topics, nextCursor };
    },

    /** `not_found` when no message of the topic is kept. */
    async get(environmentId: string, text: string): Promise<TopicStats> {
      const name = topicName(text);
      requireEventName("topic", name);
      const topic = await getTopic(store, environmentId, name);
      if (!topic) throw missing("topic", name);
      const consumers = (await consumersOf(environmentId))(name);
      const slowest = Math.min(...consumers.map(({ position }) => position));
      const lag = slowest < topic.last_position ? await countBehind(store, environmentId, name, slowest) : 0;
      return { ...topic, consumerCount: membersOf(consumers), lag };
    },

    /** Resolves once nothing is on its way to the store. */
    drain: queue.drain,
  };
}

const membersOf = (consumers: readonly TopicConsumer[]): number =>
  consumers.reduce((sum, { memberCount }) => sum + memberCount, 0);
