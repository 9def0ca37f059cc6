/** How many recent flushes tell how many callers there are. */
const peaksKept = 8;
/** The rate of callers is measured over about this long. */
const rateMs = 100;
/** What the last flush counts for in the mean time of a flush. */
const lastShare = 1 / 8;
/** A flush that took longer met a lock or a pause of the machine, and foretells nothing. */
const tookMsMax = 20;
/** Up to this occupancy no flush waits; from `occupancyBusy` on a flush waits for its whole pace. */
const occupancyIdle = 0.5;
const occupancyBusy = 1;
/**
 * From this occupancy on flushes are large whatever is done. Heavy ones then wait for a half of the callers:
 * the other half is served meanwhile, and the store does not stand still between two flushes.
 */
const occupancyCrowded = 24;
const crowdShare = 0.5;

/**
 * When the next flush of a lane may begin. The lane's occupancy is the rate of its callers times the time of
 * a flush: the share of time the store would spend if each caller had its own flush. While it is low, waiting
 * saves nothing, and each flush begins at once. Above one, callers queue whatever is done, so they gather, at
 * most for the pace. The pace does not change the occupancy, so it cannot swing.
 */
export class FlushPace {
  #beganAt = Number.NEGATIVE_INFINITY;
  /** Callers of the last `rateMs`, the older ones counted for less; of batches their weight. */
  #callers = 0;
  #tookMs = 0;
  #size = 0;
  #isHeavy = false;
  /** How many callers were in each of the last flushes or waited for its end. */
  readonly #peaks: number[] = [];

  /** A flush of `size` callers begins at `now`; with much to write, they count for as many as its weight. */
  began(now: number, size: number, weight = size): void {
    this.#callers = this.#callers * Math.exp((this.#beganAt - now) / rateMs) + Math.max(size, weight);
    this.#beganAt = now;
    this.#size = size;
  }

  /** The last flush is over with `waiting` callers here. A heavy one takes the store longer than the node. */
  ended(now: number, waiting: number, isHeavy = false): void {
    this.#isHeavy = isHeavy;
    this.#peaks.push(this.#size + waiting);
    if (this.#peaks.length > peaksKept) this.#peaks.shift();
    const tookMs = Math.min(tookMsMax, now - this.#beganAt);
    this.#tookMs += (tookMs - this.#tookMs) * lastShare;
  }

  /**
   * How long the next flush still waits while `waiting` callers are here: until this share of as many as
   * there were at once is here, and at most until `paceMs` after the last flush began.
   */
  pauseMs(now: number, waiting: number, paceMs: number, share = 1): number {
    const occupancy = (this.#callers / rateMs) * this.#tookMs;
    const leftMs = this.#beganAt + paceMs * paceShare(occupancy) - now;
    const isHalfEnough = this.#isHeavy && occupancy >= occupancyCrowded;
    const enough = isHalfEnough ? Math.min(share, crowdShare) : share;
    if (!(leftMs > 0) || waiting >= Math.max(...this.#peaks) * enough) return 0;
    // A clock's time may swallow a part of a millisecond, and the lane would ask again without an end.
    return Math.ceil(leftMs);
  }
}

/** How much of its pace a flush waits for, from 0 to 1. */
function paceShare(occupancy: number): number {
  const above = (occupancy - occupancyIdle) / (occupancyBusy - occupancyIdle);
  return Math.min(1, Math.max(0, above));
}

/** One caller's item on its way through a combiner. */
export interface CombineEntry<Item, Result> {
  item: Item;
  weight: number;
  key: string | undefined;
  isAwaited: boolean;
  resolve: (result: Result) => void;
  reject: (error: unknown) => void;
}

/** A flush looks through at most this many times its size for items whose key is free. */
const lookAhead = 4;

/** The queue of one lane. One flush of a lane runs at a time, so that items settle in their order. */
export class CombineLane<Item, Result> {
  /** The group this lane was set apart for; undefined for a shared lane. */
  readonly group: string | undefined;
  waiting: CombineEntry<Item, Result>[] = [];
  isFlushing = false;
  /** Resolves when the callers of its last flush have their answers. */
  settled: Promise<void> = Promise.resolve();
  /** A microtask is about to flush it. */
  isPlanned = false;
  /** Its last flush got stuck. */
  isStuck = false;
  /** Groups of which an item failed alone in the flush that is running. */
  readonly failedAlone = new Set<string>();
  cancelPause: (() => void) | undefined;
  /** When the pause is over. */
  pausedUntil = 0;
  readonly #pace = new FlushPace();

  constructor(group?: string) {
    this.group = group;
  }

  isEmpty(): boolean {
    return this.waiting.length === 0 && !this.isFlushing;
  }

  hasAwaited(): boolean {
    for (const { isAwaited } of this.waiting) if (isAwaited) return true;
    return false;
  }

  /** Removes the next flush's entries: the first up to `itemsMax` and `weightMax`, each key at most once. */
  takeNext(itemsMax: number, weightMax: number): CombineEntry<Item, Result>[] {
    const taken: CombineEntry<Item, Result>[] = [];
    const passed: CombineEntry<Item, Result>[] = [];
    const keys = new Set<string>();
    const { waiting } = this;
    let weight = 0;
    let place = 0;
    for (; place < waiting.length && place < lookAhead * itemsMax; place++) {
      const entry = waiting[place] as CombineEntry<Item, Result>;
      if (entry.key !== undefined && keys.has(entry.key)) {
        passed.push(entry);
        continue;
      }
      if (taken.length >= itemsMax) break;
      if (taken.length > 0 && weight + entry.weight > weightMax) break;
      if (entry.key !== undefined) keys.add(entry.key);
      weight += entry.weight;
      taken.push(entry);
    }
    this.waiting = passed.length === 0 ? waiting.slice(place) : passed.concat(waiting.slice(place));
    return taken;
  }

  /** Notes that a flush of `size` items begins at `now`. */
  began(now: number, size: number, weight: number): void {
    this.isFlushing = true;
    this.#pace.began(now, size, weight);
  }

  ended(now: number, isHeavy = false): void {
    this.isFlushing = false;
    this.#pace.ended(now, this.waiting.length, isHeavy);
  }

  /** How long to wait for further callers before the next flush begins. */
  pauseMs(now: number, paceMs: number, share?: number): number {
    return this.#pace.pauseMs(now, this.waiting.length, paceMs, share);
  }
}
