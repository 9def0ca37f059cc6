import type { Instant } from "../../../kit/clock.ts";
import { type Redaction, redactedError, redactedMark } from "../../../kit/redact.ts";
import { type Sql, sql } from "../../../kit/sql.ts";
import type { NewAttribute, RunAttribute } from "../attributes/rules.ts";
import type { FlowNotice, NewGate } from "../functions/start-options.ts";
import type { StoredMatch } from "../waits/rules.ts";

/** Run statuses, as clients see them. */
export type RunStatus =
  | "waiting_for_capacity"
  | "waiting"
  | "running"
  | "paused"
  | "completed"
  | "failed"
  | "cancelled";

export type TerminalStatus = "completed" | "failed" | "cancelled";

/** The state of an execution; each has one next wake (`executions.wake_at`). */
export type ExecutionState =
  | "queued"
  | "leased"
  | "retrying"
  | "sleeping"
  /** Between the two transactions of a resume. */
  | "resuming"
  /** Waits for an event; due at the wait's deadline. */
  | "waiting"
  /** Waits for a child run; due at the invoke's deadline. */
  | "invoking"
  /** Paused by a person until a resume: never due. */
  | "held"
  /** Waits for a worker of the deployment that it is pinned to; due when it moves to another, if ever. */
  | "stranded";

export type StepStatus = "completed" | "failed" | "sleeping" | "waiting" | "timed_out";

export type StepType = "invoke" | "compensate" | "sleep" | "wait_for_event" | "invoke_function";

/** An error, without what it means for its run. */
export interface ErrorCause {
  message: string;
  /** Of its class; absent for `Error`. */
  name?: string;
  code?: string;
  stack?: string;
  /** What led to it. */
  cause?: ErrorCause | string;
  /** Of an AggregateError. */
  errors?: ErrorCause[];
}

/** What went wrong, as workers report it and callers see it. */
export interface RunError extends ErrorCause {
  retryable: boolean;
  /** For a run that ended when a step ran out of tries: the step's id. A resume tries the step again. */
  exhausted_step?: string;
}

/** What a step failed with. */
export interface StepError extends RunError {
  /** Of a step that is tried by itself: how often it was, and how often it may be. */
  tries?: number;
  max_tries?: number;
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
  /** The concurrency queue that it counts against (`laneOf`); null when its function has no limit. */
  laneId: string | null;
  /** The lease it is created with, when a worker of this node has a reservation for it. */
  lease: NewLease | null;
  /** How far it stands ahead of its creation in the queue; absent for none. */
  headStartMs?: number;
  /** It is cancelled when it has not begun by then; absent for no such limit. */
  startBy?: Instant;
  /** What may skip it; absent for a run that always begins. */
  gate?: NewGate;
  /** What its function's flow control could not do with the event; absent for nothing. */
  notices?: readonly FlowNotice[];
  /** Events that cancel it; absent for none. */
  cancels?: readonly NewCancel[];
  /** What it is found by from its event's data; absent for nothing. */
  attributes?: readonly NewAttribute[];
}

/** One `cancelOn` of a function, with its match resolved against the run's event. */
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
  /** Which build that worker is, where that is known. */
  deployment?: string | undefined;
  expiresAt: Instant;
  /**
   * The limit of the run's concurrency queue. The lease is given when the queue has room and no older run;
   * else the run is queued.
   */
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
  /** The entity to whose stream that event belongs. */
  inputStream: string | null;
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
  /** It is undone before it ends. */
  isCompensating: boolean;
  /** Compensations that failed for good. */
  undoFailed: number;
  /** What it is found by, by name. */
  attributes: readonly RunAttribute[];
  /** Of its failure. */
  errorGroup: string | null;
  /** Stored steps that its handler did not reach as before; empty for none. */
  deviations: readonly DeviatingStep[];
  /** When its values were overwritten: marks stand where they were. */
  redacted?: Redaction;
  /** The deployment that alone may have it, while it is not over. */
  pinnedTo: string | null;
  /** When it moves to another, while that one is gone; null of one that stays. */
  movesAt: Instant | null;
}

/** A stored step that a re-entered handler did not reach as before. */
export interface DeviatingStep {
  stepId: string;
  name: string;
  kind: "unreached" | "order";
}

/**
 * What a run ends with once it is undone. It stands in the run's execution for as long as the run is
 * compensating.
 */
export interface RunEnding {
  status: Exclude<TerminalStatus, "completed">;
  error: RunError | null;
  cause: string | null;
  /** The execution before was cut off: what it did last may not be stored. */
  interrupted: boolean;
  /** The worker before the last was lost at a step: unless the last one redid it, its outcome is unknown. */
  lostBefore?: true;
  /** Jobs that were tried to undo it and asked to be tried again. */
  tries: number;
}

/** What a worker that is to undo a run learns of its end. */
export interface CompensatingJob {
  status: RunEnding["status"];
  error?: RunError;
  cause?: string;
  interrupted: boolean;
  /** Further jobs that this one may ask for by a retryable failure. */
  tries_left: number;
}

