import type { Log } from "../../../kit/log.ts";
import { type Job, leaseHashOf } from "../jobs/rules.ts";
import type { FoundLease } from "../runs/execution/leases.ts";
import type { Runs } from "../runs/service.ts";

export interface GiveBackDeps {
  runs: Pick<Runs, "release">;
  log: Log;
  /** The queues of released jobs have work again. */
  onQueued: (queues: readonly { environmentId: string; functionId: string }[]) => void;
}

export type GiveBack = ReturnType<typeof openGiveBack>;

/**
 * Returns jobs that no worker has started to their queues, without spending an attempt. If a release fails,
 * the run waits until its lease ends.
 */
export function openGiveBack({ runs, log, onQueued }: GiveBackDeps) {
  const underWay = new Set<Promise<void>>();
  function release(lease: FoundLease): void {
    const released = runs
      .release(lease)
      .then(() => onQueued([lease]))
      .catch((error: unknown) => log.warn("job.not_given_back", { runId: lease.runId, error }))
      .finally(() => underWay.delete(released));
    underWay.add(released);
  }

  return {
    /** Releases the leases at once; `underWay` holds the releases until they are over. */
    giveBack(jobs: readonly Job[]) {
      for (const job of jobs) release({ ...job, leaseHash: leaseHashOf(job.leaseToken) });
    },
    giveBackLeases(leases: readonly FoundLease[]) {
      for (const lease of leases) release(lease);
    },
    /** Releases that are not committed yet. */
    underWay,
  };
}
