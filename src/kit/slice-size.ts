import type { Clock } from "./clock.ts";
import { expireSliceMax } from "./limits.ts";

/**
 * A transaction that deletes in the background should block other writers no longer than this; the next slice is sized to
 * fit.
 */
const expireSliceMs = 10;
const expireSliceMin = 10;
/** The least and the longest pause between slices: one that waited for a lock tells nothing of the store. */
const breathMs = 1;
const restMsMax = 1_000;

/** The size of the next slice: half of `rows` when the last one took too long, twice when it was short. */
export function nextSlice(rows: number, tookMs: number): number {
  if (tookMs > expireSliceMs) return Math.max(expireSliceMin, Math.floor(rows / 2));
  return tookMs < expireSliceMs / 4 ? Math.min(expireSliceMax, rows * 2) : rows;
}

/** Fits slices to the time that the last ones took: a run may have one step or ten thousand. */
export class SliceSize {
  readonly #clock: Pick<Clock, "elapsed" | "sleep">;
  #rows = expireSliceMax;
  #tookMs = 0;

  constructor(clock: Pick<Clock, "elapsed" | "sleep">) {
    this.#clock = clock;
  }

  /** Rows that fit into the next transaction. */
  get rows(): number {
    return this.#rows;
  }

  async timed(work: () => Promise<number>): Promise<number> {
    const from = this.#clock.elapsed();
    try {
      const gone = await work();
      this.#tookMs = this.#clock.elapsed() - from;
      this.#rows = nextSlice(this.#rows, this.#tookMs);
      return gone;
    } catch (error) {
      // The same rows may have been too many for one transaction.
      this.#rows = nextSlice(this.#rows, Number.POSITIVE_INFINITY);
      throw error;
    }
  }

  /** Between two slices other writers have the store for as long as the last one took. */
  rest(): Promise<void> {
    const restMs = Math.min(restMsMax, Math.max(breathMs, this.#tookMs));
    this.#tookMs = 0;
    return this.#clock.sleep(restMs);
  }
}
