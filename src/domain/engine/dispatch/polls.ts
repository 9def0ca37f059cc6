import type { IdleWorkers } from "./idle-workers.ts";
import type { HeldPoll } from "./queues.ts";

/** Slots of a waiter that nothing is promised to. */
export const creditOf = (poll: HeldPoll): number =>
  poll.closed ? 0 : poll.available - poll.pending - poll.jobs.length - poll.worker.pending;

export interface HeldPolls {
  /** Answers a waiter that has something, or has nothing to wait for (`final`), once no promise to it is open. */
  finish(poll: HeldPoll, final: boolean): void;
  /** A job was delivered to it outside a claim; `handOut` answers it. */
  delivered(poll: HeldPoll): void;
  /** Answers the workers that runs were delivered to: once, after the last of a flush. */
  answerDelivered(): void;
}

/** How workers that ask are answered. */
export function openHeldPolls(idleWorkers: IdleWorkers, isDraining: () => boolean): HeldPolls {
  /** Workers that births were delivered to and that are not answered yet. */
  const deliveredTo = new Set<HeldPoll>();

  /** From now on the waiter is being answered: its worker counts as on its way back. */
  const close = (poll: HeldPoll) => {
    poll.closed = true;
    // After an empty answer workers pause for a second (proto/README.md 'Workers over REST').
    const pollsAgain = poll.reports || poll.jobs.length + poll.pending > 0;
    const comesBack = pollsAgain && poll.available > 0 && !isDraining() && !poll.signal.aborted;
    if (comesBack) idleWorkers.expectBack(poll.worker, poll.available - poll.jobs.length - poll.pending);
    for (const queue of poll.queues) {
      queue.polls.delete(poll);
      if (comesBack) queue.away.add(poll.worker);
    }
  };

  const finish = (poll: HeldPoll, final: boolean) => {
    if (!poll.closed && (poll.jobs.length > 0 || final)) close(poll);
    if (!poll.closed || poll.pending > 0 || poll.answered) return;
    poll.answered = true;
    poll.answer();
  };

  return {
    finish,
    delivered: (poll) => {
      deliveredTo.add(poll);
    },
    answerDelivered() {
      for (const poll of deliveredTo) finish(poll, false);
      deliveredTo.clear();
    },
  };
}
