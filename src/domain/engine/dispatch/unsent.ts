import type { Log } from "../../../kit/log.ts";
import { StoreError } from "../../../store/store.ts";
import { type Job, leaseHashOf } from "../jobs/rules.ts";
import type { Runs } from "../runs/service.ts";

const isPassing = (cause: unknown): boolean => cause instanceof StoreError && cause.trouble !== "refused";

/** Why a job cannot be handed to a worker, in the word that its run may fail with. */
export class UnsentJob extends Error {
  readonly code: string;
  /** It is no fault of the job: it is put off, and never fails its run. */
  readonly isPassing: boolean;
  constructor(code: string, message: string, cause?: unknown) {
    super(message, { cause });
    this.name = "UnsentJob";
    this.code = code;
    this.isPassing = code === secretDenied || isPassing(cause);
  }
}

const secretDenied = "SECRET_DENIED";

/** Another worker may be allowed to have them. */
export const secretsDenied = ({ functionId, functionVersion }: Job): UnsentJob =>
  new UnsentJob(
    secretDenied,
    `the worker's credential may not have the secrets of version ${functionVersion} of function ${functionId}`,
  );

export const definitionUnread = ({ functionId, functionVersion }: Job, cause: unknown): UnsentJob =>
  new UnsentJob(
    "DEFINITION_UNREADABLE",
    `version ${functionVersion} of function ${functionId}, which the run is pinned to, cannot be read`,
    cause,
  );

export interface UnsentDeps {
  runs: Pick<Runs, "putOff">;
  log: Log;
  /** Jobs whose going back is not over yet; shared with those that give jobs back for other reasons. */
  underWay: Set<Promise<void>>;
}

/** Told of each job alone that cannot be handed out for what it is itself: the others of its hand-out go their way. */
export function openUnsent({ runs, log, underWay }: UnsentDeps) {
  async function putOff(job: Job, error: unknown): Promise<void> {
    const { environmentId, runId, functionId, executionSeq } = job;
    const known = error instanceof UnsentJob ? error : undefined;
    const code = known?.code ?? "JOB_UNSENDABLE";
    const message = known?.message ?? "the job cannot be handed to a worker";
    const cause = known ? known.cause : error;
    const { tries, failed } = await runs.putOff(
      { environmentId, runId, executionSeq, leaseHash: leaseHashOf(job.leaseToken) },
      { code, message, isPassing: known ? known.isPassing : isPassing(error) },
    );
    log.warn(failed ? "job.unsendable" : "job.put_off", { runId, functionId, code, tries, error: cause });
  }

  return (job: Job, error: unknown): void => {
    const settled = putOff(job, error)
      // Its lease ends by itself.
      .catch((reason: unknown) => log.warn("job.not_put_off", { runId: job.runId, error: reason }))
      .finally(() => underWay.delete(settled));
    underWay.add(settled);
  };
}
