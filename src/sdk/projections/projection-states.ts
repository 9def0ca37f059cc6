import type { ProjectedEvent } from "./projection-types.ts";

/** The state of one partition in memory. */
export interface HeldState {
  state: unknown;
  /** Of the last event that is folded into it; 0 for none. */
  position: number;
  /** Undefined for a state as it was read. */
  last: ProjectedEvent | undefined;
  /** Length of its JSON as it was last written. */
  length: number;
}

/** A state as it is stored; position 0 where nothing was folded. */
export type StoredState = Pick<HeldState, "state" | "position">;

const lengthMax = 64 * 1024 * 1024;
const readsAtOnce = 16;

/** States of partitions, each read from the store before any fold. Those unused for longest leave first. */
export class PartitionStates {
  readonly #read: (partition: string) => Promise<StoredState>;
  readonly #most: number;
  /** In the order of their last use. */
  readonly #held = new Map<string, HeldState>();
  #length = 0;

  constructor(read: (partition: string) => Promise<StoredState>, most: number) {
    this.#read = read;
    this.#most = most;
  }

  get(partition: string): HeldState | undefined {
    return this.#held.get(partition);
  }

  /** Reads those that are not held, and makes all of them the last used. */
  async want(partitions: ReadonlySet<string>): Promise<void> {
    const missing: string[] = [];
    for (const partition of partitions) {
      const held = this.#held.get(partition);
      if (!held) missing.push(partition);
      else {
        this.#held.delete(partition);
        this.#held.set(partition, held);
      }
    }
    for (let at = 0; at < missing.length; at += readsAtOnce)
      await Promise.all(missing.slice(at, at + readsAtOnce).map((partition) => this.reread(partition)));
  }

  /** Takes a state back to what is stored. */
  async reread(partition: string): Promise<HeldState> {
    this.drop(partition);
    const held = { ...(await this.#read(partition)), last: undefined, length: 0 };
    this.#held.set(partition, held);
    return held;
  }

  wrote(held: HeldState, length: number): void {
    this.#length += length - held.length;
    held.length = length;
  }

  drop(partition: string): void {
    this.#length -= this.#held.get(partition)?.length ?? 0;
    this.#held.delete(partition);
  }

  clear(): void {
    this.#held.clear();
    this.#length = 0;
  }

  /** To be called when everything is saved. */
  trim(): void {
    for (const partition of this.#held.keys()) {
      if (this.#held.size <= this.#most && this.#length <= lengthMax) return;
      this.drop(partition);
    }
  }
}
