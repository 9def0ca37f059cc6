import type { Instant } from "../../kit/clock.ts";

/** Words of spec.md 'Run statuses'. */
export type RunStatus =
  | "waiting_for_capacity"
  | "waiting"
  | "running"
  | "paused"
  | "completed"
  | "failed"
  | "cancelled";

export type TerminalStatus = "completed" | "failed" | "cancelled";

/** Where an execution stands; each state has one next wake (see `executions.wake_at`). */
export type ExecutionState = "queued" | "leased" | "retrying" | "sleeping";

export type StepStatus = "completed" | "failed" | "sleeping";

export type StepType = "invoke" | "compensate" | "sleep";

/** What went wrong, as workers report it and callers see it. */
export interface RunError {
  message: string;
  code?: string;
  stack?: string;
  retryable: boolean;
}

/** A run about to be created in the flush of the event that starts it. */
export interface NewRun {
  id: string;
  environmentId: string;
  functionId: string;
  functionVersion: number;
  eventId: string;
  eventName: string;
  mode: "pull" | "push";
  maxAttempts: number;
  timeoutAt: Instant | null;
  actorId: string | null;
  /** Born claimed: a worker of this node waits for it already. */
  lease: NewLease | null;
}

export interface NewLease {
  /** SHA-256 of the token; the token itself goes only to the worker. */
  hash: string;
  workerId: string;
  expiresAt: Instant;
}

export interface Run {
  id: string;
  environmentId: string;
  functionId: string;
  functionVersion: number;
  eventId: string;
  eventName: string;
  mode: "pull" | "push";
  status: RunStatus;
  pauseReason: string | null;
  attempt: number;
  maxAttempts: number;
  actorId: string | null;
  workerId: string | null;
  /** JSON text of the triggering event's data; null when the event is gone. */
  input: string | null;
  output: string | null;
  error: RunError | null;
  cancellationCause: string | null;
  parentRunId: string | null;
  parentStepId: string | null;
  createdAt: Instant;
  startedAt: Instant | null;
  endedAt: Instant | null;
  updatedAt: Instant;
  timeoutAt: Instant | null;
  claimedAt: Instant | null;
}

export interface Step {
  /** Row id, `step_…`. */
  id: string;
  runId: string;
  /** The SDK's id, unique in its run. */
  stepId: string;
  name: string;
  type: StepType;
  sequence: number;
  status: StepStatus;
  /** JSON text. */
  output: string | null;
  error: RunError | null;
  attempt: number;
  startedAt: Instant | null;
  endedAt: Instant | null;
  durationMs: number | null;
  originalOutput: string | null;
  patchedAt: Instant | null;
  patchedBy: string | null;
  compensationFor: string | null;
  sleepUntil: Instant | null;
  createdAt: Instant;
  updatedAt: Instant;
}

/** The proof of being the one who may write: checked in the transaction of every write of a worker. */
export interface Fence {
  runId: string;
  executionSeq: number;
  leaseHash: string;
}

/** A step a handler need not do again. */
export interface CompletedStep {
  run_id: string;
  step_id: string;
  name: string;
  /** JSON text. */
  output: string | null;
  /** Absent: completed. A failed step is one that nobody tries again. */
  status?: "completed" | "failed";
  /** JSON text, of a failed step. */
  error?: string | null;
}
