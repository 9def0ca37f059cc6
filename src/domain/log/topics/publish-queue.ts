import type { ItemOutcome } from "../../../kit/combine.ts";
import { Fault, missing, tryAgain } from "../../../kit/fault.ts";
import { flushQueue, weightOfPayloads } from "../../../kit/flush-queue.ts";
import {
  claimKeys,
  contended,
  type KeyClaims,
  type Keyed,
  keyReused,
  lostKeys,
  nameOfKey,
} from "../../../kit/key-claims.ts";
import { type Basics, isMarked, isOfItem, isStuck, type Store } from "../../../store/store.ts";
import type { Feeds } from "../core/feed.ts";
import { type NewMessage, type PublishedRow, publishFlush, useOf } from "./flush.ts";
import type { TopicMessage } from "./past.ts";
import { findUsedKeys, makeHeads, type UsedTopicKey } from "./rows.ts";
import type { PublishDraft } from "./rules.ts";

export interface Published {
  eventId: string;
  /**
   * The message's place in the environment's log of topics; undefined for a repeat of one that has since
   * expired.
   */
  position: number | undefined;
}

/** One message of a unit on its way into the log. */
interface PreparedMessage extends NewMessage, Keyed {}

type MessageClaims = KeyClaims<PreparedMessage, UsedTopicKey>;

/** The first use of each of these messages' keys, by the keys' names. */
async function usedKeys(
  store: Store,
  messages: readonly PreparedMessage[],
): Promise<Map<string, UsedTopicKey>> {
  const keys = messages.flatMap(({ environmentId, key }) => (key === null ? [] : { environmentId, key }));
  const rows = keys.length === 0 ? [] : await findUsedKeys(store, keys);
  return new Map(rows.map((row) => [nameOfKey(row.environment_id, row.key), row]));
}

/** The answers of a committed flush: one outcome for each unit, in their order. */
async function answersOf(
  store: Store,
  units: readonly (readonly PreparedMessage[])[],
  claims: MessageClaims,
  placed: ReadonlyMap<PreparedMessage, PublishedRow>,
): Promise<ItemOutcome<Published[]>[]> {
  const repeats = await firstUses(
    store,
    claims.written.filter((message) => !placed.has(message)),
  );
  const answerOfWritten = (message: PreparedMessage): Published | Fault => {
    const place = placed.get(message);
    if (place) return { eventId: message.id, position: place.position };
    return repeats.get(message) ?? missing("environment", message.environmentId);
  };
  return units.map((messages, at) => {
    const answers = messages.map((message) => {
      const row = claims.repeats.get(message);
      return row ? firstUse(row, message) : answerOfWritten(claims.twins.get(message) ?? message);
    });
    const fault = claims.refused.get(at) ?? answers.find((answer) => answer instanceof Fault);
    return fault ? { error: fault } : { value: answers as Published[] };
  });
}

/**
 * The flush is committed: a failed read costs only the repeats their answer, never the other messages theirs.
 */
async function firstUses(
  store: Store,
  messages: readonly PreparedMessage[],
): Promise<Map<PreparedMessage, Published | Fault>> {
  const keyed = messages.filter(({ key }) => key !== null);
  const used = await usedKeys(store, keyed).catch(() => undefined);
  if (!used) return new Map(keyed.map((message) => [message, unread()]));
  return new Map(
    keyed.flatMap((message) => {
      const row = used.get(nameOfKey(message.environmentId, message.key!));
      return row ? [[message, firstUse(row, message)] as const] : [];
    }),
  );
}

/** A key means one fact: it cannot name an emit and a message, or two topics. */
const firstUse = (row: UsedTopicKey, { use, at }: PreparedMessage): Published | Fault =>
  row.function_id === use
    ? { eventId: row.event_id, position: row.position ?? undefined }
    : keyReused(row.key, at);

const unread = (): Fault =>
  tryAgain("unavailable", "the answer to a repeated idempotency key cannot be read, try again");

