import type { ItemOutcome } from "../../../kit/combine.ts";
import { Fault, missing, tryAgain } from "../../../kit/fault.ts";
import { keyReused } from "../../../kit/idempotency-key.ts";
import { type KeyClaims, type Keyed, nameOfKey } from "../../../kit/key-claims.ts";
import type { Store } from "../../../store/store.ts";
import type { NewMessage, PublishedRow } from "./flush.ts";
import { findUsedKeys, type UsedTopicKey } from "./rows.ts";

export interface Published {
  eventId: string;
  /**
   * The message's place in the environment's log of topics; undefined for a repeat of one that has since
   * expired.
   */
  position: number | undefined;
}

/** One message of a unit on its way into the log. */
export interface PreparedMessage extends NewMessage, Keyed {}

type MessageClaims = KeyClaims<PreparedMessage, UsedTopicKey>;

/** The first use of each of these messages' keys, by the keys' names. */
export async function usedKeys(
  store: Store,
  messages: readonly PreparedMessage[],
): Promise<Map<string, UsedTopicKey>> {
  const keys = messages.flatMap(({ environmentId, key }) => (key === null ? [] : { environmentId, key }));
  const rows = keys.length === 0 ? [] : await findUsedKeys(store, keys);
  return new Map(rows.map((row) => [nameOfKey(row.environment_id, row.key), row]));
}

/** The answers of a committed flush: one outcome for each unit, in their order. */
export async function answersOf(
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
