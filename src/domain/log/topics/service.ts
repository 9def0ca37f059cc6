import type { Clock } from "../../../kit/clock.ts";
import { combine, type ItemOutcome } from "../../../kit/combine.ts";
import { combineLaneOf } from "../../../kit/combine-lane.ts";
import { requireEventName } from "../../../kit/event-names.ts";
import { Fault, invalid, missing, tryAgain } from "../../../kit/fault.ts";
import { keyReused } from "../../../kit/idempotency-key.ts";
import type { Ids } from "../../../kit/ids.ts";
import {
  claimKeys,
  contended,
  type KeyClaims,
  type Keyed,
  lostKeys,
  nameOfKey,
} from "../../../kit/key-claims.ts";
import {
  combineLanes,
  combineWaitingMax,
  publishFlushMax,
  publishPaceMs,
  topicsListMax,
} from "../../../kit/limits.ts";
import { type Watch, watchFlushes, watchWaiting } from "../../../kit/watch.ts";
import { isOfItem, type Store, StoreError } from "../../../store/store.ts";
import type { Feeds } from "../log/feed.ts";
import { type NewMessage, type PublishedRow, publishFlush, useOf } from "./flush.ts";
import type { TopicMessage } from "./past.ts";
import {
  countBehind,
  findUsedKeys,
  getTopic,
  listTopics,
  makeHeads,
  type TopicRow,
  type UsedTopicKey,
} from "./rows.ts";
import { type PublishDraft, topicName } from "./rules.ts";

export interface Published {
  eventId: string;
  /** The message's place in the environment's log of topics; undefined for a repeat of one that has since expired. */
  position: number | undefined;
}

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
  /** Messages that the slowest of these groups has not been handed, counted up to `limits.countCap`. */
  lag: number;
}

export interface Topics {
  /**
   * Commits the messages in order, all or none of them; resolves when they are durable. A repeated key answers the first,
   * a key that names something else refuses them all, `already_exists`.
   */
  publish(drafts: readonly PublishDraft[], environmentId: string): Promise<Published[]>;
  /** Topics that have messages, by name. */
  list(
    environmentId: string,
    page: { limit: number | undefined; cursor: string | undefined },
  ): Promise<{ topics: TopicInfo[]; nextCursor: string | undefined }>;
  /** `not_found` when no message of the topic is kept. */
  get(environmentId: string, topic: string): Promise<TopicStats>;
  /** Resolves once nothing is on its way to the store. */
  drain(): Promise<void>;
}

export interface TopicsDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  feeds: Pick<Feeds<TopicMessage>, "wanted" | "committed">;
  watch: Watch;
  consumersOf: ConsumersOf;
}

interface PublishUnit {
  environmentId: string;
  drafts: readonly PublishDraft[];
}

/** One message of a unit on its way into the log. */
interface PreparedMessage extends NewMessage, Keyed {}

/** Keys may be used while a flush is prepared; more often than this in a row something is wrong. */
const triesMax = 10;

/** Environments that a node knows to have a head; more are looked at again. */
const headedMax = 100_000;

/** So many characters of data weigh as much as one small message: a flush stays small in bytes too. */
const weightChars = 16_384;

