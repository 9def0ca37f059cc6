import type { Clock } from "./clock.ts";
import { expireSliceMax } from "./limits.ts";

/** Deleting a slice should delay other writers no longer than this; the next slice is sized to fit. */
const expireSliceMs = 10;
const expireSliceMin = 10;
/** The least and the longest pause between slices: one that waited for a lock tells nothing of the store. */
const breathMs = 1;
const restMsMax = 1_000;

interface TriedSlice {
  rows: number;
  tookMs: number;
}

/** It took too long, and a larger one about as long: the time goes to round trips, and not to the rows. */
const isInVain = ({ rows, tookMs }: TriedSlice, before: TriedSlice): boolean =>
  tookMs > expireSliceMs && Number.isFinite(tookMs) && before.rows > rows && tookMs > before.tookMs * 0.75;

/**
 * The size of the next slice: half of `rows` when the last one took too long, twice when it was short, or
 * when halving it had gained next to nothing.
 */
export function nextSlice(rows: number, tookMs: number, before: TriedSlice = { rows, tookMs }): number {
  const isLarger = tookMs < expireSliceMs / 4 || isInVain({ rows, tookMs }, before);
  if (tookMs > expireSliceMs && !isLarger) return Math.max(expireSliceMin, Math.floor(rows / 2));
  return isLarger ? Math.min(expireSliceMax, rows * 2) : rows;
}

/** A store's `write`, or a leader's. */
type Write<Session> = <T>(work: (session: Session) => Promise<T>) => Promise<T>;

/** Fits slices to the time that the last ones took: a run may have one step or ten thousand. */
export class SliceSize {
  readonly #clock: Pick<Clock, "elapsed" | "sleep">;
  #rows = expireSliceMax;
  #tookMs = 0;
  #before: TriedSlice | undefined;

  constructor(clock: Pick<Clock, "elapsed" | "sleep">) {
    this.#clock = clock;
  }

  /** Rows that fit into the next transaction. */
  get rows(): number {
    return this.#rows;
  }

  /**
   * Deletes a slice in a transaction of its own. Its size goes by the deletion, and not by what begins and
   * commits the transaction: that takes as long for ten rows as for two hundred, and on a slow disk longer
   * than a slice may. A deletion of many round trips has the same fault, so it should have few.
   */
  async delete<Session>(
    write: Write<Session>,
    deletion: (session: Session) => Promise<number>,
  ): Promise<number> {
    const from = this.#clock.elapsed();
    // After a failure the same rows may have been too many for one transaction.
    let deletedMs = Number.POSITIVE_INFINITY;
    try {
      const [gone, ms] = await write(async (session) => {
        const begunAt = this.#clock.elapsed();
        return [await deletion(session), this.#clock.elapsed() - begunAt];
      });
      deletedMs = ms;
      return gone;
    } finally {
      const rows = this.#rows;
      this.#rows = nextSlice(rows, deletedMs, this.#before);
      this.#before = { rows, tookMs: deletedMs };
      this.#tookMs = this.#clock.elapsed() - from;
    }
  }

  /** Between slices other writers have the store for as long as the last took, its commit included. */
  rest(): Promise<void> {
    const restMs = Math.min(restMsMax, Math.max(breathMs, this.#tookMs));
    this.#tookMs = 0;
    return this.#clock.sleep(restMs);
  }
}
