import type { Clock } from "../../../kit/clock.ts";
import { sizedCache } from "../../../kit/ttl-cache.ts";
import type { FoldOutcome } from "../../../store/environment-databases.ts";
import type { Store } from "../../../store/store.ts";
import {
  buildNearerMs,
  buildRestBusy,
  buildRestIdle,
  buildRestMsMax,
  foldEventsMax,
  foldsMax,
  foldTurnMs,
} from "./limits.ts";
import { type GenerationRow, getHead } from "./rows.ts";

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

/** How long a generation that is built beside rests between slices: what is emitted and read goes first. */
export class BuildPace {
  readonly #store: Pick<Store, "one">;
  readonly #clock: Clock;
  readonly #environmentId: string;
  #head = 0;
  #rest = buildRestBusy;
  #distance = Number.POSITIVE_INFINITY;
  #judgedAt = Number.NEGATIVE_INFINITY;

  constructor({ store, clock }: { store: Pick<Store, "one">; clock: Clock }, environmentId: string) {
    this.#store = store;
    this.#clock = clock;
    this.#environmentId = environmentId;
  }

  /** How long to rest after a slice that ended at this position and took this long. */
  async restMs(reached: number, tookMs: number): Promise<number> {
    const head = (await getHead(this.#store, this.#environmentId))?.position ?? 0;
    const isGrowing = head > this.#head;
    this.#head = head;
    this.#judge(head - reached);
    return Math.min(tookMs * (isGrowing ? this.#rest : buildRestIdle), buildRestMsMax);
  }

  /** The pause is halved when the build does not catch up with the log. */
  #judge(distance: number): void {
    const now = this.#clock.elapsed();
    if (now - this.#judgedAt < buildNearerMs) return;
    if (distance >= this.#distance) this.#rest /= 2;
    this.#distance = distance;
    this.#judgedAt = now;
  }
}
