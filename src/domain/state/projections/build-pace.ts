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

  /** After a slice up to a position, which took so long. */
  async restMs(reached: number, tookMs: number): Promise<number> {
    const head = (await getHead(this.#store, this.#environmentId))?.position ?? 0;
    const isGrowing = head > this.#head;
    this.#head = head;
    this.#judge(head - reached);
    return Math.min(tookMs * (isGrowing ? this.#rest : buildRestIdle), buildRestMsMax);
  }

  /** A log that grows faster than it is folded would be built for ever. */
  #judge(distance: number): void {
    const now = this.#clock.elapsed();
    if (now - this.#judgedAt < buildNearerMs) return;
    if (distance >= this.#distance) this.#rest /= 2;
    this.#distance = distance;
    this.#judgedAt = now;
  }
}
