import type { Clock } from "./clock.ts";
import { Fault } from "./fault.ts";

/** How one item of a flush fared. A flush answers one for each item, in the order of the items. */
export type ItemOutcome<Result> = { value: Result } | { error: unknown };

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
  /**
   * Callers that lately came together are waited for, at most until `ms` after the lane's last flush began. A caller that
   * comes alone, and the first after a quiet moment, never waits.
   */
  pace?: { clock: Pick<Clock, "elapsed" | "after">; ms: number };
  /** Flushes of one lane that may run at once; above 1, items without a key may settle out of their order. */
  depth?: number;
  /** Calls `committed` once what it wrote stands: what it throws behind that must not make it write again. */
  flush: (items: readonly Item[], committed: () => void) => Promise<readonly ItemOutcome<Result>[]>;
  /** Told of every flush that begins; what it answers is told of its end. */
  watch?: ((itemCount: number) => (failed: boolean) => void) | undefined;
  /**
   * After a flush that threw and so changed nothing: whether a single item may be why. Then its halves are tried one after
   * the other, and the halves of a half that fails so too: the bad item fails alone after at most `2 log2 n` flushes more,
   * and n items after at most `2n - 2`, however many of them are bad.
   */
  isOfItem: (error: unknown) => boolean;
  /**
   * Groups of items that may get stuck, each for itself. After a flush that failed so, each of its groups goes on alone,
   * beside its lane, until it has flushed all that waits; a stuck one therefore stalls its lane once and then itself only.
   * So does the group of an item that failed alone (`isOfItem`): a caller that sends many of those holds up only itself.
   * Items with equal keys must be of one group.
   */
  apart?: { groupOf: (item: Item) => string; isStuck: (error: unknown) => boolean };
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

interface CombineLane<Item, Result> {
  /** The group that this lane is for, when it was set apart. */
  group: string | undefined;
  /** Its last flush got stuck. */
  stuck: boolean;
  /** Groups of which an item failed alone in the flush that is under way. */
  failedAlone: Set<string>;
  waiting: Entry<Item, Result>[];
  inFlight: number;
  keysInFlight: Set<string>;
  planned: boolean;
  /** Of `clock.elapsed()`: when its last flush began. */
  beganAt: number;
  /** Sizes of its last flushes; what lately came together is worth waiting for. */
  sizes: number[];
  cancelPause: (() => void) | undefined;
}

/** Flushes that are looked back on for how many callers come together. */
const sizesKept = 32;
/** A flush looks at most so many times its size down the line for items whose key is free. */
const lookAhead = 4;
/** Flushes of groups set apart that may run at once: the stuck among them must not take every connection. */
const apartInFlightMax = 4;
/** Groups that stay apart while nothing of them waits. */
const apartIdleMax = 1_000;

/**
 * Brings concurrent callers together: while a flush commits, later arrivals gather for the next. A first caller is
 * flushed at once, together with those of the same microtask.
 */
