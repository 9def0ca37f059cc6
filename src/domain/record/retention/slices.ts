import type { Clock } from "../../../kit/clock.ts";
import { expireSliceMax } from "../../../kit/limits.ts";
import type { LeaderWrite } from "../../../store/store.ts";
import { nextSlice } from "./rules.ts";

/** What one environment's turn came to. */
export interface ExpiryTurn {
  gone: number;
  slices: number;
  isMore: boolean;
}

/** Deletes what has expired in one environment, at most so many slices. */
export type ExpireTurn = (
  write: LeaderWrite,
  environmentId: string,
  keptMs: number,
  slices: number,
) => Promise<ExpiryTurn>;

/** A pause between slices lets other writers in. */
export const breathMs = 1;

/** Fits slices to the time that the last ones took: a run may have one step or ten thousand. */
export class SliceSize {
  readonly #clock: Pick<Clock, "elapsed">;
  #rows = expireSliceMax;

  constructor(clock: Pick<Clock, "elapsed">) {
    this.#clock = clock;
  }

  /** Rows that fit into the next transaction. */
  get rows(): number {
    return this.#rows;
  }

  async timed(work: () => Promise<number>): Promise<number> {
    const from = this.#clock.elapsed();
    const gone = await work();
    this.#rows = nextSlice(this.#rows, this.#clock.elapsed() - from);
    return gone;
  }
}
