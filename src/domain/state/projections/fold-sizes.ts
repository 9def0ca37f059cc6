import type { Clock } from "../../../kit/clock.ts";
import { sizedCache } from "../../../kit/sized-cache.ts";
import type { FoldOutcome } from "../../../store/environment-databases.ts";
import { foldEventsMax, foldsMax, foldTurnMs } from "./limits.ts";
import type { GenerationRow } from "./rows.ts";

/** Generations whose size is remembered; a forgotten one begins with a whole batch. */
const remembered = { entriesMax: 10 * foldsMax, charsMax: Number.POSITIVE_INFINITY };

type Key = Pick<GenerationRow, "environment_id" | "name" | "generation">;

const keyOf = ({ environment_id, name, generation }: Key) => `${environment_id} ${generation} ${name}`;

/**
 * How many events of a generation fit into one statement: half as many after one that took longer than a turn
 * or did not end, twice as many after a quick one. Else each turn would try too large a batch, in vain.
 */
export class FoldSizes {
  readonly #clock: Pick<Clock, "elapsed">;
  readonly #sizes = sizedCache<number>(remembered);

  constructor(clock: Pick<Clock, "elapsed">) {
    this.#clock = clock;
  }

  of(generation: Key): number {
    return this.#sizes.get(keyOf(generation)) ?? foldEventsMax;
  }

  async timed(generation: Key, count: number, fold: () => Promise<FoldOutcome>): Promise<FoldOutcome> {
    const from = this.#clock.elapsed();
    const outcome = await fold();
    const tookMs = this.#clock.elapsed() - from;
    const isCut = outcome.did === "failed" && outcome.position === 0;
    if (isCut || tookMs > foldTurnMs) this.#note(generation, Math.ceil(count / 2));
    else if (tookMs < foldTurnMs / 4) this.#note(generation, Math.max(this.of(generation), 2 * count));
    return outcome;
  }

  #note(generation: Key, size: number): void {
    if (size >= foldEventsMax) this.#sizes.delete(keyOf(generation));
    else this.#sizes.set(keyOf(generation), size, 0);
  }
}
