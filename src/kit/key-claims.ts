import { type Fault, tryAgain } from "./fault.ts";
import { keyReused } from "./idempotency-key.ts";

/** One item of a unit, with what its key stands for. */
export interface Keyed {
  environmentId: string;
  /** As it is stored; null for none. */
  key: string | null;
  /** What every use of the key must agree on; see `idempotency_keys.function_id`. */
  use: string | null;
  /** Its place in the caller's batch: `events[3].`; empty for an item of its own. */
  at: string;
}

/** What a key was used for, as the store says. */
export interface KeyUseRow {
  environment_id: string;
  key: string;
  function_id: string | null;
}

/** What becomes of the units that share a flush. */
export interface KeyClaims<Item extends Keyed, Row extends KeyUseRow> {
  /** To be written, in order. */
  written: Item[];
  /** What was decided for batches holds only if these get their keys; when one does not, nothing may be written. */
  bound: ReadonlySet<Item>;
  /** Items that repeat an earlier one of the same flush. */
  twins: ReadonlyMap<Item, Item>;
  /** Items that repeat what the store knows. */
  repeats: ReadonlyMap<Item, Row>;
  /** By the place of the unit: all of it is refused, for one of its keys names something else. */
  refused: ReadonlyMap<number, Fault>;
}

/** Raised when a key that a batch depends on turned out to be used: look at what it was used for, and decide again. */
export const lostKeys = "keys:";

/** When others use keys of a flush faster than it is decided: each of its units then tries alone. */
export const contended = (): Fault =>
  tryAgain("unavailable", "other requests are using the same idempotency keys, try again");

export const nameOfKey = (environmentId: string, key: string): string => `${environmentId}\n${key}`;

/**
 * Decides in the order of arrival, as if every key that nobody is known to have used were free: of one key the first
 * stands, and a batch is written whole or not at all. Items on their own are left to the store, which does the same for
 * them; so the decision costs nothing where no batch carries a key.
 */
export function claimKeys<Item extends Keyed, Row extends KeyUseRow>(
  units: readonly (readonly Item[])[],
  used: ReadonlyMap<string, Row> = new Map(),
): KeyClaims<Item, Row> {
  if (!units.some((items) => items.length > 1 && items.some(({ key }) => key !== null)))
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
    if (items.length === 1) {
      const [item] = items as [Item];
      if (item.key !== null) {
        const name = nameOfKey(item.environmentId, item.key);
        if (!holders.has(name)) holders.set(name, item);
      }
      written.push(item);
      continue;
    }
    const mine = claimForBatch(items, { used, holders });
    // Whatever came of a key that another unit holds: it was decided as if that one gets it.
    for (const item of mine.relied) bound.add(item);
    if (mine.fault) {
      refused.set(place, mine.fault);
      continue;
    }
    for (const [name, item] of mine.claimed) {
      holders.set(name, item);
      if (mine.written.length > 1) bound.add(item);
    }
    for (const [item, first] of mine.twins) twins.set(item, first);
    for (const [item, row] of mine.repeats) repeats.set(item, row);
    written.push(...mine.written);
  }
  return { written, bound, twins, repeats, refused };
}

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
