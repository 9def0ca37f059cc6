import type { Static } from "@sinclair/typebox";
import { type Instant, parseRfc3339 } from "../../../../kit/clock.ts";
import { Fault } from "../../../../kit/fault.ts";
import type { Basics } from "../../../../store/store.ts";
import type { AssignedJob } from "../../jobs/rules.ts";
import { progressStepsMax } from "../limits.ts";
import { type ReportBody, readFence, type StepShape } from "../report-body.ts";
import { refusedResult } from "../rules.ts";
import { stepGatherMs } from "./limits.ts";

export type SentStep = Static<typeof StepShape>;

export interface JobReportsOptions extends Basics<"clock" | "log"> {
  jobId: string;
  fence: { execution_seq: number; lease_token: string };
  /** The sequence of the execution's first step; undefined when an earlier stream got the assignment. */
  stepBase: number | undefined;
  /**
   * Commits a report. Rejects with `aborted` when the fence is lost, `unavailable` when it may be sent again.
   */
  submit: (report: ReportBody) => Promise<void>;
  /** Aborted when the stream has ended: a report that the store cannot take now is not tried again. */
  signal: AbortSignal;
  onStored: (stepId: string, fault: Fault | undefined) => void;
  /** A report cannot be stored: later reports of this job are ignored. */
  onLost: (fault: unknown) => void;
  /** These steps or this last report no longer wait to be stored. */
  onRemoved: (removed: readonly object[]) => void;
}

/** Commits the steps and the last report of one job in order, many steps in one transaction. */
type JobReports = ReturnType<typeof openJobReports>;

const retryMsMin = 100;
const retryMsMax = 5_000;

export function openJobReports(options: JobReportsOptions) {
  const { jobId, fence, clock, log, submit, signal } = options;
  const unsent: SentStep[] = [];
  let storedCount = options.stepBase;
  let last: ReportBody | undefined;
  let over = false;
  let sending: Promise<void> | undefined;

  /** If `steps` is not a list, it stays as it is and `checkReport` refuses it. */
  const withSteps = (report: ReportBody, steps: SentStep[]): ReportBody => ({
    ...report,
    ...fence,
    ...(Array.isArray(report.steps ?? []) && { steps: [...steps, ...(report.steps ?? [])] }),
    ...(storedCount !== undefined && { step_offset: storedCount }),
  });

  /** Tries until the report is stored or refused for good. */
  async function persist(report: ReportBody): Promise<void> {
    for (let waitMs = retryMsMin; ; waitMs = Math.min(retryMsMax, waitMs * 2)) {
      try {
        return await submit(report);
      } catch (error) {
        const again =
          error instanceof Fault && (error.kind === "unavailable" || error.kind === "resource_exhausted");
        if (!again || signal.aborted) throw error;
        await clock.sleep(waitMs, signal);
      }
    }
  }

  const refusal = ({ message, code }: Fault): ReportBody => ({
    ...fence,
    status: "failed",
    error: refusedResult(message, code),
  });

  async function sendOnce(): Promise<boolean> {
    const count = Math.min(unsent.length, progressStepsMax);
    const ending = last !== undefined && count === unsent.length;
    if (!ending && count === 0) return false;
    const steps = unsent.slice(0, count);
    const report: ReportBody = ending ? last! : { ...fence, status: "progress" };
    await persist(withSteps(report, steps));
    const sent = unsent.splice(0, count);
    if (storedCount !== undefined) storedCount += count;
    options.onRemoved(sent);
    for (const step of steps) options.onStored(step.id, undefined);
    return !ending;
  }

  async function send(): Promise<void> {
    try {
      if (!last) await clock.sleep(stepGatherMs);
      while (await sendOnce());
    } catch (error) {
      const fault = error instanceof Fault ? error : new Fault("unavailable", "the step was not stored");
      for (const step of unsent) options.onStored(step.id, fault);
      if (error instanceof Fault && error.kind === "invalid_argument") {
        log.warn("worker.report_refused", { jobId, error });
        await persist(refusal(error)).catch(() => {});
        options.onLost(error);
      } else options.onLost(error);
      over = true;
      options.onRemoved(unsent.splice(0));
    } finally {
      if (last) {
        over = true;
        options.onRemoved([last]);
      }
      sending = undefined;
    }
    if (!over && (unsent.length > 0 || last)) start();
  }

  function start(): void {
    sending ??= send();
  }

  return {
    get over() {
      return over || last !== undefined;
    },
    add(step: SentStep) {
      if (over || last) return options.onRemoved([step]);
      unsent.push(step);
      start();
    },
    /** The last report; commits the steps that are not stored yet with it. */
    end(report: ReportBody) {
      if (over || last) return options.onRemoved([report]);
      last = report;
      start();
    },
    /** Resolves once nothing waits to be stored. */
    settled: async () => {
      while (sending) await sending;
    },
  };
}

/** A wait on a stream has an end time (`timeout_at`); reports have the time that is left (`timeout`). */
export function withTimeLeft(report: ReportBody, now: Instant): ReportBody {
  const sent = report.yield as { event_filter?: { timeout_at?: string } } | null | undefined;
  const text: unknown = sent?.event_filter?.timeout_at;
  const at = typeof text === "string" ? parseRfc3339(text) : undefined;
  if (at === undefined) return report;
  const filter = { ...sent?.event_filter, timeout: Math.max(1, at - now) };
  return {
    ...report,
    yield: { ...report.yield, event_filter: filter } as unknown as NonNullable<ReportBody["yield"]>,
  };
}

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
