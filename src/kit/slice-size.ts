import type { Clock } from "./clock.ts";
import { expireSliceMax } from "./limits.ts";

/** Deleting a slice should delay other writers no longer than this; the next slice is sized to fit. */
const expireSliceMs = 10;
const expireSliceMin = 10;
/** The least and the longest pause between slices: one that waited for a lock tells nothing of the store. */
const breathMs = 1;
const restMsMax = 1_000;
/**
 * From so many flushes of others a second on, the pause is `busyRests` times as long as the slice took, and
 * slices are half as long; with fewer it is less, down to once as long.
 */
const busyFlushes = 20;
const busyRests = 6;
/** Flushes are counted over at least this long. */
const countedMs = 250;

interface TriedSlice {
  rows: number;
  tookMs: number;
}

/** It took too long, and a larger one about as long: the time goes to round trips, and not to the rows. */
const isInVain = ({ rows, tookMs }: TriedSlice, before: TriedSlice, fitsMs: number): boolean =>
  tookMs > fitsMs && Number.isFinite(tookMs) && before.rows > rows && tookMs > before.tookMs * 0.75;

/**
 * The size of the next slice: half of `rows` when the last one took too long, twice when it was short, or
 * when halving it had gained next to nothing.
 */
export function nextSlice(
  rows: number,
  tookMs: number,
  before: TriedSlice = { rows, tookMs },
  fitsMs = expireSliceMs,
): number {
  const isLarger = tookMs < fitsMs / 4 || isInVain({ rows, tookMs }, before, fitsMs);
  if (tookMs > fitsMs && !isLarger) return Math.max(expireSliceMin, Math.floor(rows / 2));
  return isLarger ? Math.min(expireSliceMax, rows * 2) : rows;
}

export interface SliceSizeOptions {
  /**
   * Flushes of the store so far, which are the writes that callers and runs wait for. What must keep up with
   * them gives none.
   */
  flushCount?: () => number;
  /** Longer where a slice holds up no other writer, and takes about as long however small it is. */
  fitsMs?: number;
}

/** A store's `write`, or a leader's. */
type Write<Session> = <T>(work: (session: Session) => Promise<T>) => Promise<T>;

/** Fits slices to the time that the last ones took: a run may have one step or ten thousand. */
export class SliceSize {
  readonly #clock: Pick<Clock, "elapsed" | "sleep">;
  readonly #flushCount: () => number;
  readonly #fitsMs: number;
  #rows = expireSliceMax;
  #tookMs = 0;
  #endedAt = 0;
  #before: TriedSlice | undefined;
  #counted: { at: number; flushes: number };
  /** How much others write, from 0 to 1. */
  #traffic = 0;

  constructor(
    clock: Pick<Clock, "elapsed" | "sleep">,
    { flushCount = () => 0, fitsMs = expireSliceMs }: SliceSizeOptions = {},
  ) {
    this.#clock = clock;
    this.#flushCount = flushCount;
    this.#fitsMs = fitsMs;
    this.#counted = { at: clock.elapsed(), flushes: flushCount() };
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
      this.#rows = nextSlice(rows, deletedMs, this.#before, this.#fitsMs / (1 + this.#traffic));
      this.#before = { rows, tookMs: deletedMs };
      this.#endedAt = this.#clock.elapsed();
      this.#tookMs = this.#endedAt - from;
    }
  }

  /**
   * Between slices other writers have the store: for as long as the last took, its commit included, or longer
   * where they use it.
   */
  rest(): Promise<void> {
    this.#count();
    const restMs = Math.min(restMsMax, this.#tookMs * (1 + this.#traffic * (busyRests - 1)));
    return this.#clock.sleep(Math.max(breathMs, this.#endedAt + restMs - this.#clock.elapsed()));
  }

  #count(): void {
    const [at, flushes] = [this.#clock.elapsed(), this.#flushCount()];
    const { at: from, flushes: before } = this.#counted;
    if (at - from < countedMs) return;
    this.#traffic = Math.min(1, ((flushes - before) * 1_000) / (at - from) / busyFlushes);
    this.#counted = { at, flushes };
  }
}

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

/** Bytes of payloads that a loop reads at once. */
const payloadsAtOnceBytesMax = 8 * 1024 * 1024;

/**
 * Those of the rows, one at least, whose payloads are read now; the others stay due. The first row of each
 * environment comes before the second of any: large payloads of one environment do not delay another.
 */
export function fitting<Row extends { environment_id: string }>(
  rows: readonly Row[],
  bytesOf: (row: Row) => number,
  bytesMax = payloadsAtOnceBytesMax,
): Row[] {
  const counts = new Map<string, number>();
  const ranked = rows.map((row) => {
    const rank = counts.get(row.environment_id) ?? 0;
    counts.set(row.environment_id, rank + 1);
    return { row, rank };
  });
  ranked.sort((one, other) => one.rank - other.rank);
  let left = bytesMax;
  return ranked.flatMap(({ row }) => {
    if (left <= 0) return [];
    left -= bytesOf(row);
    return row;
  });
}
