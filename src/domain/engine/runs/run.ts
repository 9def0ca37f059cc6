import type { Instant } from "../../../kit/clock.ts";
import type { StoredMatch } from "../waits/rules.ts";

/** proto/README.md 'Run statuses'. */
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
export type ExecutionState =
  | "queued"
  | "leased"
  | "retrying"
  | "sleeping"
  /** Between the two halves of a resume. */
  | "resuming"
  /** For an event; due at the wait's deadline. */
  | "waiting"
  /** For the run that its step started; due at the invoke's deadline. */
  | "invoking"
  /** By a person, until a person ends it: never due. */
  | "held";

export type StepStatus = "completed" | "failed" | "sleeping" | "waiting" | "timed_out";

export type StepType = "invoke" | "compensate" | "sleep" | "wait_for_event" | "invoke_function";

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
  /** The step of a run that invokes it. */
  parent?: RunParent;
  /** The lane whose limit it counts against (functions/lane.ts); null when its function has no limit. */
  laneId: string | null;
  /** Born claimed: a worker of this node waits for it already. */
  lease: NewLease | null;
  /** Events that end it; absent: none. */
  cancels?: readonly NewCancel[];
}

/** One `cancelOn` of a function, with what it looks for once the run's event is known. */
export interface NewCancel {
  eventName: string;
  match: StoredMatch;
}

export interface RunParent {
  runId: string;
  stepId: string;
  /** How many invokes lead to the parent; 0 when none does. */
  depth: number;
}

export interface NewLease {
  /** SHA-256 of the token; the token itself goes only to the worker. */
  hash: string;
  workerId: string;
  expiresAt: Instant;
  /** Of a run with a lane: its limit. The lease is given when the lane has room and nothing older; else the run is queued. */
  laneLimit?: number;
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

/** How a run stands for a caller that waited for its end. */
export interface RunResult {
  runId: string;
  functionId: string;
  status: RunStatus;
  /** JSON text. */
  output: string | null;
  error: RunError | null;
  /** From the first claim, or from the creation while there was none, to the end or until now. */
  durationMs: number;
  isOver: boolean;
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
  /** JSON text: what an approver of a wait, or a child, is shown. */
  input: string | null;
  waitEventName: string | null;
  /** When the wait ends without its event. */
  waitTimeoutAt: Instant | null;
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
  type: StepType;
  /** `failed`: an invoke whose worker understands that. */
  status: "completed" | "failed";
  /** JSON texts. */
  output: string | null;
  error: string | null;
}

/** A job that could not be handed to a worker for what it is itself: it goes back to its queue, due again later. */
export interface PutOff {
  /** `SECRET_UNREADABLE`: why, in the word that the run fails with in the end. */
  code: string;
  /** How many times in a row, this one included. */
  tries: number;
  until: Instant;
}
