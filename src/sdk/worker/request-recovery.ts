import { SvcError } from "../wire/errors.ts";
import { delayAfter, pause, retryAfterMsMax } from "../wire/retry.ts";
import type { Logger } from "../wire/types.ts";

const delayFirstMs = 200;
export const recoveryDelayMsMax = 5_000;

export interface RequestRecoveryOptions {
  /** Makes the worker known to the server again. */
  register: () => Promise<void>;
  /** A 404 although the worker has just registered: the server does not have the route. */
  onMissingRoute: () => void;
  onDenied: (error: SvcError) => void;
  /** Raised when the worker stops. */
  halt: AbortSignal;
  log: Logger;
}

/** What a worker's failed request asks for: a pause, a registration, or nothing if it can never succeed. */
export class RequestRecovery {
  readonly #options: RequestRecoveryOptions;
  /** Failures since the last request that succeeded. */
  #failures = 0;
  #registrations = 0;
  /** The registration that followed a 404, until a request succeeds after it. */
  #unprovenRegistration = -1;
  #registering: Promise<void> | undefined;
  #pausing: Promise<void> | undefined;

  constructor(options: RequestRecoveryOptions) {
    this.#options = options;
  }

  /** Read it before a request: a 404 to a request from before the last registration says nothing. */
  get registrations(): number {
    return this.#registrations;
  }

  /** The last request failed. */
  get isTroubled(): boolean {
    return this.#failures > 0;
  }

  succeeded(): void {
    if (this.#failures > 0) this.#options.log.info("the server answers again");
    this.#failures = 0;
    this.#unprovenRegistration = -1;
  }

  /** Resolves, after a pause or registration where one helps, to whether the request may be made again. */
  async recover(error: SvcError, registrationsThen: number): Promise<boolean> {
    const { onDenied, halt } = this.#options;
    if (halt.aborted || error.code === "aborted_by_caller") return false;
    if (error.status === 401 || error.status === 403) {
      onDenied(error);
      return false;
    }
    if (error.status === 404) {
      try {
        await this.#registerAgain(registrationsThen);
        return !halt.aborted;
      } catch (refusal) {
        const isOther = refusal instanceof SvcError && refusal.status !== 404;
        return isOther ? this.recover(refusal, registrationsThen) : false;
      }
    }
    if (!error.retryable && error.code !== "bad_answer") return false;
    this.#pausing ??= this.#pauseAfter(error).finally(() => {
      this.#pausing = undefined;
    });
    await Promise.all([this.#pausing, pause(Math.min(error.retryAfterMs ?? 0, retryAfterMsMax), halt)]);
    return true;
  }

  /** What fails at the same time shares one pause, which counts as one failure. */
  async #pauseAfter({ message }: SvcError): Promise<void> {
    const { halt, log } = this.#options;
    if (this.#failures++ === 0) log.warn("the server cannot be reached; trying again", { reason: message });
    await pause(delayAfter(this.#failures, delayFirstMs, recoveryDelayMsMax), halt);
  }

  async #registerAgain(registrationsThen: number): Promise<void> {
    if (registrationsThen < this.#registrations) return;
    if (this.#unprovenRegistration === this.#registrations) this.#options.onMissingRoute();
    this.#registering ??= this.#options
      .register()
      .then(() => {
        this.#unprovenRegistration = ++this.#registrations;
      })
      .finally(() => {
        this.#registering = undefined;
      });
    await this.#registering;
  }
}
