import { openHolderLimit } from "../../../kit/holder-limit.ts";
import type { Basics } from "../../../store/store.ts";
import type { Breakers, Endpoint } from "../breakers/service.ts";
import type { Assignments } from "../dispatch/assignments.ts";
import type { Job } from "../jobs/rules.ts";
import { type JobCalls, sparedMs } from "./job-calls.ts";

interface Waiter {
  mayGo: () => boolean;
  wake: () => void;
}

/** Bounds this node's concurrent calls to all endpoints together, with a share for each environment. */
export class CallSlots {
  readonly #places;
  /** In the order in which they came. */
  readonly #waiting = new Set<Waiter>();

  constructor(most: number) {
    this.#places = openHolderLimit({ most, all: most, what: "calls", whose: "environment" });
  }

  /** What the environment may begin now. */
  free(environmentId: string): number {
    return this.#places.free(environmentId);
  }

  /** Takes a place; what is returned gives it back. */
  use(environmentId: string): () => void {
    const release = this.#places.acquire(environmentId);
    return () => {
      release();
      this.next();
    };
  }

  /** Resolves when the caller may go, and when a function is no longer served. Who was woken calls `next`. */
  changed(mayGo: () => boolean): Promise<void> {
    return new Promise((wake) => this.#waiting.add({ mayGo, wake }));
  }

  /** Wakes the first that may go: all of them would take a job each, and give back all but one. */
  next(): void {
    const first = this.#waiting.values().find(({ mayGo }) => mayGo());
    if (first && this.#waiting.delete(first)) first.wake();
  }

  wakeAll(): void {
    for (const { wake } of this.#waiting) wake();
    this.#waiting.clear();
  }
}

/** Calls of one node to one endpoint at once. */
const pushCallsEndpointMax = 50;
/**
 * How long this node's own caller waits for jobs at a time; a setting for workers' polls must not make it ask
 * on and on.
 */
const pushHoldMs = 2_000;

export interface ServedFunctionDeps extends Basics<"clock" | "log"> {
  /** The worker id that this node polls with, the same for all functions. */
  workerId: string;
  assignments: Pick<Assignments, "toPush">;
  breakers: Breakers;
  giveBack: (jobs: readonly Job[]) => void;
  slots: CallSlots;
  calls: JobCalls;
}

/**
 * One function in push mode: this node polls for its jobs as a worker would, and calls its endpoint with
 * each.
 */
export class ServedFunction implements Endpoint {
  readonly environmentId: string;
  readonly functionId: string;
  readonly endpointUrl: string;
  /** Of the definition that names the endpoint. */
  version: number;
  readonly #deps: ServedFunctionDeps;
  readonly #stop = new AbortController();
  #poll = new AbortController();
  #inFlight = 0;
  #running: Promise<void> = Promise.resolve();

  constructor(endpoint: Endpoint, version: number, deps: ServedFunctionDeps) {
    this.environmentId = endpoint.environmentId;
    this.functionId = endpoint.functionId;
    this.endpointUrl = endpoint.endpointUrl;
    this.version = version;
    this.#deps = deps;
  }

  start(): void {
    this.#running = this.#serve();
  }

  /** Polls no more. Calls under way go on: `JobCalls.settled` waits for them. */
  stop(): void {
    this.#stop.abort();
  }

  /** Resolves after `stop`, when no poll is held any more. */
  stopped(): Promise<void> {
    return this.#running;
  }

  /** Ends the poll that is held: the endpoint's breaker has opened. */
  endPoll(): void {
    this.#poll.abort();
  }

  async #serve(): Promise<void> {
    const { clock, log, slots } = this.#deps;
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        const isWaiting = this.#free() <= 0;
        if (isWaiting) await slots.changed(() => this.#free() > 0);
        if (!signal.aborted) await this.#serveOnce(isWaiting ? 0 : pushHoldMs);
      } catch (error) {
        log.warn("push.failed", { functionId: this.functionId, error });
        slots.next();
        await clock.sleep(sparedMs, signal);
      }
    }
  }

  #free(): number {
    return Math.min(pushCallsEndpointMax - this.#inFlight, this.#deps.slots.free(this.environmentId));
  }

  /** One poll, for as many jobs as may be called; for a single one when the breaker wants a trial call. */
  async #serveOnce(holdMs: number): Promise<void> {
    const { clock, breakers, giveBack, slots } = this.#deps;
    const { signal } = this.#stop;
    const free = this.#free();
    if (free <= 0) return;
    const admitted = await breakers.admits(this);
    if (admitted === "open") {
      slots.next();
      await clock.sleep(sparedMs, signal);
      return;
    }
    const isTrial = admitted === "trial";
    const jobs = await this.#pollJobs(isTrial ? 1 : free, isTrial ? 0 : holdMs);
    // The breaker opened while the poll was held: the endpoint is not called, and no attempt is spent.
    if (!isTrial && jobs.length > 0 && breakers.isOpen(this)) {
      giveBack(jobs);
      return;
    }
    // Others polled meanwhile, and took the places.
    const surplus = jobs.splice(Math.max(0, this.#free()));
    if (surplus.length > 0) giveBack(surplus);
    const begun = jobs.map((job) => this.#begin(job));
    slots.next();
    if (isTrial && begun.length === 0) {
      await breakers.untried(this);
      await clock.sleep(sparedMs, signal);
    }
    if (isTrial) await Promise.all(begun);
  }

  #pollJobs(available: number, holdMs: number): Promise<Job[]> {
    const { assignments, workerId } = this.#deps;
    this.#poll = new AbortController();
    return assignments.toPush({
      environmentId: this.environmentId,
      workerId,
      functionIds: [this.functionId],
      available,
      holdMs,
      reports: false,
      signal: AbortSignal.any([this.#stop.signal, this.#poll.signal]),
    });
  }

  #begin(job: Job): Promise<void> {
    const { slots, calls } = this.#deps;
    this.#inFlight++;
    const release = slots.use(this.environmentId);
    return calls.begin(job, this.endpointUrl, this.#stop.signal, () => {
      this.#inFlight--;
      release();
    });
  }
}
