import { openHolderLimit } from "../../../kit/holder-limit.ts";

interface Waiter {
  mayGo: () => boolean;
  wake: () => void;
}

/** Bounds this node's concurrent calls to all endpoints together, with a share for each environment. */
export class CallSlots {
  readonly #places;
  /** In the order in which they came. */
  readonly #waiting = new Set<Waiter>();

  constructor(most: number) {
    this.#places = openHolderLimit({ most, all: most, what: "calls", whose: "environment" });
  }

  /** What the environment may begin now. */
  free(environmentId: string): number {
    return this.#places.free(environmentId);
  }

  /** Takes a place; what is returned gives it back. */
  use(environmentId: string): () => void {
    const release = this.#places.acquire(environmentId);
    return () => {
      release();
      this.next();
    };
  }

  /** Resolves when the caller may go, and when a function is no longer served. Who was woken calls `next`. */
  changed(mayGo: () => boolean): Promise<void> {
    return new Promise((wake) => this.#waiting.add({ mayGo, wake }));
  }

  /** Wakes the first that may go: all of them would take a job each, and give back all but one. */
  next(): void {
    const first = this.#waiting.values().find(({ mayGo }) => mayGo());
    if (first && this.#waiting.delete(first)) first.wake();
  }

  wakeAll(): void {
    for (const { wake } of this.#waiting) wake();
    this.#waiting.clear();
  }
}
