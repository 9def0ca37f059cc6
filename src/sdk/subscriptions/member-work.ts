import type { GroupDelivery } from "./group-types.ts";

export interface MemberWorkOptions {
  concurrency: number;
  /** Hands one delivery to the handler and settles it. */
  handle: (delivery: GroupDelivery) => Promise<void>;
  /** Whether a delivery that waits may still be begun. */
  mayBegin: () => boolean;
}

/** The deliveries of a member that wait, and its handlers that run, `concurrency` at most. */
export class MemberWork {
  readonly #options: MemberWorkOptions;
  readonly #running = new Set<Promise<void>>();
  #waiting: GroupDelivery[] = [];
  #makeRoom = () => {};

  constructor(options: MemberWorkOptions) {
    this.#options = options;
  }

  add(delivery: GroupDelivery): void {
    this.#waiting.push(delivery);
    this.#beginNext();
  }

  /** A promise while as many deliveries wait as there are handlers: until it resolves nothing is read. */
  room(): Promise<void> | undefined {
    if (this.#waiting.length <= this.#options.concurrency) return undefined;
    return new Promise((resolve) => {
      this.#makeRoom = resolve;
    });
  }

  /** Resolves the promise of `room` whether there is room or not. */
  endRoom(): void {
    this.#makeRoom();
  }

  /** Drops what was not begun. */
  clear(): void {
    this.#waiting = [];
  }

  async finished(): Promise<void> {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }

  #beginNext(): void {
    const { concurrency, handle, mayBegin } = this.#options;
    while (this.#running.size < concurrency && this.#waiting.length > 0 && mayBegin()) {
      const work = handle(this.#waiting.shift()!).then(() => {
        this.#running.delete(work);
        this.#beginNext();
      });
      this.#running.add(work);
    }
    if (this.#waiting.length <= concurrency) this.#makeRoom();
  }
}
