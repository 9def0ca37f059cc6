import { requireEventName } from "../../../kit/event-names.ts";
import { missing } from "../../../kit/fault.ts";
import { expireSlicesMax } from "../../../kit/limits.ts";
import { pageOf, readNameCursor, writeNameCursor } from "../../../kit/page.ts";
import { SliceSize } from "../../../kit/slice-size.ts";
import type { Basics, LeaderWrite } from "../../../store/store.ts";
import type { RequireRoom } from "../../engine/quotas/service.ts";
import type { FloorGuard } from "../../record/retention/service.ts";
import { openPublishQueue, type Published, type PublishQueueDeps } from "./publish-queue.ts";
import {
  countBehind,
  environmentsWithTopics,
  expireMessages,
  findUsedKeys,
  getTopic,
  listTopics,
  oldestMessages,
  type TopicRow,
} from "./rows.ts";
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

export interface ExpiryDeps extends Basics<"store" | "clock" | "log"> {
  /** How long a message is kept, in milliseconds. 0: for ever. */
  keptMs: number;
  /** Guards of those that read topics before the end, such as consumer groups. */
  floorGuards: readonly FloorGuard[];
}

/** Slices of one environment before it is the next one's turn. */
const turnSlicesMax = 20;

/** The tick of `topics.expire`, on the node that leads `retention`: old messages go, a slice at a time. */
export function openExpiry({ store, clock, log, keptMs, floorGuards }: ExpiryDeps) {
  const size = new SliceSize(clock);
  /** Where the walk over the environments goes on with the next tick. */
  let after = "";

  /** What may go now, of the oldest `limit`: everything below the answer; undefined when there is nothing. */
  async function horizon(environmentId: string, needed: number, limit: number): Promise<number | undefined> {
    const before = clock.now() - keptMs;
    const isOld = ({ at, position }: { at: number; position: number }) => at < before && position < needed;
    // A large message takes long to read, and mostly none is old.
    if (!(await oldestMessages(store, environmentId, 1)).some(isOld)) return undefined;
    const oldest = await oldestMessages(store, environmentId, limit);
    const old = oldest.filter(isOld);
    return old.length === 0 ? undefined : old.at(-1)!.position + 1;
  }

  async function expireOf(write: LeaderWrite, environmentId: string, slices: number) {
    let needed = Number.POSITIVE_INFINITY;
    for (const guard of floorGuards) needed = Math.min(needed, (await guard(environmentId)) ?? needed);
    let gone = 0;
    let used = 1;
    for (; used <= slices; used++) {
      const limit = size.rows;
      const floor = await horizon(environmentId, needed, limit);
      if (floor === undefined) break;
      gone += await size.delete(write, (session) => expireMessages(session, environmentId, floor, limit));
      await size.rest();
    }
    return { gone, used, isMore: used > slices };
  }

  return async (write: LeaderWrite): Promise<{ againInMs?: number }> => {
    if (keptMs === 0) return {};
    let left = expireSlicesMax;
    let gone = 0;
    const behind: string[] = [];
    const turn = async (environmentId: string) => {
      const done = await expireOf(write, environmentId, Math.min(left, turnSlicesMax));
      gone += done.gone;
      left -= done.used;
      if (done.isMore) behind.push(environmentId);
    };
    while (left > 0) {
      const [next] = await environmentsWithTopics(store, after, 1);
      after = next?.environment_id ?? "";
      if (!next) break;
      await turn(after);
    }
    // Environments take turns: a long past of one does not delay the others.
    while (left > 0 && behind.length > 0) await turn(behind.shift()!);
    if (gone > 0) log.info("topics.expired", { gone });
    // There is more: soon again, with others in between.
    return left > 0 ? {} : { againInMs: 1_000 };
  };
}
