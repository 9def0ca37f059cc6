import type { Clock } from "./clock.ts";
import { ApartLanes } from "./combine-apart.ts";
import { type CombineEntry, CombineLane } from "./combine-lane.ts";
import { tryAgain } from "./fault.ts";

/** How one item of a flush fared. A flush answers one for each item, in the order of the items. */
export type ItemOutcome<Result> = { value: Result } | { error: unknown };

export interface Pace<Item> {
  clock: Pick<Clock, "elapsed" | "after">;
  ms: number;
  /** Items that a caller waits for make a flush wait no longer than `awaitedMs`. */
  isAwaited?: (item: Item) => boolean;
  awaitedMs?: number;
  /**
   * Which share of the callers that were here at once a flush waits for; 1 by default. With half, the others
   * are served while the flush runs, which pays where a flush costs little compared with its callers.
   */
  share?: number;
}

/**
 * `isHeavy`: such a flush keeps the store for longer than its callers keep the server, and nothing is left to
 * be written. The lane's next flush then begins at once, while the callers are answered.
 */
export type Committed = (isHeavy?: boolean) => void;

export interface CombineOptions<Item, Result> {
  /** Shown in metrics and errors: `runs.settle`. */
  name: string;
  /** Lanes flush independently of each other: what is stuck in one does not stop the rest. */
  lanes: number;
  /** From 0 to `lanes - 1`. */
  laneOf: (item: Item) => number;
  /** How much of `weightMax` and `waitingMax` an item takes; 1 by default. */
  weigh?: (item: Item) => number;
  /**
   * Two items with the same key never share a flush and keep their order; items with other keys may pass the
   * waiting one.
   */
  keyOf?: ((item: Item) => string | undefined) | undefined;
  itemsMax: number;
  /** Most weight of a flush whose items differ in weight; one item may weigh more. Default: `itemsMax`. */
  weightMax?: number | undefined;
  waitingMax: number;
  /**
   * A flush of a busy lane waits until as many callers are here as there were at once, at most until `ms`
   * after the lane's last flush began (`FlushPace`). A single caller, and the first caller after a quiet
   * moment, never waits.
   */
  pace?: Pace<Item>;
  /**
   * Calls `committed` once its writes are durable: an error thrown after that must not make the combiner
   * write them again. Callers get their answers in the order of the flushes.
   */
  flush: (items: readonly Item[], committed: Committed) => Promise<readonly ItemOutcome<Result>[]>;
  /** Called when a flush begins; the function it returns is called when the flush ends. */
  watch?: ((itemCount: number) => (failed: boolean) => void) | undefined;
  /**
   * Asked after a flush that threw and so changed nothing: whether a single item may be the cause. If so, the
   * flush is halved until the bad item fails alone: at most `2 log2 n` more flushes for one bad item, `2n -
   * 2` for any number.
   */
  isOfItem: (error: unknown) => boolean;
  /**
   * Groups of items that may get stuck, such as tenants. After a flush that got stuck, each of its groups
   * flushes in a lane of its own until nothing of it waits: a stuck group stalls the shared lane once, then
   * only itself. The group of an item that failed alone (`isOfItem`) is set apart too. Items with equal keys
   * must be of one group.
   */
  apart?: { groupOf: (item: Item) => string; isStuck: (error: unknown) => boolean } | undefined;
}

export interface CombineCounters {
  flushes: number;
  items: number;
  /** Items of the largest flush so far. */
  largest: number;
  /** Total weight of the items waiting now, in all lanes. */
  waiting: number;
  refused: number;
}

export type Combiner<Item, Result> = ReturnType<typeof combine<Item, Result>>;

/**
 * Group commit: while one flush of a lane commits, later callers gather for the next. A first caller is
 * flushed at once, together with the callers of the same microtask.
 */
export function combine<Item, Result>(options: CombineOptions<Item, Result>) {
  const flushes = new Flushes(options);
  return {
    name: options.name,
    /** Rejects with the error of the item or its flush, or `resource_exhausted` when too many wait. */
    submit: (item: Item) => flushes.submit(item),
    /** Resolves once nothing waits and nothing is in flight. */
    drain: () => flushes.drain(),
    counters: () => ({ ...flushes.count }),
  };
}

