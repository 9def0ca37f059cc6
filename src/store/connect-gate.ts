import { backoff } from "../kit/backoff.ts";
import type { Clock } from "../kit/clock.ts";

/** Between attempts while none succeeds: long enough to be no storm, short enough to notice a promotion. */
const pauseMs = { minMs: 50, maxMs: 400 };

/**
 * Connections of a whole process in an outage: one attempt at a time, each after a longer pause; callers that
 * come meanwhile get at once why the last one failed. While attempts succeed it lets all through.
 */
export class ConnectGate {
  readonly #clock: Pick<Clock, "elapsed">;
  readonly #pause: (failures: number) => number;
  #failures = 0;
  #openAt = 0;
  #isTrying = false;
  #last: unknown;

  constructor(clock: Pick<Clock, "elapsed">, chance: () => number) {
    this.#clock = clock;
    this.#pause = backoff({ ...pauseMs, chance });
  }

  async through<T>(attempt: () => Promise<T>, isOutage: (error: unknown) => boolean): Promise<T> {
    const isTrial = this.#failures > 0;
    if (isTrial) {
      if (this.#isTrying || this.#clock.elapsed() < this.#openAt) throw this.#last;
      this.#isTrying = true;
    }
    try {
      const done = await attempt();
      this.#failures = 0;
      return done;
    } catch (error) {
      // Of many that failed at once the first counts.
      if (isOutage(error)) {
        if (isTrial || this.#failures === 0) {
          this.#failures++;
          this.#openAt = this.#clock.elapsed() + this.#pause(this.#failures);
        }
        this.#last = error;
      }
      throw error;
    } finally {
      if (isTrial) this.#isTrying = false;
    }
  }
}
