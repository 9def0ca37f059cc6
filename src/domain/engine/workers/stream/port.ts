import type { Clock } from "../../../../kit/clock.ts";
import type { Log } from "../../../../kit/log.ts";
import type { Dispatcher } from "../../dispatch/dispatcher.ts";
import type { AssignedJob, Job } from "../../jobs/rules.ts";
import type { HeldLease, LeaseState } from "../../runs/execution/leases.ts";
import type { ReportBody } from "../report-body.ts";
import type { Rights } from "../rights.ts";
import type { WorkerRecord } from "../rows.ts";
import type { JobMessage, StreamAnswer, StreamMessage } from "./messages.ts";

/** What one worker's stream needs of the house. */
export interface StreamDeps {
  clock: Clock;
  log: Log;
  leaseMs: number;
  dispatcher: Pick<Dispatcher, "poll">;
  /** Jobs as this worker may have them, without those whose leases ended on the way. */
  assigned: (worker: WorkerRecord, jobs: readonly Job[]) => AssignedJob[];
  /** Commits a report; rejects with the Faults of proto/README.md 'Refused reports'. */
  submit: (worker: WorkerRecord, jobId: string, report: ReportBody) => Promise<void>;
  /** A job as it is written; throws for one that no reader may be able to read. */
  written: (job: AssignedJob) => JobMessage;
  /** Renews leases and notes the sign of life; answers what became of each. */
  heartbeat: (
    worker: WorkerRecord,
    activeJobs: number,
    leases: readonly HeldLease[],
  ) => Promise<LeaseState[]>;
  /** Unstarted jobs go back to the queue; no attempt is spent. */
  giveBack: (jobs: readonly Job[]) => void;
  /** The worker says that it takes no more. */
  onDraining: (worker: { environmentId: string; workerId: string }) => void;
  /** Of the worker's credential. */
  rights?: Rights | undefined;
}

/** One worker's stream, as those see it who serve many. */
export interface WorkerStream {
  readonly worker: WorkerRecord;
  answers(): AsyncGenerator<StreamAnswer>;
  receive(message: StreamMessage): void;
  /** Resolves when there is room for what the next message may bring. */
  ready(): Promise<void>;
  /** What time has brought: acks that did not come, leases that ended, silence. */
  look(): void;
  cancel(runId: string, executionSeq: number, reason: string): void;
  /** The server goes: no further jobs; the stream ends with the last one. */
  shutdown(reason: string, drainTimeoutMs: number): void;
  /** The worker will say nothing more: what it has said is stored, then the stream ends. */
  leave(): Promise<void>;
  /** Over: what was not acked goes back at once. With a fault the worker is told why. */
  close(fault?: unknown): void;
  readonly closed: boolean;
}
