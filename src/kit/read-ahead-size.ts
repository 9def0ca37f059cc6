/** Events read at once by a feed, and environments compared at once. */
export const feedSliceMax = 500;

/** Characters that one read of a log aims at. */
const sliceCharsMax = 1024 * 1024;

/**
 * How many entries a reader of a log asks for at once: fewer of large ones, so that a slice does not fill the
 * memory. A slice that had more characters than it aims at makes the next one smaller.
 */
export class ReadAheadSize {
  #limit: number;

  constructor(first: number) {
    this.#limit = first;
  }

  get limit(): number {
    return this.#limit;
  }

  /** Gets each slice that was read. */
  note(count: number, chars: number): void {
    if (count === 0) return;
    const fitting = Math.floor((sliceCharsMax * count) / (chars + 1));
    this.#limit = Math.max(1, Math.min(fitting, this.#limit * 4, feedSliceMax));
  }
}
