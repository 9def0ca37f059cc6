import type { Clock } from "../../kit/clock.ts";
import { combine, type Outcome } from "../../kit/combine.ts";
import { Fault, invalid, missing } from "../../kit/fault.ts";
import type { Ids } from "../../kit/ids.ts";
import { laneOfEnvironment } from "../../kit/lanes.ts";
import {
  combineLanes,
  combinePaceMs,
  combineWaitingMax,
  flushItemsMax,
  topicsListMax,
} from "../../kit/limits.ts";
import { requireEventName } from "../../kit/names.ts";
import { type Watch, watchFlushes, watchWaiting } from "../../kit/watch.ts";
import { type Store, StoreError } from "../../store/store.ts";
import { keyReused } from "../events/rules.ts";
import type { Feeds } from "../log/feed.ts";
import { type PublishDraft, topicName } from "./draft.ts";
import { type NewMessage, type Placed, publishFlush } from "./flush.ts";
import type { TopicMessage } from "./log.ts";
import { findUsed, getTopic, listTopics, makeHeads, type TopicRow, type UsedKey } from "./rows.ts";

export interface Published {
  eventId: string;
  /** The message's place in the environment's log of topics; undefined for a repeat of one that has since expired. */
  position: number | undefined;
}

export type { TopicRow } from "./rows.ts";

export interface Topics {
  /** Commits the messages in order, as one unit; resolves when they are durable. A repeated key answers the first. */
  publish(drafts: readonly PublishDraft[], environmentId: string): Promise<Published[]>;
  /** Topics that have messages, by name. */
  list(
    environmentId: string,
    page: { limit: number | undefined; cursor: string | undefined },
  ): Promise<{ topics: TopicRow[]; nextCursor: string | undefined }>;
  /** `not_found` when no message of the topic is kept. */
  get(environmentId: string, topic: string): Promise<TopicRow>;
  /** Resolves once nothing is on its way to the store. */
  drain(): Promise<void>;
}

export interface TopicsDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  feeds: Pick<Feeds<TopicMessage>, "wanted" | "committed">;
  watch: Watch;
}

interface Unit {
  environmentId: string;
  drafts: readonly PublishDraft[];
}

/** So many characters of data weigh as much as one small message: a flush stays small in bytes too. */
const weightChars = 16_384;

export function openTopics({ store, clock, ids, feeds, watch }: TopicsDeps): Topics {
  const published = watch.metrics.counter({
    name: "svc_topic_messages_published_total",
    help: "Messages that this node committed to topics; repeats of a key are none.",
  })();

  const write = async (messages: readonly NewMessage[]): Promise<Map<NewMessage, Placed>> => {
    const placed = await store.flush(publishFlush, { messages, now: clock.now() });
    return new Map(placed.map((one) => [messages[one.ord - 1]!, one]));
  };

  /** The first publish of an environment finds no head, writes nothing, and comes again. */
  async function flushAll(messages: readonly NewMessage[]): Promise<Map<NewMessage, Placed>> {
    const placed = await write(messages);
    const rest = messages.filter((message) => !placed.has(message));
    if (rest.length === 0) return placed;
    const environmentIds = [...new Set(rest.map(({ environmentId }) => environmentId))].sort();
    const made = await store.write((session) => makeHeads(session, environmentIds));
    if (made > 0) for (const [message, place] of await write(rest)) placed.set(message, place);
    return placed;
  }

  /** Of messages that were not written: what their keys came to before. */
  async function answersTo(rest: readonly NewMessage[]): Promise<(message: NewMessage) => Published | Fault> {
    const keys = rest.flatMap(({ environmentId, idempotencyKey: key }) =>
      key === null ? [] : { environmentId, key },
    );
    const used = new Map<string, UsedKey>();
    if (keys.length > 0)
      for (const row of await findUsed(store, keys)) used.set(`${row.environment_id}\n${row.key}`, row);
    return ({ environmentId, idempotencyKey: key, topic }) => {
      const row = key === null ? undefined : used.get(`${environmentId}\n${key}`);
      if (!row) return missing("environment", environmentId);
      if (row.function_id !== `topic:${topic}`) return keyReused(row.key);
      return { eventId: row.event_id, position: row.position ?? undefined };
    };
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
    const placed = await flushAll(messages);
    published.add(placed.size);
    feed(placed);
    const rest = messages.filter((message) => !placed.has(message));
    // The flush is committed: a failed read here costs only the repeats their answer, never the others theirs.
    const answer = rest.length === 0 ? undefined : await answersTo(rest).catch(() => () => unread());
    const answerOf = (message: NewMessage): Published | Fault => {
      const place = placed.get(message);
      return place ? { eventId: message.id, position: place.position } : answer!(message);
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
    itemsMax: flushItemsMax,
    waitingMax: combineWaitingMax,
    pace: { clock, ms: combinePaceMs },
    flush,
    watch: watchFlushes(watch, clock, "topics.publish"),
    // A value the store refuses must cost its own message only.
    retrySplit: (error, units) => (error instanceof Fault ? units.map((unit) => [unit]) : undefined),
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
      const topics = found.slice(0, most);
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
      return topic;
    },

    drain: combiner.drain,
  };
}

const writeName = (name: string): string => Buffer.from(name).toString("base64url");

function readName(cursor: string): string {
  const name = Buffer.from(cursor, "base64url").toString();
  if (name === "" || writeName(name) !== cursor) throw invalid("cursor", "is not a cursor of this list");
  return name;
}

const unread = (): Fault =>
  new Fault("unavailable", "the answer to a repeated key cannot be read, try again", {
    headers: { "Retry-After": "1" },
  });
