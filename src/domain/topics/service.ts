import type { Clock } from "../../kit/clock.ts";
import { combine, type Outcome } from "../../kit/combine.ts";
import { Fault, invalid, missing } from "../../kit/fault.ts";
import type { Ids } from "../../kit/ids.ts";
import { laneOfEnvironment } from "../../kit/lanes.ts";
import {
  combineLanes,
  combineWaitingMax,
  publishFlushMax,
  publishPaceMs,
  topicsListMax,
} from "../../kit/limits.ts";
import { requireEventName } from "../../kit/names.ts";
import { type Watch, watchFlushes, watchWaiting } from "../../kit/watch.ts";
import { isOfItem, type Store, StoreError } from "../../store/store.ts";
import { keyReused } from "../events/rules.ts";
import type { Feeds } from "../log/feed.ts";
import { type PublishDraft, topicName } from "./draft.ts";
import { type NewMessage, type Placed, publishFlush } from "./flush.ts";
import type { TopicMessage } from "./log.ts";
import {
  countBehind,
  findUsed,
  getTopic,
  listTopics,
  makeHeads,
  type TopicRow,
  type UsedKey,
} from "./rows.ts";

export interface Published {
  eventId: string;
  /** The message's place in the environment's log of topics; undefined for a repeat of one that has since expired. */
  position: number | undefined;
}

/** A consumer group that reads a topic: how far it has come, and who is in it. */
export interface TopicReader {
  position: number;
  memberCount: number;
}

export type ReadersOf = (environmentId: string) => Promise<(topic: string) => TopicReader[]>;

export interface TopicInfo extends TopicRow {
  /** Members of the groups that read it. */
  consumerCount: number;
}

export interface TopicStats extends TopicInfo {
  /** Messages that the slowest of these groups has not been handed, counted up to `limits.countCap`. */
  lag: number;
}

export interface Topics {
  /** Commits the messages in order, as one unit; resolves when they are durable. A repeated key answers the first. */
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
  readersOf: ReadersOf;
}

interface Unit {
  environmentId: string;
  drafts: readonly PublishDraft[];
}

/** So many characters of data weigh as much as one small message: a flush stays small in bytes too. */
const weightChars = 16_384;

export function openTopics({ store, clock, ids, feeds, watch, readersOf }: TopicsDeps): Topics {
  const published = watch.metrics.counter({
    name: "svc_topic_messages_published_total",
    help: "Messages that this node committed to topics; repeats of a key are none.",
  })();

  const write = async (messages: readonly NewMessage[]): Promise<Map<NewMessage, Placed>> => {
    const placed = await store.flush(publishFlush, { messages, now: clock.now() });
    return new Map(placed.map((one) => [messages[one.ord - 1]!, one]));
  };

  /** What keys came to that were used before. A failed read costs only the repeats their answer: the flush is committed. */
  async function firstUses(messages: readonly NewMessage[]): Promise<Map<NewMessage, Published | Fault>> {
    const keyed = messages.filter((message) => message.idempotencyKey !== null);
    if (keyed.length === 0) return new Map();
    const keys = keyed.map(({ environmentId, idempotencyKey }) => ({ environmentId, key: idempotencyKey! }));
    const rows = await findUsed(store, keys).catch(() => undefined);
    if (!rows) return new Map(keyed.map((message) => [message, unread()]));
    const used = new Map(rows.map((row) => [`${row.environment_id}\n${row.key}`, row]));
    return new Map(
      keyed.flatMap((message) => {
        const row = used.get(`${message.environmentId}\n${message.idempotencyKey}`);
        return row ? [[message, firstUse(row, message.topic)] as const] : [];
      }),
    );
  }

  /** What each message came to. The first publish of an environment finds no head, writes nothing, and comes again. */
  async function writeAll(messages: readonly NewMessage[]) {
    const placed = await write(messages);
    const rest = messages.filter((message) => !placed.has(message));
    const repeats = await firstUses(rest);
    const headless = rest.filter((message) => !repeats.has(message));
    if (headless.length > 0) {
      const environmentIds = [...new Set(headless.map(({ environmentId }) => environmentId))].sort();
      await store.write((session) => makeHeads(session, environmentIds));
      for (const [message, place] of await write(headless)) placed.set(message, place);
      const twins = await firstUses(headless.filter((message) => !placed.has(message)));
      for (const [message, answer] of twins) repeats.set(message, answer);
    }
    return { placed, repeats };
  }

  function feed(placed: ReadonlyMap<NewMessage, Placed>): void {
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

  async function flush(units: readonly Unit[]): Promise<Outcome<Published[]>[]> {
    const ofUnit = units.map(({ environmentId, drafts }) =>
      drafts.map((draft): NewMessage => ({ id: ids.next("evt"), environmentId, ...draft })),
    );
    const messages = ofUnit.flat();
    const { placed, repeats } = await writeAll(messages);
    published.add(placed.size);
    feed(placed);
    const answerOf = (message: NewMessage): Published | Fault => {
      const place = placed.get(message);
      if (place) return { eventId: message.id, position: place.position };
      return repeats.get(message) ?? missing("environment", message.environmentId);
    };
    return ofUnit.map((mine): Outcome<Published[]> => {
      const answers = mine.map(answerOf);
      const fault = answers.find((one) => one instanceof Fault);
      return fault ? { error: fault } : { value: answers as Published[] };
    });
  }

  const combiner = combine<Unit, Published[]>({
    name: "topics.publish",
    lanes: combineLanes,
    laneOf: (unit) => laneOfEnvironment(unit.environmentId),
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
      const read = await readersOf(environmentId);
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
      const readers = (await readersOf(environmentId))(name);
      const slowest = Math.min(...readers.map(({ position }) => position));
      const lag = slowest < topic.last_position ? await countBehind(store, environmentId, name, slowest) : 0;
      return { ...topic, consumerCount: membersOf(readers), lag };
    },

    drain: combiner.drain,
  };
}

const membersOf = (readers: readonly TopicReader[]): number =>
  readers.reduce((sum, { memberCount }) => sum + memberCount, 0);

const writeName = (name: string): string => Buffer.from(name).toString("base64url");

function readName(cursor: string): string {
  const name = Buffer.from(cursor, "base64url").toString();
  if (name === "" || writeName(name) !== cursor) throw invalid("cursor", "is not a cursor of this list");
  return name;
}

/** A key means one fact: it cannot name an emit and a message, or two topics. */
const firstUse = (row: UsedKey, topic: string): Published | Fault =>
  row.function_id === `topic:${topic}`
    ? { eventId: row.event_id, position: row.position ?? undefined }
    : keyReused(row.key);

const unread = (): Fault =>
  new Fault("unavailable", "the answer to a repeated key cannot be read, try again", {
    headers: { "Retry-After": "1" },
  });
