import type { SvcFunction } from "../steps/svc-function.ts";
import { SvcError } from "../wire/errors.ts";
import type { LastSequence } from "../wire/sequence.ts";
import type { Assignment } from "../wire/wire.ts";
import type { Courier } from "./courier.ts";
import { type JobOptions, type RunningJob, startJob } from "./job.ts";
import { createLease, type Lease, type Stamp, youngMs } from "./lease.ts";
import type { LeaseThread } from "./lease-thread.ts";

export interface WorkerJobsOptions
  extends Pick<JobOptions, "call" | "checkpointMs" | "keepsConsole" | "log"> {
  functions: ReadonlyMap<string, SvcFunction>;
  last: LastSequence;
  concurrentMax: number;
  /** Functions whose runs the server hands out to be undone. */
  undoneLater: ReadonlySet<string>;
}

/** A job as a heartbeat names it. */
export interface ActiveJob {
  job_id: string;
  started_at: string;
}

/** The jobs of a worker that have not sent their last report, each with its lease. */
export class WorkerJobs {
  readonly #options: WorkerJobsOptions;
  readonly #active = new Map<string, { job: RunningJob; lease: Lease }>();
  /** Renews leases beside this thread, where there is one. */
  thread: LeaseThread | undefined;
  /** How long a lease lasts that was made just now; undefined from servers that do not tell it. */
  leaseMs: number | undefined;
  /** The server takes all that a handler waits for. */
  takesWaits = false;
  /** Jobs whose handlers are not over; the last report of a job no longer takes up room. */
  #busyCount = 0;
  #doubtedAt = Number.NEGATIVE_INFINITY;

  constructor(options: WorkerJobsOptions) {
    this.#options = options;
  }

  get count(): number {
    return this.#active.size;
  }

  /** How many jobs could be started now. */
  get room(): number {
    return this.#options.concurrentMax - this.#busyCount;
  }

  /** A poll or the stream broke: see `Lease.doubt`. */
  doubt(): void {
    this.#doubtedAt = performance.now();
    for (const { lease } of this.#active.values()) lease.doubt();
  }

  /** An old lease, or one from before a break, may have been ended before the job came here. */
  #isDoubted(leftMs: number | undefined): boolean {
    const { leaseMs } = this;
    if (leaseMs === undefined || leftMs === undefined) return false;
    return leaseMs - leftMs >= youngMs(leaseMs) || performance.now() - this.#doubtedAt < youngMs(leaseMs);
  }

  has(jobId: string): boolean {
    return this.#active.has(jobId);
  }

  list(): ActiveJob[] {
    return Array.from(this.#active.values(), ({ job }) => ({ job_id: job.jobId, started_at: job.startedAt }));
  }

  /** `confirm` throws SvcError when the job is no longer this worker's. */
  start(assignment: Assignment, askedAt: Stamp, courier: Courier, confirm: () => Promise<void>): void {
    const { functions, call, last, checkpointMs, keepsConsole, undoneLater, log } = this.#options;
    // The client of the worker reads nothing that is older than the events of its jobs.
    if (assignment.sequence !== undefined) last.note(assignment.sequence);
    this.#busyCount++;
    let hasRoom = false;
    const { leaseMs, thread } = this;
    const { lease_ms: leftMs } = assignment;
    const lease = createLease(askedAt, { leftMs, leaseMs, isDoubted: this.#isDoubted(leftMs) }, confirm);
    const place = thread?.hold(assignment.job_id);
    const job = startJob({
      assignment,
      target: functions.get(assignment.function_id),
      courier,
      lease,
      call,
      takesWaits: () => this.takesWaits,
      ...{ checkpointMs, keepsConsole },
      isUndoneLater: undoneLater.has(assignment.function_id),
      log,
      onRoom: () => {
        if (!hasRoom) this.#busyCount--;
        hasRoom = true;
      },
    });
    this.#active.set(job.jobId, { job, lease });
    void job.done.then(() => {
      this.#active.delete(job.jobId);
      if (place !== undefined) thread?.release(place);
      courier.nudge();
    });
  }

  ids(): string[] {
    return [...this.#active.keys()];
  }

  /** Takes the answer to a heartbeat that named `jobs`: the `lost` ones are other workers' by now. */
  renew(jobs: readonly ActiveJob[], lost: ReadonlySet<string>, askedAt: Stamp): void {
    for (const { job_id } of jobs) {
      if (lost.has(job_id)) this.end(job_id, leaseLost());
      else this.#active.get(job_id)?.lease.renewed(askedAt);
    }
  }

  /** The server has taken the job away. */
  end(jobId: string, reason: SvcError): void {
    this.#active.get(jobId)?.job.end(reason);
  }

  abandonAll(reason: SvcError): void {
    for (const { job } of this.#active.values()) job.abandon(reason);
  }

  /** Resolves when no job is active. A poll that was answered while it was given up may still bring some. */
  async finished(): Promise<void> {
    while (this.#active.size > 0) await Promise.all(Array.from(this.#active.values(), ({ job }) => job.done));
  }
}

export const leaseLost = (): SvcError =>
  new SvcError("STALE_EXECUTION", "the lease went to another worker", { status: 409 });