class Flushes<Item, Result> {
  readonly count: CombineCounters = { flushes: 0, items: 0, largest: 0, waiting: 0, refused: 0 };
  readonly #options: CombineOptions<Item, Result>;
  readonly #lanes: CombineLane<Item, Result>[];
  readonly #apart: ApartLanes<Item, Result> | undefined;
  readonly #drained: (() => void)[] = [];
  /** Flushes that some caller has no answer of yet. */
  #unsettled = 0;

  constructor(options: CombineOptions<Item, Result>) {
    this.#options = options;
    this.#lanes = Array.from({ length: options.lanes }, () => new CombineLane<Item, Result>());
    this.#apart = options.apart && new ApartLanes(options.apart.groupOf);
  }

  submit(item: Item): Promise<Result> {
    const { weigh, waitingMax, keyOf, pace } = this.#options;
    const weight = weigh?.(item) ?? 1;
    if (this.count.waiting > 0 && this.count.waiting + weight > waitingMax) {
      this.count.refused++;
      return Promise.reject(
        tryAgain("resource_exhausted", "the server is busy: too many writes are waiting"),
      );
    }
    return new Promise<Result>((resolve, reject) => {
      const lane = this.#laneOf(item);
      const isAwaited = pace?.isAwaited?.(item) ?? false;
      lane.waiting.push({ item, weight, key: keyOf?.(item), isAwaited, resolve, reject });
      this.count.waiting += weight;
      if (lane.isPlanned || lane.isFlushing) return;
      lane.isPlanned = true;
      queueMicrotask(() => {
        lane.isPlanned = false;
        this.#pump(lane);
      });
    });
  }

  drain(): Promise<void> {
    return this.#isEmpty() ? Promise.resolve() : new Promise((resolve) => void this.#drained.push(resolve));
  }

