import type { Clock } from "../kit/clock.ts";

/** A read that took longer lately waits for its turn. */
const dearMs = 4;
/** How much of that is still expected after a shorter one. */
const shareKept = 0.75;
/** The next dear one waits as long as the last took, up to this: a request of others takes several turns. */
const restMsMax = 100;
/** Texts that are remembered; the one that was found longest ago is forgotten first. */
const textsMax = 1_000;

const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

/**
 * Reads hold the event loop: of those that take long, one runs at a time and leaves as much time to others,
 * so that ten that come at once do not keep everybody else waiting for all of them.
 */
export class ReadTurns {
  /** By text: how many milliseconds the next such read may take. */
  readonly #dear = new Map<string, number>();
  readonly #clock: Pick<Clock, "elapsed" | "sleep">;
  #last = Promise.resolve();
  #freeAt = 0;

  constructor(clock: Pick<Clock, "elapsed" | "sleep">) {
    this.#clock = clock;
  }

  /** Undefined where the read need not wait. */
  turnOf(text: string): Promise<void> | undefined {
    if (!this.#dear.has(text)) return undefined;
    this.#last = this.#last.then(() => {
      const restMs = this.#freeAt - this.#clock.elapsed();
      return restMs > 0 ? this.#clock.sleep(restMs) : nextTurn();
    });
    return this.#last;
  }

  took(text: string, ms: number): void {
    // The same text reads little and much in turn, by its values.
    const expectedMs = Math.max(ms, (this.#dear.get(text) ?? 0) * shareKept);
    this.#dear.delete(text);
    if (expectedMs <= dearMs) return;
    this.#dear.set(text, expectedMs);
    this.#freeAt = this.#clock.elapsed() + Math.min(restMsMax, ms);
    const [oldest] = this.#dear.keys();
    if (this.#dear.size > textsMax) this.#dear.delete(oldest!);
  }
}
