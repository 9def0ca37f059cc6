/** The least time between two reads that frames ask for, in the long run. */
export const pauseMs = 800;
/** So many are free after a quiet time: what comes alone is shown at once. */
export const freeReads = 3;
/** What comes closer together than this is read together. */
export const togetherMs = 100;
/** A list that is slow to read is read less often: it keeps the server busy a fifth of the time at most. */
export const restShare = 4;

/** When a page may read again that frames keep telling of news; times are of one clock, in milliseconds. */
export class ReadPace {
  #beganAt = Number.NEGATIVE_INFINITY;
  /** When all reads so far would have been made, had each waited for its pause. */
  #paidAt = Number.NEGATIVE_INFINITY;

  waitFrom(now: number): number {
    return Math.max(0, this.#beganAt + togetherMs - now, this.#paidAt - (freeReads - 1) * pauseMs - now);
  }

  began(now: number): void {
    this.#beganAt = now;
    this.#paidAt = Math.max(this.#paidAt, now) + pauseMs;
  }

  /** The read that began last is over. */
  ended(now: number): void {
    this.#paidAt += Math.max(0, restShare * (now - this.#beganAt) - pauseMs);
  }
}