  #laneOf(item: Item): CombineLane<Item, Result> {
    const { name, laneOf } = this.#options;
    const lane = this.#apart?.laneOf(item) ?? this.#lanes[laneOf(item)];
    if (!lane) throw new Error(`${name} has no lane ${laneOf(item)}`);
    return lane;
  }

  #isEmpty(): boolean {
    return (
      this.#unsettled === 0 && (this.#apart?.isEmpty() ?? true) && this.#lanes.every((lane) => lane.isEmpty())
    );
  }

  /**
   * Begins the next flush of a lane, unless one is running, more callers are about to come, or too many
   * groups are apart.
   */
  #pump(lane: CombineLane<Item, Result>): void {
    if (lane.waiting.length === 0 || lane.isFlushing || this.#waitsForMore(lane)) return;
    lane.cancelPause?.();
    lane.cancelPause = undefined;
    if (lane.group === undefined || this.#apart!.mayFlush) void this.#flushNext(lane);
  }

  #waitsForMore(lane: CombineLane<Item, Result>): boolean {
    const { pace } = this.#options;
    if (!pace) return false;
    const now = pace.clock.elapsed();
    let leftMs = lane.pauseMs(now, pace.ms, pace.share);
    if (leftMs > 0 && pace.awaitedMs !== undefined && lane.hasAwaited())
      leftMs = lane.pauseMs(now, pace.awaitedMs, pace.share);
    if (leftMs === 0) return false;
    if (lane.cancelPause && lane.pausedUntil <= now + leftMs) return true;
    lane.cancelPause?.();
    lane.pausedUntil = now + leftMs;
    lane.cancelPause = pace.clock.after(leftMs, () => {
      lane.cancelPause = undefined;
      this.#pump(lane);
    });
    return true;
  }

  #now(): number {
    return this.#options.pace?.clock.elapsed() ?? 0;
  }

  async #flushNext(lane: CombineLane<Item, Result>): Promise<void> {
    const apart = this.#apart;
    const { itemsMax, weightMax = itemsMax } = this.#options;
    const entries = lane.takeNext(itemsMax, weightMax);
    const weight = weightOf(entries);
    this.count.waiting -= weight;
    lane.began(this.#now(), entries.length, weight);
    if (lane.group !== undefined) apart!.began();
    this.#unsettled++;
    let isFree = false;
    const free = (isHeavy?: boolean) => {
      isFree = true;
      lane.ended(this.#now(), isHeavy);
    };
    const before = lane.settled;
    lane.settled = this.#run(entries, lane, {
      before,
      committed: (isHeavy) => {
        if (!isHeavy || isFree || lane.group !== undefined) return;
        free(isHeavy);
        this.#pump(lane);
      },
    });
    await lane.settled;
    this.#unsettled--;
    if (!isFree) {
      free();
      apart?.setFailedApart(lane);
    }
    if (lane.group !== undefined) apart!.ended(lane);
    else this.#pump(lane);
    if (apart) for (const own of apart.lanes()) this.#pump(own);
    if (this.#isEmpty()) for (const done of this.#drained.splice(0)) done();
  }

  /** Flushes the entries and settles each; never rejects. */
  async #run(
    entries: readonly CombineEntry<Item, Result>[],
    lane: CombineLane<Item, Result>,
    { before, committed }: { before?: Promise<void>; committed?: Committed } = {},
  ): Promise<void> {
    const { name, flush, watch } = this.#options;
    const items = entries.map((entry) => entry.item);
    this.count.flushes++;
    this.count.items += items.length;
    this.count.largest = Math.max(this.count.largest, items.length);
    const over = watch?.(items.length);
    let outcomes: readonly ItemOutcome<Result>[];
    let isCommitted = false;
    try {
      const flushed = flush(items, (isHeavy) => {
        isCommitted = true;
        committed?.(isHeavy);
      });
      outcomes = await flushed.finally(() => before);
    } catch (error) {
      over?.(true);
      lane.isStuck = false;
      if (isCommitted) for (const entry of entries) entry.reject(error);
      else if (this.#apart && holds(this.#options.apart?.isStuck, error))
        this.#goOnApart(error, entries, lane);
      else await this.#splitAfter(error, entries, lane);
      return;
    }
    over?.(false);
    lane.isStuck = false;
    for (const [place, entry] of entries.entries()) {
      const outcome = outcomes[place];
      if (!outcome) entry.reject(new Error(`${name} answered nothing about item ${place}`));
      else if ("error" in outcome) entry.reject(outcome.error);
      else entry.resolve(outcome.value);
    }
  }

  #goOnApart(
    error: unknown,
    entries: readonly CombineEntry<Item, Result>[],
    lane: CombineLane<Item, Result>,
  ): void {
    if (this.#apart!.setStuckApart(lane, entries)) this.count.waiting += weightOf(entries);
    else for (const entry of entries) entry.reject(error);
  }

  /**
   * Flushes one half after the other: a flush that fails holds one connection of the store, like any other.
   */
  async #splitAfter(
    error: unknown,
    entries: readonly CombineEntry<Item, Result>[],
    lane: CombineLane<Item, Result>,
  ) {
    const isOfItem = holds(this.#options.isOfItem, error);
    if (!isOfItem || entries.length === 1) {
      for (const entry of entries) entry.reject(error);
      if (isOfItem && this.#apart && lane.group === undefined)
        lane.failedAlone.add(this.#apart.groupOf(entries[0]!));
      return;
    }
    const middle = Math.ceil(entries.length / 2);
    await this.#run(entries.slice(0, middle), lane);
    await this.#run(entries.slice(middle), lane);
  }
}

function weightOf(entries: readonly { weight: number }[]): number {
  let weight = 0;
  for (const entry of entries) weight += entry.weight;
  return weight;
}

/**
 * False when the question itself throws: callers must learn why their flush failed, not why the question did.
 */
function holds(question: ((error: unknown) => boolean) | undefined, error: unknown): boolean {
  try {
    return question?.(error) ?? false;
  } catch {
    return false;
  }
}
