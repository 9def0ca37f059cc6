import { FlushPace } from "./flush-pace.ts";

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
