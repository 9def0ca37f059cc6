import { purgeSliceMax } from "../../../kit/limits.ts";
import type { Store } from "../../../store/store.ts";
import { purgeRemoteSliceMs, purgeSliceMs } from "./limits.ts";

const sliceMin = 8;

export interface PurgePace {
  /** What a slice aims at. */
  sliceMs: number;
  /** Also of the cheapest rows: a commit has its price too. */
  sliceMax: number;
  /** Runs whose rows are removed together. */
  runsAtOnce: number;
}

/**
 * On libSQL a slice blocks this thread, so it is short. On PostgreSQL most of a slice is the round trip,
 * which blocks no other call: slices of a few milliseconds would shrink to single rows wherever the database
 * is far away.
 */
export const paces: Record<Store["engine"], PurgePace> = {
  libsql: { sliceMs: purgeSliceMs, sliceMax: 250, runsAtOnce: 50 },
  postgres: { sliceMs: purgeRemoteSliceMs, sliceMax: purgeSliceMax, runsAtOnce: 250 },
};

/**
 * How many rows a slice of each table has, as the last ones took: rows of one table cost more than another's.
 */
export class PurgeSlices {
  readonly #pace: PurgePace;
  readonly #limits = new Map<string, number>();
  /** The last slice of each table, and how long it took. */
  readonly #last = new Map<string, { limit: number; tookMs: number }>();

  constructor(pace: PurgePace) {
    this.#pace = pace;
  }

  limitOf(table: string): number {
    return this.#limits.get(table) ?? sliceMin;
  }

  /** Fits the next slice of the table to what this one took. */
  note(table: string, { limit, tookMs, isShort }: { limit: number; tookMs: number; isShort: boolean }): void {
    const { sliceMs, sliceMax } = this.#pace;
    if (tookMs > sliceMs) this.#limits.set(table, this.#halved(table, limit, tookMs));
    else if (!isShort && tookMs < sliceMs / 2) this.#limits.set(table, Math.min(sliceMax, limit * 2));
    this.#last.set(table, { limit, tookMs });
  }

  /**
   * Half as many rows do not help where a slice takes as long all the same: on a slow disk or a busy machine
   * the commit costs more than the rows, and a purge of single rows would never end.
   */
  #halved(table: string, limit: number, tookMs: number): number {
    const last = this.#last.get(table);
    const isInVain = limit <= sliceMin && last && last.limit > limit && tookMs > 0.7 * last.tookMs;
    return isInVain ? sliceMin : Math.max(1, Math.floor(limit / 2));
  }
}
