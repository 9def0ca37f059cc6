import type { Clock, Instant } from "../../../kit/clock.ts";
import { type Job, leaseDoubtShare } from "../jobs/rules.ts";

/**
 * What this node keeps for a worker between two of its polls. For a moment after an answer the worker is
 * expected back: a new run can still be leased to it, and its job is kept here until the next poll.
 */
export interface IdleWorker {
  environmentId: string;
  workerId: string;
  /** The mark of its process: it separates several workers of one name. */
  holder: string | undefined;
  /** How long the leases last that it gets. */
  leaseMs: number;
  /** Which build it was at its last poll; undefined where that is not known. */
  deployment: string | undefined;
  /** When this node first saw the worker. */
  createdAt: Instant;
  /** When it last polled. */
  askedAt: Instant;
  /** The functions of its last poll. */
  functionIds: readonly string[];
  /** Slots that the last answer left free; 0 while a poll is held. */
  spare: number;
  /** The worker is expected back until then. */
  until: Instant;
  /** Slots held by a claim or a reservation under way. */
  pending: number;
  /** Polls of the worker that are held now. */
  pollCount: number;
  /** Jobs kept for the next poll. */
  unfetched: Job[];
  cancelReturn: (() => void) | undefined;
}

/**
 * A worker polls again within milliseconds. One that has not within this gets no new run: its lease would
 * idle.
 */
const comeBackMs = 100;
/** A job that is not fetched within this returns to its queue. */
const unfetchedKeptMs = 500;

/**
 * A worker renews only jobs that it knows, so a kept job goes back well before another node may end its
 * lease. Otherwise the worker could begin a run that a newer lease has taken further.
 */
const youngMsOf = (leaseMs: number): number => (leaseMs * leaseDoubtShare * 2) / 3;

export type IdleWorkers = ReturnType<typeof openIdleWorkers>;

export function openIdleWorkers(clock: Clock, giveBack: (jobs: readonly Job[]) => void) {
  const workers = new Map<string, IdleWorker>();
  const returnUnfetched = (worker: IdleWorker) => {
    worker.cancelReturn?.();
    worker.cancelReturn = undefined;
    if (worker.unfetched.length > 0) giveBack(worker.unfetched.splice(0));
  };
  const creditOf = (worker: IdleWorker) => worker.spare - worker.pending - worker.unfetched.length;
  return {
    of(polling: { environmentId: string; workerId: string; holder?: string | undefined }): IdleWorker {
      const { environmentId, workerId, holder } = polling;
      const key = `${environmentId}\n${workerId}\n${holder}`;
      let worker = workers.get(key);
      if (!worker) {
        const now = clock.now();
        worker = {
          environmentId,
          workerId,
          holder,
          leaseMs: 0,
          deployment: undefined,
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
    /** The worker was answered and has `spare` free slots left. */
    expectBack(worker: IdleWorker, spare: number) {
      worker.spare = spare;
      worker.until = clock.now() + comeBackMs;
    },
    /**
     * Jobs kept for a worker that polls: at most `most`, of these functions. Jobs of other functions return
     * to their queues, because the worker no longer serves them; so do those with leases that are no longer
     * young.
     */
    fetch(worker: IdleWorker, { most, functionIds }: { most: number; functionIds: readonly string[] }) {
      worker.spare = 0;
      if (worker.unfetched.length === 0) return [];
      const since = clock.now() + worker.leaseMs - youngMsOf(worker.leaseMs);
      const { kept = [], others = [] } = Object.groupBy(worker.unfetched, (job) =>
        functionIds.includes(job.functionId) && job.leaseExpiresAt > since ? "kept" : "others",
      );
      if (others.length > 0) {
        worker.unfetched = kept;
        giveBack(others);
      }
      const jobs = worker.unfetched.splice(0, most);
      if (worker.unfetched.length === 0) {
        worker.cancelReturn?.();
        worker.cancelReturn = undefined;
      }
      return jobs;
    },
    /** Slots that no claim, reservation or kept job holds. */
    creditOf,
    all: () => workers.values(),
    /** Whether a run can be leased to the worker although it is not polling. */
    expects: (worker: IdleWorker) => creditOf(worker) > 0 && clock.now() < worker.until,
    keepFor(worker: IdleWorker, job: Job) {
      worker.unfetched.push(job);
      worker.cancelReturn ??= clock.after(Math.min(unfetchedKeptMs, youngMsOf(worker.leaseMs)), () =>
        returnUnfetched(worker),
      );
    },
    /**
     * Forgets workers that did not come back. With `all`, kept jobs return to their queues at once and
     * nothing is leased.
     */
    tidy(all: boolean) {
      const now = clock.now();
      for (const [key, worker] of workers) {
        if (all) {
          worker.spare = 0;
          returnUnfetched(worker);
        }
        const inUse = worker.unfetched.length + worker.pending + worker.pollCount > 0;
        if (!inUse && worker.until + unfetchedKeptMs < now) workers.delete(key);
      }
    },
  };
}
