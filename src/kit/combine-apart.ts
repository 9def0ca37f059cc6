import { type CombineEntry, CombineLane } from "./combine-lane.ts";

/** Flushes of groups set apart that may run at once: stuck ones must not take every connection. */
const inFlightMax = 4;
/** Lanes of groups with nothing waiting that are kept. */
const idleMax = 1_000;

/** The groups of a combiner that were set apart after trouble, each with a lane of its own. */
export class ApartLanes<Item, Result> {
  readonly #groupOf: (item: Item) => string;
  /** Ordered by their last trouble: the group whose trouble is longest ago comes first. */
  readonly #lanes = new Map<string, CombineLane<Item, Result>>();
  #inFlight = 0;

  constructor(groupOf: (item: Item) => string) {
    this.#groupOf = groupOf;
  }

  groupOf(entry: CombineEntry<Item, Result>): string {
    return this.#groupOf(entry.item);
  }

  laneOf(item: Item): CombineLane<Item, Result> | undefined {
    return this.#lanes.size === 0 ? undefined : this.#lanes.get(this.#groupOf(item));
  }

  lanes(): Iterable<CombineLane<Item, Result>> {
    return this.#lanes.values();
  }

  get mayFlush(): boolean {
    return this.#inFlight < inFlightMax;
  }

  began(): void {
    this.#inFlight++;
  }

  /** New items of a group whose lane is empty and not stuck join the shared lanes again. */
  ended(lane: CombineLane<Item, Result>): void {
    this.#inFlight--;
    if (!lane.isStuck && lane.waiting.length === 0) this.#lanes.delete(lane.group!);
  }

  isEmpty(): boolean {
    if (this.#inFlight > 0) return false;
    for (const lane of this.#lanes.values()) if (!lane.isEmpty()) return false;
    return true;
  }

  /**
   * After a flush of `lane` that got stuck: gives each of its groups a lane. The entries of a flush of
   * several groups go on in those lanes; answers false for a flush of one group, whose entries fail.
   */
  setStuckApart(lane: CombineLane<Item, Result>, entries: readonly CombineEntry<Item, Result>[]): boolean {
    const groups = new Set(entries.map((entry) => this.groupOf(entry)));
    const isRetried = groups.size > 1;
    for (const group of groups) {
      const own = this.#lanes.get(group) ?? new CombineLane<Item, Result>(group);
      own.isStuck = !isRetried;
      // Behind the others: those that are not stuck are done first.
      this.#lanes.delete(group);
      this.#lanes.set(group, own);
    }
    if (lane.group === undefined)
      this.#moveFrom(lane, isRetried ? [...entries, ...lane.waiting] : lane.waiting);
    return isRetried;
  }

  /**
   * Sets the groups apart of which an item failed alone. Only between flushes: with one running, what the
   * group sent before could settle after what it sends now.
   */
  setFailedApart(lane: CombineLane<Item, Result>): void {
    if (lane.failedAlone.size === 0) return;
    for (const group of lane.failedAlone)
      if (!this.#lanes.has(group)) this.#lanes.set(group, new CombineLane<Item, Result>(group));
    lane.failedAlone.clear();
    this.#moveFrom(lane, lane.waiting);
  }

  /** Moves the entries of groups with a lane of their own there; the others stay in `lane`. */
  #moveFrom(lane: CombineLane<Item, Result>, entries: readonly CombineEntry<Item, Result>[]): void {
    lane.waiting = [];
    for (const entry of entries) (this.#lanes.get(this.groupOf(entry)) ?? lane).waiting.push(entry);
    for (const [group, own] of this.#lanes) {
      if (this.#lanes.size <= idleMax) break;
      if (own.isEmpty()) this.#lanes.delete(group);
    }
  }
}
