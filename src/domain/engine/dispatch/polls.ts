import type { Clock } from "../../../kit/clock.ts";
import { pollJobsMax } from "../../../kit/limits.ts";
import type { Job } from "../jobs/rules.ts";
import type { IdleWorker, IdleWorkers } from "./idle-workers.ts";
import type { FunctionQueue, HeldPoll, PollRequest } from "./queues.ts";

/** Slots of a poll that no claim and no reservation holds. */
export const creditOf = (poll: HeldPoll): number =>
  poll.closed ? 0 : poll.available - poll.pending - poll.jobs.length - poll.worker.pending;

export interface HeldPollsDeps {
  clock: Clock;
  idleWorkers: IdleWorkers;
  giveBack: (jobs: readonly Job[]) => void;
  isDraining: () => boolean;
  isClaiming: () => boolean;
}

/** How polls are opened, filled and answered. */
export class HeldPolls {
  readonly #deps: HeldPollsDeps;
  /** Polls that `delivered` named and `answerDelivered` has not answered yet. */
  readonly #deliveredTo = new Set<HeldPoll>();

  constructor(deps: HeldPollsDeps) {
    this.#deps = deps;
  }

  /** Answered through `resolve`: by `finish`, when its hold ends, or when the worker goes away. */
  open(
    request: PollRequest,
    worker: IdleWorker,
    queues: FunctionQueue[],
    resolve: (jobs: Job[]) => void,
  ): HeldPoll {
    const { clock, giveBack, isClaiming } = this.#deps;
    worker.pollCount++;
    const poll: HeldPoll = {
      ...request,
      worker,
      available: Math.min(request.available, pollJobsMax),
      queues,
      jobs: [],
      pending: 0,
      looks: 0,
      closed: false,
      answered: false,
      answer: () => {
        worker.pollCount--;
        cancelHold();
        request.signal.removeEventListener("abort", leave);
        if (request.signal.aborted && poll.jobs.length > 0) giveBack(poll.jobs.splice(0));
        resolve(poll.jobs);
      },
    };
    const leave = () => this.finish(poll, true);
    request.signal.addEventListener("abort", leave, { once: true });
    const cancelHold = clock.after(request.holdMs, () => {
      // With `holdMs` 0 the claim under way answers; without one, nothing else would.
      if (request.holdMs > 0 || !isClaiming()) this.finish(poll, true);
    });
    return poll;
  }

  /** Answers a poll with jobs, or without (`final`), once no claim or reservation holds a slot of it. */
  finish(poll: HeldPoll, final: boolean): void {
    if (!poll.closed && (poll.jobs.length > 0 || final)) this.#close(poll);
    if (!poll.closed || poll.pending > 0 || poll.answered) return;
    poll.answered = true;
    poll.answer();
  }

  /** A job was added to the poll outside a claim; `answerDelivered` answers it. */
  delivered(poll: HeldPoll): void {
    this.#deliveredTo.add(poll);
  }

  /**
   * Answers the polls of `delivered`. Called once, after the last run of a flush: a poll then carries all its
   * jobs of that flush in one answer.
   */
  answerDelivered(): void {
    for (const poll of this.#deliveredTo) this.finish(poll, false);
    this.#deliveredTo.clear();
  }

  /** Adds a job of an idle worker to its poll if the worker has come back, or keeps it for the next poll. */
  deliverToIdle(worker: IdleWorker, queue: FunctionQueue, job: Job): void {
    for (const poll of queue.polls) {
      // Not `creditOf`: it subtracts the worker's own reservations, and this job is one of them.
      if (poll.worker !== worker || poll.available - poll.pending - poll.jobs.length <= 0) continue;
      poll.jobs.push(job);
      this.delivered(poll);
      return;
    }
    if (this.#deps.isDraining()) this.#deps.giveBack([job]);
    else this.#deps.idleWorkers.keepFor(worker, job);
  }

  /** No later claim or reservation can take a slot of the poll; its worker counts as idle from now on. */
  #close(poll: HeldPoll): void {
    const { idleWorkers, isDraining } = this.#deps;
    poll.closed = true;
    // A worker that got nothing pauses for a second, so no run is leased to it meanwhile. One that sent
    // reports does not pause.
    const pollsAgain = poll.reports || poll.jobs.length + poll.pending > 0;
    const comesBack = pollsAgain && poll.available > 0 && !isDraining() && !poll.signal.aborted;
    if (comesBack) idleWorkers.expectBack(poll.worker, poll.available - poll.jobs.length - poll.pending);
    for (const queue of poll.queues) {
      queue.polls.delete(poll);
      if (comesBack) queue.idle.add(poll.worker);
    }
  }
}
