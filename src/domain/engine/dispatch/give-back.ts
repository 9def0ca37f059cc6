import type { Log } from "../../../kit/log.ts";
import { type Job, leaseHashOf } from "../jobs/rules.ts";
import type { Runs } from "../runs/service.ts";

export interface GiveBackDeps {
  runs: Pick<Runs, "release">;
  log: Log;
  /** Lanes that have got work again. */
  onQueued: (lanes: readonly { environmentId: string; functionId: string }[]) => void;
}

export interface GiveBack {
  giveBack(jobs: readonly Job[]): void;
  /** Releases that are not committed yet. */
  underWay: Set<Promise<void>>;
}

/** Jobs whose worker has gone before it got them return to the queue at once. Should that fail, their leases end. */
export function openGiveBack({ runs, log, onQueued }: GiveBackDeps): GiveBack {
  const underWay = new Set<Promise<void>>();
  return {
    giveBack(jobs: readonly Job[]): void {
      for (const job of jobs) {
        const given = runs
          .release({ ...job, leaseHash: leaseHashOf(job.leaseToken) })
          .then(() => onQueued([job]))
          .catch((error: unknown) => log.warn("job.not_given_back", { runId: job.runId, error }))
          .finally(() => underWay.delete(given));
        underWay.add(given);
      }
    },
    underWay,
  };
}
