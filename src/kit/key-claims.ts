import { Fault, invalid, tryAgain } from "./fault.ts";
import { idempotencyKeyBytesMax } from "./limits.ts";

/**
 * Of body and header, which must not differ. What is stored is in an index, whose rows are bounded in bytes.
 */
export function keyOf(bodyKey: string | undefined, headerKey: string | undefined, at = ""): string | null {
  const field = `${at}idempotencyKey`;
  if (bodyKey && headerKey && bodyKey !== headerKey)
    throw invalid(field, "differs from the header Idempotency-Key");
  if (bodyKey) return legalKey(field, bodyKey);
  return headerKey ? legalKey("Idempotency-Key", headerKey) : null;
}

function legalKey(field: string, key: string): string {
  if (Buffer.byteLength(key) > idempotencyKeyBytesMax)
    throw invalid(field, `at most ${idempotencyKeyBytesMax} bytes`);
  if (/\p{Cc}/u.test(key) || !key.isWellFormed()) throw invalid(field, "must not contain control characters");
  return key;
}

/**
 * Stands before keys that the server makes, of slots and of steps, where they are stored. No caller can send
 * it (see `keyOf`), so none can take such a key. Events show their keys without it.
 */
export const ownKeyMark = "\u0001";

/** Begins the server's keys of webhooks. */
export const webhookKeyStart = "webhook:";

export const storedKey = ({
  idempotencyKey,
  ownKey,
}: {
  idempotencyKey: string | null;
  ownKey?: true | undefined;
}): string | null => (ownKey && idempotencyKey !== null ? ownKeyMark + idempotencyKey : idempotencyKey);

/**
 * One key means one fact: it cannot name an emit and an invoke, or two functions. `at` is the
 * place in a batch: `events[3].`.
 */
export const keyReused = (key: string, at = ""): Fault =>
  new Fault(
    "already_exists",
    `${at === "" ? "" : `${at.slice(0, -1)}: `}idempotency key "${key.slice(0, 80)}" was used for another operation`,
    { field: `${at}idempotencyKey` },
  );

/** One item of a unit, with its idempotency key. */
export interface Keyed {
  environmentId: string;
  /** As it is stored; null for none. */
  key: string | null;
  /**
   * What the key is used for, stored as `idempotency_keys.function_id`: every use of a key must have the
   * same.
   */
  use: string | null;
  /** Its place in the caller's batch: `events[3].`; empty for an item of its own. */
  at: string;
  /** What follows it depends on whether it is written: that is decided before the flush, as in a batch. */
  isOrdered?: boolean;
}

/** The stored first use of a key. */
export interface KeyUseRow {
  environment_id: string;
  key: string;
  function_id: string | null;
}

/** What happens to the units of a flush. */
export interface KeyClaims<Item extends Keyed, Row extends KeyUseRow> {
  /** To be written, in order. */
  written: Item[];
  /**
   * Batches and ordered items were decided on the assumption that these items get their keys. If one does
   * not, the flush must roll back.
   */
  bound: ReadonlySet<Item>;
  /** Items that repeat an earlier item of the same flush, with that item. */
  twins: ReadonlyMap<Item, Item>;
  /** Items that repeat a stored use of their key. */
  repeats: ReadonlyMap<Item, Row>;
  /** Refused units by their place: one of their keys was used for something else. */
  refused: ReadonlyMap<number, Fault>;
}

/** Mark that a flush raises when a bound item did not get its key: read the stored uses and decide again. */
export const lostKeys = "keys:";

/** Refuses a flush whose keys were used by others in every try; its units are then tried alone. */
export const contended = (): Fault =>
  tryAgain("unavailable", "other requests are using the same idempotency keys, try again");

export const nameOfKey = (environmentId: string, key: string): string => `${environmentId}\n${key}`;

/**
 * Decides which items are written, in order of arrival. A key counts as free unless `used` has it; its first
 * item gets it. A batch is written whole or not at all. Single items that are not ordered are left to the
 * store, which decides the same way for each, so nothing is computed when nothing else carries a key.
 * `admit` is asked about what a unit would write, in order; a unit that it refuses gets no key.
 */
export function claimKeys<Item extends Keyed, Row extends KeyUseRow>(
  units: readonly (readonly Item[])[],
  used: ReadonlyMap<string, Row> = new Map(),
  admit?: (items: readonly Item[]) => Fault | undefined,
): KeyClaims<Item, Row> {
  if (!admit && !units.some((items) => isDecided(items) && items.some(({ key }) => key !== null)))
    return {
      written: units.flat(),
      bound: new Set(),
      twins: new Map(),
      repeats: new Map(),
      refused: new Map(),
    };
  const holders = new Map<string, Item>();
  const written: Item[] = [];
  const bound = new Set<Item>();
  const twins = new Map<Item, Item>();
  const repeats = new Map<Item, Row>();
  const refused = new Map<number, Fault>();
  for (const [place, items] of units.entries()) {
    if (!isDecided(items)) {
      const [item] = items as [Item];
      if (item.key !== null) {
        const name = nameOfKey(item.environmentId, item.key);
        if (!holders.has(name)) holders.set(name, item);
      }
      written.push(item);
      continue;
    }
    const mine = claimForBatch(items, { used, holders });
    // The decision assumed that the other unit's item gets its key.
    for (const item of mine.relied) bound.add(item);
    const fault = mine.fault ?? admit?.(mine.written);
    if (fault) {
      refused.set(place, fault);
      continue;
    }
    for (const [name, item] of mine.claimed) {
      holders.set(name, item);
      if (mine.written.length > 1 || item.isOrdered) bound.add(item);
    }
    for (const [item, first] of mine.twins) twins.set(item, first);
    for (const [item, row] of mine.repeats) repeats.set(item, row);
    written.push(...mine.written);
  }
  return { written, bound, twins, repeats, refused };
}

const isDecided = (items: readonly Keyed[]): boolean => items.length !== 1 || items[0]!.isOrdered === true;

function claimForBatch<Item extends Keyed, Row extends KeyUseRow>(
  items: readonly Item[],
  { used, holders }: { used: ReadonlyMap<string, Row>; holders: ReadonlyMap<string, Item> },
) {
  const claimed = new Map<string, Item>();
  const relied: Item[] = [];
  const twins = new Map<Item, Item>();
  const repeats = new Map<Item, Row>();
  const written: Item[] = [];
  let fault: Fault | undefined;
  for (const item of items) {
    if (item.key === null) {
      written.push(item);
      continue;
    }
    const name = nameOfKey(item.environmentId, item.key);
    const row = used.get(name);
    const other = row ? undefined : holders.get(name);
    if (other) relied.push(other);
    const first = row ? undefined : (other ?? claimed.get(name));
    const use = row ? row.function_id : first?.use;
    if (use === undefined) {
      claimed.set(name, item);
      written.push(item);
    } else if (use !== item.use) {
      fault = keyReused(item.key, item.at);
      break;
    } else if (row) repeats.set(item, row);
    else twins.set(item, first!);
  }
  return { claimed, relied, twins, repeats, written, fault };
}