export interface QueueHint {
  environmentId: string;
  functionId: string;
  /** The concurrency queue, when the function has a limit and the queue is known. */
  laneId?: string;
  /** A lease of the queue ended. `queued` is false when that queued no run. */
  freed?: boolean;
  queued?: boolean;
  /** The first of its runs is queued no earlier: more that it waits for is gathered. */
  inMs?: number;
}

/** The run as a caller that waited for its end gets it. */
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
  error: StepError | null;
  attempt: number;
  startedAt: Instant | null;
  endedAt: Instant | null;
  durationMs: number | null;
  originalOutput: string | null;
  patchedAt: Instant | null;
  patchedBy: string | null;
  compensationFor: string | null;
  /** When a sleep ends, or a failed step is tried again; of a step that was tried for the last time, when. */
  sleepUntil: Instant | null;
  /** JSON text: what an approver of a wait, or a child, is shown. */
  input: string | null;
  waitEventName: string | null;
  /** When the wait ends without its event. */
  waitTimeoutAt: Instant | null;
  createdAt: Instant;
  updatedAt: Instant;
  /** As of a run. */
  redacted?: Redaction;
}

/** Proves that a worker holds the lease; every write of a worker checks it in its transaction. */
export interface Fence {
  runId: string;
  executionSeq: number;
  leaseHash: string;
}

/** A step that a handler does not run again. */
export interface CompletedStep {
  run_id: string;
  step_id: string;
  name: string;
  type: StepType;
  /**
   * Not `completed` only for workers that understand failed steps: an invoke, a step that is tried by itself,
   * or a run that is compensating.
   */
  status: "completed" | "failed" | "timed_out";
  /** Of a wait that timed out: what its yield asked for in place of failing the run. */
  on_timeout: "null" | "throw" | null;
  /** JSON texts. */
  output: string | null;
  error: string | null;
  /** 1 of one that stayed when a resume ran an earlier one again. */
  is_kept: number | null;
  /** Its place: results are handed to the handler in this order. */
  sequence: number;
}

/**
 * Why a job could not be built (a secret that cannot be unsealed): it returns to its queue, due later.
 */
export interface PutOff {
  /** Code of the error that the run fails with after the last try: `SECRET_UNREADABLE`. */
  code: string;
  /** Tries in a row, with this one. */
  tries: number;
  until: Instant;
}

// What the history says of a lease, built in the statement, where the values are:
// {"attempt":2,"execution_seq":5,"worker_id":"w","deployment":"b"}.

/** Names of workers hold no control characters, and deployments nothing that JSON escapes. */
const worker = (lease: string, build: string): string =>
  `COALESCE(',"worker_id":"' || replace(replace(${lease}.worker_id, '\\', '\\\\'), '"', '\\"') || '"', '')
    || COALESCE(',"deployment":"' || ${build}.deployment || '"', '') || '}'`;

/** `lease` names a row with the execution's columns, `build` one with the deployment of its worker. */
export const startedDetail = (lease: string, build: string): Sql =>
  sql.raw(
    `'{"attempt":' || ${lease}.attempt || ',"execution_seq":' || ${lease}.execution_seq || ${worker(lease, build)}`,
  );

/** Of a run that is created with its lease. */
export const startedAtOnce = (alias: string): Sql =>
  sql.raw(`'{"attempt":1,"execution_seq":1' || ${worker(alias, alias)}`);

export interface RedactedRow {
  redacted_at: number | null;
  redacted_by: string | null;
}

export interface RedactedRunRow extends RedactedRow {
  /** Of the event that started it. */
  event_redacted_at: number | null;
  event_redacted_by: string | null;
}

const redactionOf = (at: number | null, by: string | null): Redaction | undefined =>
  at === null ? undefined : { at, by };

/** The stored values are null, so that queries see none: here marks stand where they were. */
export function markedRun(run: Run, row: RedactedRunRow): Run {
  const redacted = redactionOf(row.redacted_at, row.redacted_by);
  const ofInput = redacted ?? redactionOf(row.event_redacted_at, row.event_redacted_by);
  if (!ofInput) return run;
  const input = run.input === null ? null : redactedMark(ofInput);
  if (!redacted) return { ...run, input };
  const value = redactedMark(redacted);
  return {
    ...{ ...run, redacted, input },
    output: run.status === "completed" ? value : null,
    error: run.status === "failed" ? redactedError(redacted) : null,
    attributes: run.attributes.map(({ name }) => ({ name, value: { type: "text", value } })),
  };
}

export function markedStep(step: Step, row: RedactedRow): Step {
  const redacted = redactionOf(row.redacted_at, row.redacted_by);
  if (!redacted) return step;
  const value = redactedMark(redacted);
  return {
    ...{ ...step, redacted },
    input: step.type === "invoke_function" ? value : null,
    output: step.status === "completed" && step.type !== "sleep" ? value : null,
    error: step.status === "failed" ? redactedError(redacted) : null,
    originalOutput: step.patchedAt === null ? null : value,
  };
}
