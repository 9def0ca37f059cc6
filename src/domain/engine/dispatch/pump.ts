import type { Log } from "../../../kit/log.ts";

export interface PumpOptions {
  /** One claim for every poll and idle worker; false when nothing was left to claim. */
  claimOnce: () => Promise<boolean>;
  /** False while this node is not sure of the time. */
  mayClaim: () => boolean;
  log: Log;
}

/**
 * Claims until nothing is left. One claim at a time: each serves every poll, and two would ask for the same
 * runs.
 */
export class Pump {
  readonly #options: PumpOptions;
  #running: Promise<void> | undefined;
  /** `run` was called while a claim was under way. */
  #again = false;

  constructor(options: PumpOptions) {
    this.#options = options;
  }

  /** The round under way; undefined while nothing is claimed. */
  get running(): Promise<void> | undefined {
    return this.#running;
  }

  /** Resolves with the round under way, or with a new one. */
  run(): Promise<void> {
    this.#again = this.#running !== undefined;
    // Reset in `finally`, behind the assignment. When `mayClaim` is false, `#claimAll` ends before `#running`
    // is assigned: a reset inside it would be overwritten, and no later call would ever claim.
    this.#running ??= this.#claimAll().finally(() => {
      this.#running = undefined;
      // `run` was called after the last claim had looked.
      if (this.#again) void this.run();
    });
    return this.#running;
  }

  async #claimAll(): Promise<void> {
    const { claimOnce, mayClaim, log } = this.#options;
    try {
      while (mayClaim() && (await claimOnce()));
    } catch (error) {
      // Mostly the database is away. The next tick of `workers.dispatch` tries again.
      this.#again = false;
      log.warn("dispatch.claim_failed", { error });
    }
  }
}
