import type { Fault } from "../../../kit/fault.ts";
import type { Store } from "../../../store/store.ts";
import type { AssignedJob, Job } from "../jobs/rules.ts";
import type { UnreadReport } from "./refused-report.ts";
import type { LeaseTerms, RegisterWorkerInput } from "./registration.ts";
import type { LiveWorker, RegisteredWorker } from "./registry.ts";
import type { ReportBody } from "./report-body.ts";
import type { Rights } from "./rights.ts";
import type { WorkerStreams } from "./stream/connections.ts";

export interface AckInput {
  job_id: string;
  run_id?: string;
  execution_seq?: number;
  lease_token?: string;
  /** How long the lease lasts from now on; the configured time when left out. */
  lease_ms?: number;
}

/** The result of one report or ack of an exchange. */
export type ExchangeResult = { jobId: string; fault: Fault | undefined };

export interface ExchangeAnswer {
  results: ExchangeResult[];
  acked: ExchangeResult[];
  jobs: AssignedJob[];
}

export interface Workers {
  /** A pull worker over one stream in both directions. */
  connect: WorkerStreams["connect"];
  cancelled: WorkerStreams["cancelled"];
  /** The environment is gone: its polls and streams end, and its workers are forgotten. */
  forgetEnvironment(environmentId: string): void;
  /** Commits the report of a call to an endpoint, the same way as a worker's. */
  reportOf(job: Pick<Job, "environmentId" | "jobId">, report: ReportBody): Promise<void>;
  /** The tick of loop `workers.streams`. */
  lookOnce: WorkerStreams["lookOnce"];
  /**
   * Tells workers on streams that this server stops. Resolves once the jobs they had not started are back in
   * the queue.
   */
  drain(): Promise<void>;
  register(environmentId: string, input: RegisterWorkerInput, terms?: LeaseTerms): Promise<RegisteredWorker>;
  /** What the worker gets of what it asks of its leases. */
  /** Whether reports may say all that a handler waits for. */
  takesWaits(): Promise<boolean>;
  leaseTerms(asked: { lease_ms?: number; instance?: string }): LeaseTerms;
  /** `conflicts`: functions of which another connected worker serves another definition. */
  heartbeat(
    environmentId: string,
    workerId: string,
    input: { activeJobs?: number; jobIds: readonly string[]; terms?: LeaseTerms },
  ): Promise<{ conflicts: string[]; cancelledJobs: string[] }>;
  /** The worker ends in order. Of another process that has its name by now nothing changes. */
  leave(environmentId: string, workerId: string, terms: LeaseTerms): Promise<void>;
  list(environmentId: string): Promise<LiveWorker[]>;
  /** Waits up to the hold time for a first job. */
  poll(
    environmentId: string,
    workerId: string,
    available: number | undefined,
    signal: AbortSignal,
    rights?: Rights,
  ): Promise<AssignedJob[]>;
  ack(environmentId: string, workerId: string, input: AckInput): Promise<void>;
  report(
    environmentId: string,
    workerId: string,
    jobId: string,
    sent: ReportBody,
    rights?: Rights,
  ): Promise<void>;
  /**
   * A report of this job was larger than the server reads. With the lease's token it fails the run, since a
   * worker drops the job; without one, when the lease ends and nothing else came (see `Runs.noteRefusal`).
   */
  reportUnread(environmentId: string, report: UnreadReport, fault: Fault): Promise<void>;
  exchange(
    environmentId: string,
    workerId: string,
    input: {
      reports: readonly (ReportBody & { job_id: string })[];
      acks: readonly AckInput[];
      available: number;
      holdMs?: number;
      terms: LeaseTerms;
      /** Undefined when the worker does not say what it holds. */
      held: readonly string[] | undefined;
    },
    signal: AbortSignal,
    rights?: Rights,
  ): Promise<ExchangeAnswer>;
  /** The tick of loop `workers.heartbeats`: stores the heartbeats of polls. */
  flushHeartbeats(): Promise<void>;
  /** The tick of loop `workers.forget`: deletes workers without a heartbeat for long. */
  forgetOnce(write: Store["write"]): Promise<void>;
}
