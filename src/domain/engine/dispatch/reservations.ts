import type { Clock } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";
import { type Job, type JobEvent, jobOfNewRun, newLeaseToken } from "../jobs/rules.ts";
import type { NewLease, NewRun } from "../runs/run.ts";
import { offeredFirst } from "./actors.ts";
import type { IdleWorker, IdleWorkers } from "./idle-workers.ts";
import { creditOf, type HeldPolls } from "./polls.ts";
import { expectedWorker, type FunctionQueue, type HeldPoll } from "./queues.ts";

/** A place at a waiting worker, kept for a run that is about to be created. */
export interface Reservation {
  lease: NewLease;
  /** The run is committed: hand it over with the event it was born of. */
  deliver(run: NewRun, event: JobEvent): void;
  /** It never came to be. */
  drop(): void;
}

export interface ReservationsDeps {
  clock: Clock;
  ids: Ids;
  leaseMs: number;
  idleWorkers: IdleWorkers;
  polls: HeldPolls;
  /** For a worker on its way back. */
  leaveFor: (worker: IdleWorker, queue: FunctionQueue, job: Job) => void;
}

/** Born claimed: places for runs that do not exist yet, at workers that wait or are on their way back. */
export function openReservations({ clock, ids, leaseMs, idleWorkers, polls, leaveFor }: ReservationsDeps) {
  const hasSlot = (poll: HeldPoll) => creditOf(poll) > 0;

  function atIdleWorker(
    queue: FunctionQueue,
    worker = expectedWorker(queue, idleWorkers),
  ): Reservation | undefined {
    if (!worker) return undefined;
    worker.pending++;
    const { token, hash } = newLeaseToken(ids);
    const expiresAt = clock.now() + leaseMs;
    return {
      lease: { hash, workerId: worker.workerId, expiresAt },
      deliver: (run, event) => {
        worker.pending--;
        leaveFor(worker, queue, jobOfNewRun(run, { token, expiresAt }, event));
      },
      drop: () => {
        worker.pending--;
      },
    };
  }

  return {
    /** An actor's run goes to the worker that is nearest to it among those that have a slot. */
    reserve(queue: FunctionQueue, actorId: string | null): Reservation | undefined {
      for (const poll of offeredFirst(queue, actorId, { hasSlot, expects: idleWorkers.expects })) {
        if (!("queues" in poll)) return atIdleWorker(queue, poll);
        if (!hasSlot(poll)) continue;
        poll.pending++;
        // The next birth asks another worker first.
        queue.polls.delete(poll);
        queue.polls.add(poll);
        const { token, hash } = newLeaseToken(ids);
        const expiresAt = clock.now() + leaseMs;
        return {
          lease: { hash, workerId: poll.workerId, expiresAt },
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
