export interface WholeLooksOptions {
  /** At most this often, and at least. */
  everyMs: number;
  everyMsMax?: number;
  /** Of the time, where that is more than `everyMs` and less than `everyMsMax`. */
  shareMax: number;
}

/**
 * When a look that skips what it knows to be over looks at everything again, for what became visible too late. While a snapshot is
 * held, vacuum removes nothing, and such a look walks over the index entries of all that ended since: it takes its share of the
 * time.
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
