import type { Instant } from "../../../../kit/clock.ts";
import type { AssignedJob } from "../../jobs/rules.ts";
import { readFence } from "../report-body.ts";
import type { JobReports, SentStep } from "./job-reports.ts";

/** The fence of an assignment, in the words of the wire. */
export interface JobFence {
  execution_seq: number;
  lease_token: string;
}

/** The fence that a message claims to have; unchecked. */
export type SentFence = { execution_seq?: unknown; lease_token?: unknown };

/** A job of this stream's worker, from its assignment to its last report. */
export interface StreamJob {
  /** Undefined when an earlier stream of the worker got the assignment. */
  job: AssignedJob | undefined;
  fence: JobFence;
  acked: boolean;
  /** Of `clock.elapsed()`. */
  sentAt: number;
  leaseUntil: Instant;
  reports: JobReports;
  /** Steps that have started and not ended. */
  started: Map<string, { name: string; type: SentStep["type"]; at: Instant }>;
}

export interface StreamJobsOptions {
  /** Beyond this many jobs, a job of an earlier stream is not taken over. */
  jobsMax: number;
  /** `job` is undefined for a job of an earlier stream. */
  newJob: (jobId: string, fence: JobFence, job: AssignedJob | undefined) => StreamJob;
  /** A message named a job that this stream does not have; only logged. */
  onIgnored: (what: string, jobId: string, reason: string) => void;
  /** Reports of a job that is no longer held have been stored. */
  onSettled: () => void;
}

/** The jobs that one worker holds through its stream, and the reports that are still to be stored. */
export class StreamJobs {
  readonly #options: StreamJobsOptions;
  readonly #jobs = new Map<string, StreamJob>();
  /** Jobs that an earlier stream of the worker was assigned and that still run: they occupy slots. */
  readonly #earlier = new Set<string>();
  readonly #settling = new Set<Promise<void>>();

  constructor(options: StreamJobsOptions) {
    this.#options = options;
  }

  /** Slots of the worker that are occupied. */
  get slotsUsed(): number {
    return this.#jobs.size + this.#earlier.size;
  }

  /** Neither a job is held nor a report on its way to the store. */
  get isIdle(): boolean {
    return this.#jobs.size + this.#settling.size === 0;
  }

  entries(): Iterable<[string, StreamJob]> {
    return this.#jobs;
  }

  open(jobId: string, fence: JobFence, job: AssignedJob | undefined): StreamJob {
    const opened = this.#options.newJob(jobId, fence, job);
    this.#jobs.set(jobId, opened);
    return opened;
  }

  /**
   * The job that a message names, if the fences match; otherwise `onIgnored` is called. Throws when the fence
   * is missing.
   */
  named(what: string, jobId: string, sent: SentFence): StreamJob | undefined {
    readFence(jobId, sent);
    const held = this.#jobs.get(jobId);
    const { execution_seq, lease_token } = held?.fence ?? {};
    if (held && lease_token === sent.lease_token && execution_seq === sent.execution_seq) return held;
    this.#options.onIgnored(what, jobId, held ? "stale fence" : "no such job");
    return undefined;
  }

  /**
   * As `named`. A job of an earlier stream is taken over: the store checks its fence when the report is
   * committed.
   */
  namedOrEarlier(what: string, jobId: string, sent: SentFence): StreamJob | undefined {
    const { executionSeq } = readFence(jobId, sent);
    if (this.#jobs.has(jobId) || this.#jobs.size >= this.#options.jobsMax)
      return this.named(what, jobId, sent);
    this.#earlier.delete(jobId);
    return this.open(
      jobId,
      { execution_seq: executionSeq, lease_token: sent.lease_token as string },
      undefined,
    );
  }

  /** What became of the leases that a heartbeat listed. Jobs it did not list keep theirs. */
  noteHeartbeat(leases: readonly { jobId: string; isRenewed: boolean }[], leaseUntil: Instant): void {
    const renewed = new Map<string, boolean>();
    for (const { jobId, isRenewed } of leases) if (!renewed.has(jobId)) renewed.set(jobId, isRenewed);
    for (const [jobId, held] of this.#jobs) {
      const isRenewed = renewed.get(jobId);
      if (isRenewed) held.leaseUntil = leaseUntil;
      else if (isRenewed === false) this.drop(jobId);
    }
    this.#earlier.clear();
    for (const { jobId, isRenewed } of leases)
      if (isRenewed && !this.#jobs.has(jobId)) this.#earlier.add(jobId);
  }

  renewed(jobIds: ReadonlySet<string>, leaseUntil: Instant): void {
    for (const [jobId, held] of this.#jobs) if (jobIds.has(jobId)) held.leaseUntil = leaseUntil;
  }

  /**
   * The job occupies no slot from now on; what it has reported is still stored. False when it was not held.
   */
  drop(jobId: string): boolean {
    const held = this.#jobs.get(jobId);
    if (!held) return false;
    this.#jobs.delete(jobId);
    this.settle(held.reports.settled());
    return true;
  }

  /** The worker runs the job no longer, whichever of its streams got the assignment. */
  end(jobId: string): void {
    this.#earlier.delete(jobId);
    this.drop(jobId);
  }

  /** A report is on its way to the store: the stream does not end before `work` does. */
  settle(work: Promise<void>): void {
    const settled = work.then(() => {
      this.#settling.delete(settled);
      this.#options.onSettled();
    });
    this.#settling.add(settled);
  }

  async settled(): Promise<void> {
    await Promise.all(this.#settling);
  }

  /** The stream is over: forgets all jobs, and answers those that the worker had not acked. */
  clear(): AssignedJob[] {
    const unacked = [...this.#jobs.values()].flatMap(({ acked, job }) => (acked || !job ? [] : job));
    this.#jobs.clear();
    return unacked;
  }
}
