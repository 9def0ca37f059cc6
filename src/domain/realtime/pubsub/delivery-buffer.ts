import { Fault } from "../../../kit/fault.ts";
import type { Delivery } from "./delivery.ts";
import { deliveriesCharsMax, deliveriesWaitingMax } from "./limits.ts";

/** Where the deliveries of one stream are put. */
export interface Sink {
  /** Ends a stream whose reader does not keep up. */
  push(delivery: Delivery): void;
  /**
   * For one delivery at a time: resolves once the reader has taken it. `isStillHeld` is asked right before
   * that; after a no the delivery is dropped.
   */
  deliver(delivery: Delivery, isStillHeld?: () => boolean): Promise<void>;
  /** Resolves when there is room again; undefined while there is room. */
  full(): Promise<void> | undefined;
  end(fault: Fault): void;
}

const tooSlow = () =>
  new Fault("unavailable", "the reader is too slow: subscribe again with start_after_sequence", {
    headers: { "Retry-After": "1" },
  });

/** All streams of a node, whose unread deliveries share one bound on memory. */
export class UnreadTotal {
  readonly #charsMax: number;
  readonly #buffers = new Set<DeliveryBuffer>();
  #chars = 0;

  constructor(charsMax: number) {
    this.#charsMax = charsMax;
  }

  add(buffer: DeliveryBuffer): void {
    this.#buffers.add(buffer);
  }

  remove(buffer: DeliveryBuffer): void {
    this.#buffers.delete(buffer);
  }

  all(): DeliveryBuffer[] {
    return [...this.#buffers];
  }

  shrink(chars: number): void {
    this.#chars -= chars;
  }

  /** Beyond the bound, the stream with the most unread characters loses them and ends. */
  grow(chars: number): void {
    this.#chars += chars;
    if (this.#chars <= this.#charsMax) return;
    this.all()
      .reduce((most, one) => (one.chars > most.chars ? one : most))
      .cut();
  }
}

/** Deliveries that wait for the reader of one stream. */
export class DeliveryBuffer implements Sink {
  readonly #total: UnreadTotal;
  readonly #waiting: Delivery[] = [];
  /** Characters that the reader has not taken. */
  #chars = 0;
  #fault: Fault | undefined;
  /** Whether the delivery that was given last may still be written. */
  #isStillHeld: (() => boolean) | undefined;
  #wake = () => {};
  /** Resolved when the reader has taken everything. */
  #emptied: PromiseWithResolvers<void> | undefined;

  constructor(total: UnreadTotal) {
    this.#total = total;
    total.add(this);
  }

  get chars(): number {
    return this.#chars;
  }

  push(delivery: Delivery): void {
    if (this.#fault) return;
    this.#waiting.push(delivery);
    const chars = delivery.data.length;
    this.#chars += chars;
    if (this.#chars > deliveriesCharsMax) this.end(tooSlow());
    this.#total.grow(chars);
    if (this.#waiting.length > deliveriesWaitingMax) this.end(tooSlow());
    this.#wake();
  }

  deliver(delivery: Delivery, isStillHeld?: () => boolean): Promise<void> {
    this.#isStillHeld = isStillHeld;
    this.push(delivery);
    return this.#untilEmptied();
  }

  full(): Promise<void> | undefined {
    const hasRoom = this.#waiting.length < deliveriesWaitingMax / 10 && this.#chars < deliveriesCharsMax / 4;
    return hasRoom ? undefined : this.#untilEmptied();
  }

  end(fault: Fault): void {
    this.#fault ??= fault;
    this.#wake();
  }

  /** Drops what waits, and ends the stream. */
  cut(): void {
    this.#total.shrink(this.#chars);
    this.#chars = 0;
    this.#waiting.length = 0;
    this.end(tooSlow());
  }

  /** All that waits; the reader asks `take` for each before it writes it. */
  takeAll(): Delivery[] {
    return this.#waiting.splice(0);
  }

  /** Gives back the room of a delivery. False when it may not be written any more. */
  take(delivery: Delivery): boolean {
    this.#shrink(delivery.data.length);
    return !this.#isStillHeld || this.#isStillHeld();
  }

  /**
   * Called when everything was taken: resolves when there is more, or the signal aborts. Undefined when more
   * came meanwhile. Throws the fault that ended the stream, behind all deliveries that came before it.
   */
  rest(signal: AbortSignal): Promise<void> | undefined {
    if (this.#waiting.length > 0) return undefined;
    this.#emptied?.resolve();
    this.#emptied = undefined;
    if (this.#fault) throw this.#fault;
    return new Promise((resolve) => {
      this.#wake = resolve;
      if (signal.aborted) resolve();
    });
  }

  wake(): void {
    this.#wake();
  }

  /** The reader is gone. */
  close(): void {
    this.#total.remove(this);
    this.#shrink(this.#chars);
  }

  /** A stream that was cut has no characters left to give back. */
  #shrink(chars: number): void {
    const left = Math.min(this.#chars, chars);
    this.#chars -= left;
    this.#total.shrink(left);
  }

  #untilEmptied(): Promise<void> {
    this.#emptied ??= Promise.withResolvers<void>();
    return this.#emptied.promise;
  }
}
