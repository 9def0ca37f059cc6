import type { Clock, Instant } from "../../../kit/clock.ts";
import type { Job } from "../jobs/rules.ts";

/**
 * What this node keeps for a worker between two of its requests. A worker that was just answered is on its way back:
 * for that moment a new run can still be leased to it, and waits here to be fetched.
 */
export interface IdleWorker {
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
  pollCount: number;
  /** Jobs to be fetched. */
  unfetched: Job[];
  cancelReturn: (() => void) | undefined;
}

/** A worker asks again within milliseconds; one that does not within this gets nothing new. */
const comeBackMs = 100;
/** Jobs that are not fetched go back to the queue. */
const unfetchedKeptMs = 500;

export interface IdleWorkers {
  of(worker: { environmentId: string; workerId: string }): IdleWorker;
  /** The worker was answered and has so many slots left. */
  expectBack(worker: IdleWorker, spare: number): void;
  /** The worker asks: it takes what it finds for these functions, at most `most`; it no longer runs the rest. */
  fetch(worker: IdleWorker, asked: { most: number; functionIds: readonly string[] }): Job[];
  creditOf(worker: IdleWorker): number;
  /** Whether a run can be leased to the worker although it is not here. */
  expects(worker: IdleWorker): boolean;
  keepFor(worker: IdleWorker, job: Job): void;
  all(): Iterable<IdleWorker>;
  /** Forgets workers that stay away; `all` returns every job at once. */
  tidy(all: boolean): void;
}

export function openIdleWorkers(clock: Clock, giveBack: (jobs: readonly Job[]) => void): IdleWorkers {
  const workers = new Map<string, IdleWorker>();
  const returnUnfetched = (worker: IdleWorker) => {
    worker.cancelReturn?.();
    worker.cancelReturn = undefined;
    if (worker.unfetched.length > 0) giveBack(worker.unfetched.splice(0));
  };
  const creditOf = (worker: IdleWorker) => worker.spare - worker.pending - worker.unfetched.length;
  return {
    of({ environmentId, workerId }) {
      const key = `${environmentId}\n${workerId}`;
      let worker = workers.get(key);
      if (!worker) {
        const now = clock.now();
        worker = {
          environmentId,
          workerId,
          createdAt: now,
          askedAt: now,
          functionIds: [],
          spare: 0,
          until: 0,
          pending: 0,
          pollCount: 0,
          unfetched: [],
          cancelReturn: undefined,
        };
        workers.set(key, worker);
      }
      return worker;
    },
    expectBack(worker, spare) {
      worker.spare = spare;
      worker.until = clock.now() + comeBackMs;
    },
    fetch(worker, { most, functionIds }) {
      worker.spare = 0;
      const others = worker.unfetched.filter((job) => !functionIds.includes(job.functionId));
      if (others.length > 0) {
        worker.unfetched = worker.unfetched.filter((job) => functionIds.includes(job.functionId));
        giveBack(others);
      }
      const jobs = worker.unfetched.splice(0, most);
      if (worker.unfetched.length === 0) {
        worker.cancelReturn?.();
        worker.cancelReturn = undefined;
      }
      return jobs;
    },
    creditOf,
    all: () => workers.values(),
    expects: (worker) => creditOf(worker) > 0 && clock.now() < worker.until,
    keepFor(worker, job) {
      worker.unfetched.push(job);
      worker.cancelReturn ??= clock.after(unfetchedKeptMs, () => returnUnfetched(worker));
    },
    tidy(all) {
      const now = clock.now();
      for (const [key, worker] of workers) {
        if (all) {
          worker.spare = 0;
          returnUnfetched(worker);
        }
        if (
          worker.unfetched.length + worker.pending + worker.pollCount === 0 &&
          worker.until + unfetchedKeptMs < now
        )
          workers.delete(key);
      }
    },
  };
}
