import type { Log } from "../../../kit/log.ts";
import { isOfRow } from "../../../store/store.ts";
import { type Job, leaseHashOf } from "../jobs/rules.ts";
import { deniedCodes } from "../runs/rules.ts";
import type { Runs } from "../runs/service.ts";

/** Why a job cannot be sent to a worker; `code` becomes the error code of the run if it fails for this. */
export class UnsentJob extends Error {
  readonly code: string;
  /** The cause lies outside the job: the run is tried later, and never fails for it. */
  readonly isPassing: boolean;
  constructor(code: string, message: string, cause?: unknown) {
    super(message, { cause });
    this.name = "UnsentJob";
    this.code = code;
    this.isPassing = ofWorker.includes(code) || !isOfRow(cause);
  }
}

/**
 * Limit for the event and completed steps of one job, in characters: more than SDKs accept in one request.
 */
export const jobCharsMax = 64 * 1024 * 1024;

export const jobTooLarge = (size: string): UnsentJob =>
  new UnsentJob(
    "JOB_TOO_LARGE",
    `event and completed steps have ${size} of JSON (at most ${jobCharsMax} characters are sent to a worker)`,
  );

const secretDenied = "SECRET_DENIED";
const unreadable = "EVENT_DENIED";
const compensationUnknown = "WORKER_CANNOT_COMPENSATE";
/** Another worker may be sent the job. */
const ofWorker = [...deniedCodes, compensationUnknown];

/** Passing: a worker that registered as able to may undo the run. */
export const cannotCompensate = ({ functionId }: Job): UnsentJob =>
  new UnsentJob(compensationUnknown, `this worker of function ${functionId} cannot undo runs`);

/** Passing: another worker's credential may be allowed to have the secrets. */
export const secretsDenied = ({ functionId, functionVersion }: Job): UnsentJob =>
  new UnsentJob(
    secretDenied,
    `the worker's credential may not read the secrets of version ${functionVersion} of function ${functionId}`,
  );

/** Passing likewise. */
export const eventDenied = ({ functionId }: Job): UnsentJob =>
  new UnsentJob(
    unreadable,
    `the worker's credential may not read the event that the run of function ${functionId} began with`,
  );

export const definitionUnread = ({ functionId, functionVersion }: Job, cause: unknown): UnsentJob =>
  new UnsentJob(
    "DEFINITION_UNREADABLE",
    `the run is pinned to version ${functionVersion} of function ${functionId}, which cannot be read`,
    cause,
  );

export interface UnsentDeps {
  runs: Pick<Runs, "putOff">;
  log: Log;
  /** Writes that are not over yet; shared with `GiveBack.underWay`, so that a drain waits for both. */
  underWay: Set<Promise<void>>;
}

/**
 * Puts off the run of a job that cannot be sent: the run is tried again later, and fails after too many tries
 * unless the cause is passing.
 */
export function openUnsent({ runs, log, underWay }: UnsentDeps) {
  async function putOff(job: Job, error: unknown): Promise<void> {
    const { environmentId, runId, functionId, executionSeq } = job;
    const known = error instanceof UnsentJob ? error : undefined;
    const code = known?.code ?? "JOB_UNSENDABLE";
    const message = known?.message ?? "the job cannot be sent to a worker";
    const cause = known ? known.cause : error;
    const { tries, failed } = await runs.putOff(
      { environmentId, runId, executionSeq, leaseHash: leaseHashOf(job.leaseToken) },
      { code, message, isPassing: known ? known.isPassing : !isOfRow(error) },
    );
    log.warn(failed ? "job.unsendable" : "job.put_off", { runId, functionId, code, tries, error: cause });
  }

  return (job: Job, error: unknown): void => {
    const settled = putOff(job, error)
      // The run is tried again when its lease ends.
      .catch((reason: unknown) => log.warn("job.not_put_off", { runId: job.runId, error: reason }))
      .finally(() => underWay.delete(settled));
    underWay.add(settled);
  };
}
