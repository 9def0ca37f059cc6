import type { Clock } from "../../../kit/clock.ts";
import type { Store } from "../../../store/store.ts";
import { buildNearerMs, buildRestBusy, buildRestIdle, buildRestMsMax } from "./limits.ts";
import { getHead } from "./rows.ts";

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
