import { Fault } from "./fault.ts";

/** How one item of a flush fared. A flush answers one for each item, in the order of the items. */
export type Outcome<Result> = { value: Result } | { error: unknown };

export interface CombineOptions<Item, Result> {
  /** Shown in metrics and errors: `runs.settle`. */
  name: string;
  /** Lanes flush independently of each other: what is stuck in one does not stop the rest. */
  lanes: number;
  /** From 0 to `lanes - 1`. */
  laneOf: (item: Item) => number;
  /** How much of `itemsMax` and `waitingMax` an item takes; 1 by default. */
  weigh?: (item: Item) => number;
  /** Two items with the same key never share a flush, and go in their order; others may pass the one that waits. */
  keyOf?: (item: Item) => string | undefined;
  itemsMax: number;
  waitingMax: number;
  /** Flushes of one lane that may run at once; above 1, items without a key may settle out of their order. */
  depth?: number;
  flush: (items: readonly Item[]) => Promise<readonly Outcome<Result>[]>;
  /**
   * After a flush that threw and so changed nothing: the parts to try on their own, side by side. Undefined, or a single
   * part, fails the items.
   */
  retrySplit?: (error: unknown, items: readonly Item[]) => readonly (readonly Item[])[] | undefined;
}

export interface CombineCounters {
  flushes: number;
  items: number;
  /** Items of the largest flush so far. */
  largest: number;
  /** Weight of what waits now, in all lanes. */
  waiting: number;
  refused: number;
}

export interface Combiner<Item, Result> {
  readonly name: string;
  /** Rejects with what the item's outcome or its flush failed with, or `resource_exhausted` when too many wait. */
  submit(item: Item): Promise<Result>;
  /** Resolves once nothing waits and nothing is in flight. */
  drain(): Promise<void>;
  counters(): CombineCounters;
}

interface Entry<Item, Result> {
  item: Item;
  weight: number;
  key: string | undefined;
  resolve: (result: Result) => void;
  reject: (error: unknown) => void;
}

interface Lane<Item, Result> {
  waiting: Entry<Item, Result>[];
  inFlight: number;
  keysInFlight: Set<string>;
  planned: boolean;
}

/** A flush looks at most so many times its size down the line for items whose key is free. */
const lookAhead = 4;

/**
 * Brings concurrent callers together: while a flush commits, later arrivals gather for the next. A first caller is
 * flushed at once, together with those of the same microtask.
 */
export function combine<Item, Result>(options: CombineOptions<Item, Result>): Combiner<Item, Result> {
  const { name, laneOf, itemsMax, waitingMax, depth = 1 } = options;
  const lanes = Array.from(
    { length: options.lanes },
    (): Lane<Item, Result> => ({ waiting: [], inFlight: 0, keysInFlight: new Set(), planned: false }),
  );
  const count: CombineCounters = { flushes: 0, items: 0, largest: 0, waiting: 0, refused: 0 };
  const drained: (() => void)[] = [];

  /** The next flush of a lane, taken out of its line. */
  function take(lane: Lane<Item, Result>): Entry<Item, Result>[] {
    const taken: Entry<Item, Result>[] = [];
    const passed: Entry<Item, Result>[] = [];
    // A key that waits is as good as taken: what comes later with it must not pass.
    const keys = new Set(lane.keysInFlight);
    const { waiting } = lane;
    let weight = 0;
    let place = 0;
    for (; place < waiting.length && place < lookAhead * itemsMax; place++) {
      const entry = waiting[place] as Entry<Item, Result>;
      if (entry.key !== undefined && keys.has(entry.key)) {
        passed.push(entry);
        continue;
      }
      if (taken.length > 0 && weight + entry.weight > itemsMax) break;
      if (entry.key !== undefined) keys.add(entry.key);
      weight += entry.weight;
      taken.push(entry);
    }
    lane.waiting = passed.length === 0 ? waiting.slice(place) : passed.concat(waiting.slice(place));
    count.waiting -= weight;
    return taken;
  }

  async function run(entries: readonly Entry<Item, Result>[]): Promise<void> {
    const items = entries.map((entry) => entry.item);
    count.flushes++;
    count.items += items.length;
    count.largest = Math.max(count.largest, items.length);
    let outcomes: readonly Outcome<Result>[];
    try {
      outcomes = await options.flush(items);
    } catch (error) {
      return split(error, entries, items);
    }
    for (const [place, entry] of entries.entries()) {
      const outcome = outcomes[place];
      if (!outcome) entry.reject(new Error(`${name} answered nothing about item ${place}`));
      else if ("error" in outcome) entry.reject(outcome.error);
      else entry.resolve(outcome.value);
    }
  }

  async function split(error: unknown, entries: readonly Entry<Item, Result>[], items: readonly Item[]) {
    let parts: readonly (readonly Item[])[] | undefined;
    try {
      parts = items.length > 1 ? options.retrySplit?.(error, items) : undefined;
    } catch {
      // What the callers need to hear is why the flush failed.
      parts = undefined;
    }
    if (!parts || parts.length < 2) {
      for (const entry of entries) entry.reject(error);
      return;
    }
    const left = new Set(entries);
    const runs = parts.map((part) => {
      const own: Entry<Item, Result>[] = [];
      for (const item of part) {
        for (const entry of left) {
          if (entry.item !== item) continue;
          left.delete(entry);
          own.push(entry);
          break;
        }
      }
      return own;
    });
    for (const entry of left) entry.reject(error);
    await Promise.all(runs.filter((own) => own.length > 0).map(run));
  }

  async function flushNext(lane: Lane<Item, Result>): Promise<void> {
    const entries = take(lane);
    if (entries.length === 0) return;
    const keys = entries.flatMap((entry) => entry.key ?? []);
    lane.inFlight++;
    for (const key of keys) lane.keysInFlight.add(key);
    await run(entries);
    lane.inFlight--;
    for (const key of keys) lane.keysInFlight.delete(key);
    pump(lane);
    if (isEmpty()) for (const done of drained.splice(0)) done();
  }

  function pump(lane: Lane<Item, Result>): void {
    while (lane.waiting.length > 0 && lane.inFlight < depth) {
      const before = lane.inFlight;
      void flushNext(lane);
      // Every key that waits is in flight.
      if (lane.inFlight === before) return;
    }
  }

  const isEmpty = () => lanes.every((lane) => lane.waiting.length === 0 && lane.inFlight === 0);

  return {
    name,
    submit(item) {
      const weight = options.weigh?.(item) ?? 1;
      if (count.waiting > 0 && count.waiting + weight > waitingMax) {
        count.refused++;
        return Promise.reject(
          new Fault("resource_exhausted", "the server is busy: too much waits to be written", {
            headers: { "Retry-After": "1" },
          }),
        );
      }
      return new Promise<Result>((resolve, reject) => {
        const lane = lanes[laneOf(item)];
        if (!lane) throw new Error(`${name} has no lane ${laneOf(item)}`);
        lane.waiting.push({ item, weight, key: options.keyOf?.(item), resolve, reject });
        count.waiting += weight;
        if (lane.planned || lane.inFlight >= depth) return;
        lane.planned = true;
        queueMicrotask(() => {
          lane.planned = false;
          pump(lane);
        });
      });
    },
    drain: () => (isEmpty() ? Promise.resolve() : new Promise((resolve) => void drained.push(resolve))),
    counters: () => ({ ...count }),
  };
}
