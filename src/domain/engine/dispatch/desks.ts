import type { Clock, Instant } from "../../../kit/clock.ts";
import type { Job } from "../jobs/rules.ts";

/**
 * What this node keeps for a worker between two of its requests. A worker that was just answered is on its way back:
 * for that moment a new run can still be leased to it, and waits here to be fetched.
 */
export interface Desk {
  environmentId: string;
  workerId: string;
  /** Since when the worker is known here, and when it asked last, for which functions. */
  createdAt: Instant;
  askedAt: Instant;
  functionIds: readonly string[];
  /** Slots that were free when the worker was last answered. */
  spare: number;
  /** Until when it is expected back. */
  until: number;
  /** Promises under way. */
  pending: number;
  /** Requests of the worker that are held now. */
  asking: number;
  /** Jobs to be fetched. */
  box: Job[];
  cancelReturn: (() => void) | undefined;
}

/** A worker asks again within milliseconds; one that does not within this gets nothing new. */
const comeBackMs = 100;
/** Jobs that are not fetched go back to the queue. */
const boxKeptMs = 500;

export interface Desks {
  of(worker: { environmentId: string; workerId: string }): Desk;
  /** The worker was answered and has so many slots left. */
  leave(desk: Desk, spare: number): void;
  /** The worker asks: it takes what it finds for these functions, at most `most`; it no longer runs the rest. */
  fetch(desk: Desk, asked: { most: number; functionIds: readonly string[] }): Job[];
  creditOf(desk: Desk): number;
  /** Whether a run can be leased to the worker although it is not here. */
  expects(desk: Desk): boolean;
  put(desk: Desk, job: Job): void;
  all(): Iterable<Desk>;
  /** Forgets workers that stay away; `all` returns every job at once. */
  tidy(all: boolean): void;
}

export function openDesks(clock: Clock, giveBack: (jobs: readonly Job[]) => void): Desks {
  const desks = new Map<string, Desk>();
  const returnBox = (desk: Desk) => {
    desk.cancelReturn?.();
    desk.cancelReturn = undefined;
    if (desk.box.length > 0) giveBack(desk.box.splice(0));
  };
  const creditOf = (desk: Desk) => desk.spare - desk.pending - desk.box.length;
  return {
    of({ environmentId, workerId }) {
      const key = `${environmentId}\n${workerId}`;
      let desk = desks.get(key);
      if (!desk) {
        const now = clock.now();
        desk = {
          environmentId,
          workerId,
          createdAt: now,
          askedAt: now,
          functionIds: [],
          spare: 0,
          until: 0,
          pending: 0,
          asking: 0,
          box: [],
          cancelReturn: undefined,
        };
        desks.set(key, desk);
      }
      return desk;
    },
    leave(desk, spare) {
      desk.spare = spare;
      desk.until = clock.now() + comeBackMs;
    },
    fetch(desk, { most, functionIds }) {
      desk.spare = 0;
      const others = desk.box.filter((job) => !functionIds.includes(job.functionId));
      if (others.length > 0) {
        desk.box = desk.box.filter((job) => functionIds.includes(job.functionId));
        giveBack(others);
      }
      const jobs = desk.box.splice(0, most);
      if (desk.box.length === 0) {
        desk.cancelReturn?.();
        desk.cancelReturn = undefined;
      }
      return jobs;
    },
    creditOf,
    all: () => desks.values(),
    expects: (desk) => creditOf(desk) > 0 && clock.now() < desk.until,
    put(desk, job) {
      desk.box.push(job);
      desk.cancelReturn ??= clock.after(boxKeptMs, () => returnBox(desk));
    },
    tidy(all) {
      const now = clock.now();
      for (const [key, desk] of desks) {
        if (all) {
          desk.spare = 0;
          returnBox(desk);
        }
        if (desk.box.length + desk.pending + desk.asking === 0 && desk.until + boxKeptMs < now)
          desks.delete(key);
      }
    },
  };
}
