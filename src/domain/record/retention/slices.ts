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

/** The least and the longest pause between slices: one that waited for a lock tells nothing of the store. */
const breathMs = 1;
const restMsMax = 1_000;

/** Fits slices to the time that the last ones took: a run may have one step or ten thousand. */
export class SliceSize {
  readonly #clock: Pick<Clock, "elapsed" | "sleep">;
  #rows = expireSliceMax;
  #tookMs = 0;

  constructor(clock: Pick<Clock, "elapsed" | "sleep">) {
    this.#clock = clock;
  }

  /** Rows that fit into the next transaction. */
  get rows(): number {
    return this.#rows;
  }

  async timed(work: () => Promise<number>): Promise<number> {
    const from = this.#clock.elapsed();
    const gone = await work();
    this.#tookMs = this.#clock.elapsed() - from;
    this.#rows = nextSlice(this.#rows, this.#tookMs);
    return gone;
  }

  /** Between two slices other writers have the store for as long as the last one took. */
  rest(): Promise<void> {
    const restMs = Math.min(restMsMax, Math.max(breathMs, this.#tookMs));
    this.#tookMs = 0;
    return this.#clock.sleep(restMs);
  }
}