export function openTopics({ store, clock, ids, feeds, watch, consumersOf }: TopicsDeps): Topics {
  const published = watch.metrics.counter({
    name: "svc_topic_messages_published_total",
    help: "Messages that this node committed to topics; repeats of a key are none.",
  })();

  /** Environments whose log has a head, as far as this node has seen. */
  const headed = new Set<string>();

  /** The first publish of an environment makes the head, so that all of a flush is one statement. */
  async function write(
    messages: readonly PreparedMessage[],
    bound: ReadonlySet<PreparedMessage>,
  ): Promise<Map<PreparedMessage, PublishedRow>> {
    if (messages.length === 0) return new Map();
    const headless = new Set(messages.flatMap((m) => (headed.has(m.environmentId) ? [] : m.environmentId)));
    if (headless.size > 0) await store.write((session) => makeHeads(session, [...headless].sort()));
    const placed = await store.flush(publishFlush, { messages, bound, now: clock.now() });
    if (headed.size > headedMax) headed.clear();
    for (const { ord } of placed) headed.add(messages[ord - 1]!.environmentId);
    return new Map(placed.map((one) => [messages[one.ord - 1]!, one]));
  }

  /** What the keys of these were used for so far, by their names. */
  async function usedKeys(messages: readonly PreparedMessage[]): Promise<Map<string, UsedTopicKey>> {
    const keys = messages.flatMap(({ environmentId, key }) => (key === null ? [] : { environmentId, key }));
    const rows = keys.length === 0 ? [] : await findUsedKeys(store, keys);
    return new Map(rows.map((row) => [nameOfKey(row.environment_id, row.key), row]));
  }

  /** What keys came to that were used before. A failed read costs only the repeats their answer: the flush is committed. */
  async function firstUses(
    messages: readonly PreparedMessage[],
  ): Promise<Map<PreparedMessage, Published | Fault>> {
    const keyed = messages.filter(({ key }) => key !== null);
    const used = await usedKeys(keyed).catch(() => undefined);
    if (!used) return new Map(keyed.map((message) => [message, unread()]));
    return new Map(
      keyed.flatMap((message) => {
        const row = used.get(nameOfKey(message.environmentId, message.key!));
        return row ? [[message, firstUse(row, message)] as const] : [];
      }),
    );
  }

  function feed(placed: ReadonlyMap<NewMessage, PublishedRow>): void {
    const wanted = [...placed].filter(([{ environmentId }]) => feeds.wanted(environmentId));
    const byEnvironment = Map.groupBy(wanted, ([{ environmentId }]) => environmentId);
    for (const [environmentId, own] of byEnvironment) {
      const messages = own.map(
        ([message, place]): TopicMessage => ({
          id: message.id,
          position: place.position,
          topic: message.topic,
          data: message.data,
          metadata: message.metadata,
          at: place.at,
        }),
      );
      feeds.committed(
        environmentId,
        messages.sort((a, b) => a.position - b.position),
      );
    }
  }

  async function flush(
    units: readonly PublishUnit[],
    committed: () => void,
  ): Promise<ItemOutcome<Published[]>[]> {
    const ofUnit = units.map(({ environmentId, drafts }) =>
      drafts.map(
        (draft): PreparedMessage => ({
          id: ids.next("evt"),
          environmentId,
          ...draft,
          key: draft.idempotencyKey,
          use: useOf(draft.topic),
          at: draft.at ?? "",
        }),
      ),
    );
    let used: ReadonlyMap<string, UsedTopicKey> | undefined;
    for (let tries = 1; ; tries++) {
      let claims = claimKeys(ofUnit, used);
      // Who is refused is told which item is wrong: only the store knows.
      if (claims.refused.size > 0 && !used) {
        used = await usedKeys(ofUnit.flat());
        claims = claimKeys(ofUnit, used);
      }
      try {
        const placed = await write(claims.written, claims.bound);
        committed();
        const repeats = await firstUses(claims.written.filter((message) => !placed.has(message)));
        published.add(placed.size);
        feed(placed);
        return outcomesOf(ofUnit, claims, (message) => {
          const place = placed.get(message);
          if (place) return { eventId: message.id, position: place.position };
          return repeats.get(message) ?? missing("environment", message.environmentId);
        });
      } catch (error) {
        const isLost =
          error instanceof StoreError && error.trouble === "marked" && error.detail.startsWith(lostKeys);
        if (!isLost) throw error;
        if (tries >= triesMax) throw contended();
        used = await usedKeys(ofUnit.flat());
      }
    }
  }

  const combiner = combine<PublishUnit, Published[]>({
    name: "topics.publish",
    lanes: combineLanes,
    laneOf: (unit) => combineLaneOf(unit.environmentId),
    weigh: (unit) =>
      unit.drafts.reduce(
        (sum, draft) => sum + 1 + (draft.data.length + (draft.metadata?.length ?? 0)) / weightChars,
        0,
      ),
    itemsMax: publishFlushMax,
    waitingMax: combineWaitingMax,
    pace: { clock, ms: publishPaceMs },
    flush,
    watch: watchFlushes(watch, clock, "topics.publish"),
    // A value the store refuses must cost its own message only.
    isOfItem,
    apart: {
      groupOf: (unit) => unit.environmentId,
      isStuck: (error) => error instanceof StoreError && error.trouble === "lock_timeout",
    },
  });
  watchWaiting(watch.metrics, combiner);

  return {
    publish: async (drafts, environmentId) =>
      drafts.length === 0 ? [] : combiner.submit({ environmentId, drafts }),

    async list(environmentId, { limit = 0, cursor }) {
      const most = limit > 0 ? Math.min(limit, topicsListMax) : topicsListMax;
      const after = cursor ? readName(cursor) : "";
      const found = await listTopics(store, environmentId, { after, limit: most + 1 });
      const read = await consumersOf(environmentId);
      const topics = found
        .slice(0, most)
        .map((topic): TopicInfo => ({ ...topic, consumerCount: membersOf(read(topic.name)) }));
      return {
        topics,
        nextCursor: found.length > most ? writeName(topics.at(-1)!.name) : undefined,
      };
    },

    async get(environmentId, text) {
      const name = topicName(text);
      requireEventName("topic", name);
      const topic = await getTopic(store, environmentId, name);
      if (!topic) throw missing("topic", name);
      const consumers = (await consumersOf(environmentId))(name);
      const slowest = Math.min(...consumers.map(({ position }) => position));
      const lag = slowest < topic.last_position ? await countBehind(store, environmentId, name, slowest) : 0;
      return { ...topic, consumerCount: membersOf(consumers), lag };
    },

    drain: combiner.drain,
  };
}

const membersOf = (consumers: readonly TopicConsumer[]): number =>
  consumers.reduce((sum, { memberCount }) => sum + memberCount, 0);

const writeName = (name: string): string => Buffer.from(name).toString("base64url");

function readName(cursor: string): string {
  const name = Buffer.from(cursor, "base64url").toString();
  if (name === "" || writeName(name) !== cursor) throw invalid("cursor", "is not a cursor of this list");
  return name;
}

/** What each unit came to: one answer for each of its messages, in their order, or the first fault. */
const outcomesOf = (
  units: readonly (readonly PreparedMessage[])[],
  { refused, repeats, twins }: KeyClaims<PreparedMessage, UsedTopicKey>,
  answerOf: (written: PreparedMessage) => Published | Fault,
): ItemOutcome<Published[]>[] =>
  units.map((messages, place) => {
    const answers = messages.map((message) => {
      const row = repeats.get(message);
      return row ? firstUse(row, message) : answerOf(twins.get(message) ?? message);
    });
    const fault = refused.get(place) ?? answers.find((answer) => answer instanceof Fault);
    return fault ? { error: fault } : { value: answers as Published[] };
  });

/** A key means one fact: it cannot name an emit and a message, or two topics. */
const firstUse = (row: UsedTopicKey, { use, at }: PreparedMessage): Published | Fault =>
  row.function_id === use
    ? { eventId: row.event_id, position: row.position ?? undefined }
    : keyReused(row.key, at);

const unread = (): Fault => tryAgain("unavailable", "the answer to a repeated key cannot be read, try again");
