import { deferred } from "../wire/deferred.ts";
import type { Arrived } from "./subscription-ways.ts";

/** Deliveries that have arrived and that the reader has not taken, in their order. */
export class UnreadDeliveries {
  readonly #keptMax: number;
  #arrived: Arrived[] = [];
  #takenCount = 0;
  #wake = () => {};

  /** Taken deliveries kept before the list is cut, so that taking one does not move the others each time. */
  constructor(keptMax: number) {
    this.#keptMax = keptMax;
  }

  get count(): number {
    return this.#arrived.length - this.#takenCount;
  }

  add(one: Arrived): void {
    this.#arrived.push(one);
    this.#wake();
  }

  take(): Arrived | undefined {
    if (this.count === 0) return undefined;
    const one = this.#arrived[this.#takenCount++];
    if (this.#takenCount > this.#keptMax) {
      this.#arrived = this.#arrived.slice(this.#takenCount);
      this.#takenCount = 0;
    }
    return one;
  }

  /** Resolves when a delivery is added, or at `wake`. */
  changed(): Promise<void> {
    const more = deferred();
    this.#wake = more.resolve;
    return more.promise;
  }

  wake(): void {
    this.#wake();
  }
}
