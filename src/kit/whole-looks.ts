/**
 * When a look that skips what it knows to be over looks at everything again, for what became visible too late. While a snapshot is
 * held, vacuum removes nothing, and such a look walks over the index entries of all that ended since: it takes its share of the
 * time, and no more.
 */
export class WholeLooks {
  readonly #everyMs: number;
  readonly #shareMax: number;
  #beganAt = Number.NEGATIVE_INFINITY;
  #tookMs = 0;

  constructor({ everyMs, shareMax }: { everyMs: number; shareMax: number }) {
    this.#everyMs = everyMs;
    this.#shareMax = shareMax;
  }

  /** Whether the look that begins at `now` is a whole one. */
  begins(now: number): boolean {
    if (now - this.#beganAt < Math.max(this.#everyMs, this.#tookMs / this.#shareMax)) return false;
    this.#beganAt = now;
    return true;
  }

  /** The last whole look took so long. */
  took(ms: number): void {
    this.#tookMs = ms;
  }
}