export function combine<Item, Result>(options: CombineOptions<Item, Result>): Combiner<Item, Result> {
  const { name, laneOf, itemsMax, waitingMax, depth = 1, apart } = options;
  const newLane = (group?: string): CombineLane<Item, Result> => ({
    group,
    stuck: false,
    failedAlone: new Set(),
    waiting: [],
    inFlight: 0,
    keysInFlight: new Set(),
    planned: false,
    beganAt: Number.NEGATIVE_INFINITY,
    sizes: [],
    cancelPause: undefined,
  });
  const lanes = Array.from({ length: options.lanes }, () => newLane());
  /** Lanes of groups set apart; the one that was longest ago in trouble comes first. */
  const lanesApart = new Map<string, CombineLane<Item, Result>>();
  let apartInFlight = 0;
  const count: CombineCounters = { flushes: 0, items: 0, largest: 0, waiting: 0, refused: 0 };
  const drained: (() => void)[] = [];

  /** The next flush of a lane, taken out of its line. */
  function nextFlush(lane: CombineLane<Item, Result>): Entry<Item, Result>[] {
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

  async function run(
    entries: readonly Entry<Item, Result>[],
    lane: CombineLane<Item, Result>,
  ): Promise<void> {
    const items = entries.map((entry) => entry.item);
    count.flushes++;
    count.items += items.length;
    count.largest = Math.max(count.largest, items.length);
    const over = options.watch?.(items.length);
    let outcomes: readonly ItemOutcome<Result>[];
    let isCommitted = false;
    try {
      outcomes = await options.flush(items, () => {
        isCommitted = true;
      });
    } catch (error) {
      over?.(true);
      if (isCommitted) {
        lane.stuck = false;
        for (const entry of entries) entry.reject(error);
        return;
      }
      if (isStuck(error)) return setApart(error, entries, lane);
      lane.stuck = false;
      return split(error, entries, lane);
    }
    over?.(false);
    lane.stuck = false;
    for (const [place, entry] of entries.entries()) {
      const outcome = outcomes[place];
      if (!outcome) entry.reject(new Error(`${name} answered nothing about item ${place}`));
      else if ("error" in outcome) entry.reject(outcome.error);
      else entry.resolve(outcome.value);
    }
  }

  /** What the callers need to hear is why their flush failed, also when the question about it throws. */
  function holdsFor(about: ((error: unknown) => boolean) | undefined, error: unknown): boolean {
    try {
      return about?.(error) ?? false;
    } catch {
      return false;
    }
  }
  const isStuck = (error: unknown) => holdsFor(apart?.isStuck, error);

  /** What waits in a lane of groups that were set apart goes to their own lanes. */
  function moveApart(lane: CombineLane<Item, Result>, waiting: readonly Entry<Item, Result>[]): void {
    lane.waiting = [];
    for (const entry of waiting) {
      const own = lanesApart.get(apart!.groupOf(entry.item)) ?? lane;
      own.waiting.push(entry);
    }
    for (const [group, { waiting, inFlight }] of lanesApart) {
      if (lanesApart.size <= apartIdleMax) break;
      if (waiting.length === 0 && inFlight === 0) lanesApart.delete(group);
    }
  }

  /** Once no flush of the lane still holds what the group sent before: else its items could settle out of their order. */
  function setFailedApart(lane: CombineLane<Item, Result>): void {
    if (lane.failedAlone.size === 0 || lane.inFlight > 0) return;
    for (const group of lane.failedAlone) if (!lanesApart.has(group)) lanesApart.set(group, newLane(group));
    lane.failedAlone.clear();
    moveApart(lane, lane.waiting);
  }

  /** The groups of a flush that got stuck go on alone, each followed by what waits of it; a group that did so fails. */
  function setApart(
    error: unknown,
    entries: readonly Entry<Item, Result>[],
    lane: CombineLane<Item, Result>,
  ): void {
    const groupOf = (entry: Entry<Item, Result>) => apart!.groupOf(entry.item);
    const groups = new Set(entries.map(groupOf));
    if (groups.size === 1) for (const entry of entries) entry.reject(error);
    for (const group of groups) {
      const own = lanesApart.get(group) ?? newLane(group);
      own.stuck = groups.size === 1;
      // Behind the others: those that are not stuck are done first.
      lanesApart.delete(group);
      lanesApart.set(group, own);
    }
    if (lane.group !== undefined) return;
    if (groups.size > 1) count.waiting += entries.reduce((sum, entry) => sum + entry.weight, 0);
    moveApart(lane, groups.size === 1 ? lane.waiting : [...entries, ...lane.waiting]);
  }

  /** One half after the other: a flush that fails holds one connection of the store, like any other. */
  async function split(
    error: unknown,
    entries: readonly Entry<Item, Result>[],
    lane: CombineLane<Item, Result>,
  ) {
    const isOfItem = holdsFor(options.isOfItem, error);
    if (!isOfItem || entries.length === 1) {
      for (const entry of entries) entry.reject(error);
      if (isOfItem && apart && lane.group === undefined)
        lane.failedAlone.add(apart.groupOf(entries[0]!.item));
      return;
    }
    const middle = Math.ceil(entries.length / 2);
    await run(entries.slice(0, middle), lane);
    await run(entries.slice(middle), lane);
  }

  async function flushNext(lane: CombineLane<Item, Result>): Promise<void> {
    const entries = nextFlush(lane);
    if (entries.length === 0) return;
    const keys = entries.flatMap((entry) => entry.key ?? []);
    const alone = lane.group === undefined ? 0 : 1;
    lane.beganAt = options.pace?.clock.elapsed() ?? 0;
    lane.sizes.push(entries.length);
    if (lane.sizes.length > sizesKept) lane.sizes.shift();
    lane.inFlight++;
    apartInFlight += alone;
    for (const key of keys) lane.keysInFlight.add(key);
    await run(entries, lane);
    lane.inFlight--;
    apartInFlight -= alone;
    for (const key of keys) lane.keysInFlight.delete(key);
    setFailedApart(lane);
    // What comes of its group from now on goes with the others again.
    if (lane.group !== undefined && !lane.stuck && lane.waiting.length === 0) lanesApart.delete(lane.group);
    if (lane.group === undefined) pump(lane);
    for (const own of lanesApart.values()) pump(own);
    if (isEmpty()) for (const done of drained.splice(0)) done();
  }

  /** Whether more are about to come: then the flush begins with them, or when the pace is over. */
  function waitsForMore(lane: CombineLane<Item, Result>): boolean {
    const { pace } = options;
    if (!pace || lane.waiting.length >= Math.max(1, ...lane.sizes)) return false;
    const leftMs = lane.beganAt + pace.ms - pace.clock.elapsed();
    if (leftMs <= 0) return false;
    lane.cancelPause ??= pace.clock.after(leftMs, () => {
      lane.cancelPause = undefined;
      pump(lane);
    });
    return true;
  }

  function pump(lane: CombineLane<Item, Result>): void {
    const isApart = lane.group !== undefined;
    if (lane.waiting.length > 0 && lane.inFlight === 0) {
      if (waitsForMore(lane)) return;
      lane.cancelPause?.();
      lane.cancelPause = undefined;
    }
    while (lane.waiting.length > 0 && lane.inFlight < (isApart ? 1 : depth)) {
      if (isApart && apartInFlight >= apartInFlightMax) return;
      const before = lane.inFlight;
      void flushNext(lane);
      // Every key that waits is in flight.
      if (lane.inFlight === before) return;
    }
  }

  const isEmpty = () =>
    apartInFlight === 0 &&
    [...lanes, ...lanesApart.values()].every((lane) => lane.waiting.length === 0 && lane.inFlight === 0);

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
        const lane = (apart && lanesApart.get(apart.groupOf(item))) ?? lanes[laneOf(item)];
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
