import type { Clock } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";
import { type Job, type JobEvent, jobOfBirth, newLeaseToken } from "../jobs/rules.ts";
import type { NewLease, NewRun } from "../runs/run.ts";
import { askedFirst } from "./actors.ts";
import type { Desk, Desks } from "./desks.ts";
import { expectedAt, type Lane, type Waiter } from "./lanes.ts";
import { creditOf, type Waiters } from "./waiters.ts";

/** A place at a waiting worker, kept for a run that is about to be created. */
export interface Reservation {
  lease: NewLease;
  /** The run is committed: hand it over with the event it was born of. */
  deliver(run: NewRun, event: JobEvent): void;
  /** It never came to be. */
  drop(): void;
}

export interface BirthsDeps {
  clock: Clock;
  ids: Ids;
  leaseMs: number;
  desks: Desks;
  waiters: Waiters;
  /** For a worker on its way back. */
  leaveAt: (desk: Desk, lane: Lane, job: Job) => void;
}

/** Born claimed: places for runs that do not exist yet, at workers that wait or are on their way back. */
export function openBirths({ clock, ids, leaseMs, desks, waiters, leaveAt }: BirthsDeps) {
  const hasSlot = (waiter: Waiter) => creditOf(waiter) > 0;

  function atDesk(lane: Lane, desk = expectedAt(lane, desks)): Reservation | undefined {
    if (!desk) return undefined;
    desk.pending++;
    const { token, hash } = newLeaseToken(ids);
    const expiresAt = clock.now() + leaseMs;
    return {
      lease: { hash, workerId: desk.workerId, expiresAt },
      deliver: (run, event) => {
        desk.pending--;
        leaveAt(desk, lane, jobOfBirth(run, { token, expiresAt }, event));
      },
      drop: () => {
        desk.pending--;
      },
    };
  }

  return {
    /** An actor's run goes to the worker that is nearest to it among those that have a slot. */
    reserve(lane: Lane, actorId: string | null): Reservation | undefined {
      for (const waiter of askedFirst(lane, actorId, { hasSlot, expects: desks.expects })) {
        if (!("lanes" in waiter)) return atDesk(lane, waiter);
        if (!hasSlot(waiter)) continue;
        waiter.pending++;
        // The next birth asks another worker first.
        lane.waiters.delete(waiter);
        lane.waiters.add(waiter);
        const { token, hash } = newLeaseToken(ids);
        const expiresAt = clock.now() + leaseMs;
        return {
          lease: { hash, workerId: waiter.workerId, expiresAt },
          deliver: (run, event) => {
            waiter.pending--;
            waiter.jobs.push(jobOfBirth(run, { token, expiresAt }, event));
            waiters.delivered(waiter);
          },
          drop: () => {
            waiter.pending--;
            waiters.finish(waiter, false);
          },
        };
      }
      return atDesk(lane);
    },
  };
}
