import type { Basics } from "../../../../store/store.ts";
import type { Dispatcher } from "../../dispatch/dispatcher.ts";
import type { AssignedJob, Job } from "../../jobs/rules.ts";
import type { HeldLease, LeaseState } from "../../runs/execution/leases.ts";
import type { LeaseTerms } from "../registration.ts";
import type { ReportBody } from "../report-body.ts";
import type { Rights } from "../rights.ts";
import type { WorkerRecord } from "../rows.ts";
import type { JobMessage, StreamAnswer, StreamMessage } from "./messages.ts";

/** What one worker's stream needs from the server. */
export interface StreamDeps extends Basics<"clock" | "log"> {
  terms: LeaseTerms;
  dispatcher: Pick<Dispatcher, "poll">;
  /** The jobs in the form that the worker's SDK reads, without those whose leases have ended meanwhile. */
  assigned: (worker: WorkerRecord, jobs: readonly Job[]) => AssignedJob[];
  /**
   * Commits a report. Rejects with `aborted` when the fence is lost, `unavailable` when it may be sent again.
   */
  submit: (worker: WorkerRecord, jobId: string, report: ReportBody, leaseMs: number) => Promise<void>;
  /** Encodes a job; throws for one that protobuf readers may refuse. */
  written: (job: AssignedJob) => JobMessage;
  /** Stores the heartbeat and renews the leases; answers the state of each lease. */
  heartbeat: (
    worker: WorkerRecord,
    activeJobs: number,
    leases: readonly HeldLease[],
    leaseMs: number,
  ) => Promise<LeaseState[]>;
  /** Functions of which another connected worker serves another definition, as far as it is known. */
  conflictsOf: (worker: WorkerRecord) => string[];
  takesWaits: () => Promise<boolean>;
  /** Returns jobs that the worker has not started to the queue; no attempt is spent. */
  giveBack: (jobs: readonly Job[]) => void;
  /** The worker takes no more jobs. */
  onDraining: (worker: { environmentId: string; workerId: string }) => void;
  /** What the worker's credential may do; undefined allows all. */
  rights?: Rights | undefined;
}

/** One worker's stream, as `WorkerStreams` uses it. */
export interface WorkerStream {
  /** The worker renewed these leases in another way, by a thread of its own: it is alive. */
  renewed(jobIds: readonly string[]): void;
  readonly worker: WorkerRecord;
  answers(): AsyncGenerator<StreamAnswer>;
  receive(message: StreamMessage): void;
  /** Resolves when there is room for the next message. */
  ready(): Promise<void>;
  /** Handles missing acks, leases that ended and missing heartbeats. */
  look(): void;
  cancel(runId: string, executionSeq: number, reason: string): void;
  /** The server stops: no further jobs are assigned, and the stream ends after the last one. */
  shutdown(reason: string, drainTimeoutMs: number): void;
  /** The worker has closed its side: its reports are stored, then the stream ends. */
  leave(): Promise<void>;
  /**
   * Ends the stream. Jobs that were not acked return to the queue at once. The fault is sent to the worker.
   */
  close(fault?: unknown): void;
  readonly closed: boolean;
}
