/** The least time between two reads that frames ask for, in the long run. */
export const pauseMs = 800;
/** So many are free after a quiet time: what comes alone is shown at once. */
export const freeReads = 3;
/** What comes closer together than this is read together. */
export const togetherMs = 100;

/** When a page may read again that frames keep telling of news; times are of one clock, in milliseconds. */
export class ReadPace {
  #lastAt = Number.NEGATIVE_INFINITY;
  /** When all reads so far would have been made, had each waited for its pause. */
  #paidAt = Number.NEGATIVE_INFINITY;

  waitFrom(now: number): number {
    return Math.max(0, this.#lastAt + togetherMs - now, this.#paidAt - (freeReads - 1) * pauseMs - now);
  }

  read(now: number): void {
    this.#lastAt = now;
    this.#paidAt = Math.max(this.#paidAt, now) + pauseMs;
  }
}
