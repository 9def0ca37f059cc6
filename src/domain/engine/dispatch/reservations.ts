import type { Basics } from "../../../store/store.ts";
import { type JobEvent, jobOfNewRun, newLeaseToken } from "../jobs/rules.ts";
import type { NewLease, NewRun } from "../runs/run.ts";
import type { IdleWorkers } from "./idle-workers.ts";
import { offeredFirst } from "./plan.ts";
import { creditOf, type HeldPolls } from "./polls.ts";
import { expectedWorker, type FunctionQueue, type HeldPoll } from "./queues.ts";

/** A worker's slot, held for a run that is about to be created with a lease. */
export interface Reservation {
  lease: NewLease;
  /** The run is committed: its job, with the event that started it, goes to the worker. */
  deliver(run: NewRun, event: JobEvent): void;
  /** The run was not created, or without the lease. */
  drop(): void;
}

export interface ReservationsDeps extends Basics<"clock" | "ids"> {
  idleWorkers: IdleWorkers;
  polls: HeldPolls;
}

/**
 * Leases for runs that do not exist yet. A run that is created with its lease skips the queue and its claim:
 * the job goes out as soon as the run is committed.
 */
export function openReservations({ clock, ids, idleWorkers, polls }: ReservationsDeps) {
  const hasSlot = (poll: HeldPoll) => creditOf(poll) > 0;

  function atIdleWorker(
    queue: FunctionQueue,
    worker = expectedWorker(queue, idleWorkers),
  ): Reservation | undefined {
    if (!worker) return undefined;
    worker.pending++;
    const { token, hash } = newLeaseToken(ids, worker.holder);
    const expiresAt = clock.now() + worker.leaseMs;
    return {
      lease: { hash, workerId: worker.workerId, deployment: worker.deployment, expiresAt },
      deliver: (run, event) => {
        worker.pending--;
        polls.deliverToIdle(worker, queue, jobOfNewRun(run, { token, expiresAt }, event));
      },
      drop: () => {
        worker.pending--;
      },
    };
  }

  return {
    /** Undefined when no worker has a free slot. */
    reserve(queue: FunctionQueue, actorId: string | null): Reservation | undefined {
      for (const poll of offeredFirst(queue, actorId, { hasSlot, expects: idleWorkers.expects })) {
        if (!("queues" in poll)) return atIdleWorker(queue, poll);
        if (!hasSlot(poll)) continue;
        poll.pending++;
        // To the end of the set: the next reservation tries the other workers first.
        queue.polls.delete(poll);
        queue.polls.add(poll);
        const { token, hash } = newLeaseToken(ids, poll.worker.holder);
        const expiresAt = clock.now() + poll.worker.leaseMs;
        return {
          lease: { hash, workerId: poll.workerId, deployment: poll.deployment, expiresAt },
          deliver: (run, event) => {
            poll.pending--;
            poll.jobs.push(jobOfNewRun(run, { token, expiresAt }, event));
            polls.delivered(poll);
          },
          drop: () => {
            poll.pending--;
            polls.finish(poll, false);
          },
        };
      }
      return atIdleWorker(queue);
    },
  };
}
