/** Calls of one node to endpoints at once. */
const pushCallsMax = 200;

/** Bounds the calls that this node has under way to all endpoints together. */
export class CallSlots {
  #inUse = 0;
  readonly #waiting = new Set<() => void>();

  get free(): number {
    return pushCallsMax - this.#inUse;
  }

  use(): void {
    this.#inUse++;
  }

  release(): void {
    this.#inUse--;
    this.wakeAll();
  }

  /**
   * Resolves when a slot was released, or a function is no longer served: the caller looks again at what it
   * waits for.
   */
  changed(): Promise<void> {
    return new Promise((resolve) => this.#waiting.add(resolve));
  }

  wakeAll(): void {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }
}
