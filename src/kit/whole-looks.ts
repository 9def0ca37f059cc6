export interface WholeLooksOptions {
  /** The shortest time between two whole looks. */
  everyMs: number;
  /** The longest; without it `shareMax` alone says when. */
  everyMsMax?: number;
  /** Whole looks take at most this share of the time, unless `everyMsMax` is over before. */
  shareMax: number;
}

/**
 * Says when a look that skips finished rows must look at all rows again, because a row may become visible too
 * late for it. While a snapshot is held, vacuum removes nothing, and a whole look walks over the index
 * entries of all rows that ended since: without a bound whole looks would take all of the time.
 */
export class WholeLooks {
  readonly #options: WholeLooksOptions;
  #beganAt = Number.NEGATIVE_INFINITY;
  #tookMs = 0;
  #tookMsBefore = 0;

  constructor(options: WholeLooksOptions) {
    this.#options = options;
  }

  /** Whether the look that begins at `now` is a whole one. */
  begins(now: number): boolean {
    const { everyMs, everyMsMax = Number.POSITIVE_INFINITY, shareMax } = this.#options;
    // A single long look may have waited for a connection or a lock: it must not postpone the next one.
    const tookMs = Math.min(this.#tookMs, this.#tookMsBefore);
    if (now - this.#beganAt < Math.min(everyMsMax, Math.max(everyMs, tookMs / shareMax))) return false;
    this.#beganAt = now;
    return true;
  }

  /** Notes how long the last whole look took. */
  took(ms: number): void {
    this.#tookMsBefore = this.#tookMs;
    this.#tookMs = ms;
  }
}