/** Messages start no runs, so a flush of them may be larger than one of events. */
const publishFlushMax = 512;
const publishPaceMs = 4;

export interface PublishQueueDeps extends Basics<"store" | "clock" | "ids" | "watch"> {
  feeds: Pick<Feeds<TopicMessage>, "wanted" | "committed">;
  /** Called after the commit for each message of which the caller named the run that publishes it. */
  onPublished?: (environmentId: string, runId: string, topic: string) => void;
}

/** The messages of one call; they are written together or not at all. */
interface PublishUnit {
  environmentId: string;
  runId: string | undefined;
  drafts: readonly PublishDraft[];
}

/** Keys may be used by others while a flush decides; after this many tries in a row something is wrong. */
const triesMax = 10;

/** Environments that a node remembers to have a head. */
const headedMax = 100_000;

/** Publishes of all callers, brought together into flushes. */
export function openPublishQueue({ store, clock, ids, feeds, watch, onPublished }: PublishQueueDeps) {
  const published = watch.metrics.counter({
    name: "svc_topic_messages_published_total",
    help: "Messages that this node committed to topics; repeats of a key are none.",
  })();

  /** Environments whose log has a head, as far as this node has seen. */
  const headed = new Set<string>();

  const prepare = ({ environmentId, runId, drafts }: PublishUnit): PreparedMessage[] =>
    drafts.map((draft) => ({
      id: ids.next("evt"),
      environmentId,
      ...draft,
      key: draft.idempotencyKey,
      use: useOf(draft.topic),
      runId: runId ?? null,
      at: draft.at ?? "",
    }));

  /** The first publish of an environment makes its head beforehand, so that every flush is one statement. */
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

  /** Gives committed messages to those who follow the log of topics, here and on other nodes. */
  function feed(placed: ReadonlyMap<NewMessage, PublishedRow>): void {
    const wanted = [...placed].filter(([{ environmentId }]) => feeds.wanted(environmentId));
    const byEnvironment = Map.groupBy(wanted, ([{ environmentId }]) => environmentId);
    for (const [environmentId, own] of byEnvironment) {
      own.sort(([, a], [, b]) => a.position - b.position);
      feeds.committed(environmentId, own.at(-1)![1].position, () =>
        own.map(
          ([{ id, topic, data, metadata }, { position, at }]): TopicMessage => ({
            id,
            position,
            topic,
            data,
            metadata,
            at,
          }),
        ),
      );
    }
  }

  async function flush(
    units: readonly PublishUnit[],
    committed: () => void,
  ): Promise<ItemOutcome<Published[]>[]> {
    const ofUnit = units.map(prepare);
    let used: ReadonlyMap<string, UsedTopicKey> | undefined;
    for (let tries = 1; ; tries++) {
      let claims = claimKeys(ofUnit, used);
      // A refusal names the item at fault, which only the store can tell.
      if (claims.refused.size > 0 && !used) {
        used = await usedKeys(store, ofUnit.flat());
        claims = claimKeys(ofUnit, used);
      }
      try {
        const placed = await write(claims.written, claims.bound);
        committed();
        const answers = await answersOf(store, ofUnit, claims, placed);
        published.add(placed.size);
        if (onPublished)
          for (const { environmentId, runId, topic } of placed.keys())
            if (runId !== null) onPublished(environmentId, runId, topic);
        feed(placed);
        return answers;
      } catch (error) {
        if (!isMarked(error, lostKeys)) throw error;
        if (tries >= triesMax) throw contended();
        used = await usedKeys(store, ofUnit.flat());
      }
    }
  }

  return flushQueue<PublishUnit, Published[]>({
    name: "topics.publish",
    clock,
    watch,
    environmentOf: (unit) => unit.environmentId,
    weigh: (unit) => weightOfPayloads(unit.drafts),
    itemsMax: publishFlushMax,
    paceMs: publishPaceMs,
    flush,
    // A value the store refuses fails its own message only; one environment's stuck head does not fail the
    // others.
    isOfItem,
    isStuck,
  });
}
