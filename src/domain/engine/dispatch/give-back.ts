import type { Log } from "../../../kit/log.ts";
import { type Job, leaseHashOf } from "../jobs/rules.ts";
import type { Runs } from "../runs/service.ts";

export interface GiveBackDeps {
  runs: Pick<Runs, "release">;
  log: Log;
  /** The queues of released jobs have work again. */
  onQueued: (queues: readonly { environmentId: string; functionId: string }[]) => void;
}

export interface GiveBack {
  /** Releases the leases at once; `underWay` holds the releases until they are over. */
  giveBack(jobs: readonly Job[]): void;
  /** Releases that are not committed yet. */
  underWay: Set<Promise<void>>;
}

/**
 * Returns jobs that no worker has started to their queues, without spending an attempt. If a release fails,
 * the run waits until its lease ends.
 */
export function openGiveBack({ runs, log, onQueued }: GiveBackDeps): GiveBack {
  const underWay = new Set<Promise<void>>();
  return {
    giveBack(jobs: readonly Job[]): void {
      for (const job of jobs) {
        const released = runs
          .release({ ...job, leaseHash: leaseHashOf(job.leaseToken) })
          .then(() => onQueued([job]))
          .catch((error: unknown) => log.warn("job.not_given_back", { runId: job.runId, error }))
          .finally(() => underWay.delete(released));
        underWay.add(released);
      }
    },
    underWay,
  };
}
