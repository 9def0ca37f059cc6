import type { Duration } from "./duration.ts";
import type { ReportedError } from "./errors.ts";

/** Event names and what their data looks like: `type Events = { "order.placed": { orderId: string } }`. */
export type EventMap = Record<string, unknown>;

export type RunStatus =
  | "waiting_for_capacity"
  | "waiting"
  | "running"
  | "paused"
  | "completed"
  | "failed"
  | "cancelled";

export type FunctionStatus = "active" | "paused" | "archived";

/** Instants are RFC 3339 texts with milliseconds; a field the server left out is undefined. */
export interface Run {
  id: string;
  functionId: string;
  functionVersion: number;
  eventId: string;
  eventName: string;
  status: RunStatus;
  /** `sleep`, `wait_event`, `invoke`, `injection` or `deployment_gone`, while paused. */
  pauseReason?: string;
  attempt: number;
  maxAttempts: number;
  /** A person asked for a pause; it takes effect when the worker reports next. */
  pauseRequested?: boolean;
  workerId?: string;
  /** The value at the function's `actorKey`. */
  actorId?: string;
  /** The run that invoked this one, and the step it did so in. */
  parentRunId?: string;
  parentStepId?: string;
  input: unknown;
  output: unknown;
  error?: ReportedError;
  cancellationCause?: string;
  createdAt: string;
  updatedAt: string;
  startedAt?: string;
  endedAt?: string;
  /** `compensating` while it is undone before it ends. */
  phase?: "compensating";
  /** How many of its compensations failed for good; its steps of type `compensate` have the errors. */
  compensationFailed?: number;
  /** The deployment that alone may have it, while it is not over; see `pin`. */
  pinnedTo?: string;
  /** When it moves to another, while that one is gone; left out where it stays. */
  movesAt?: string;
  /** `no_worker` while it is queued and no connected worker serves its function. */
  blockingReason?: "no_worker";
  /** `policy` while policies keep it from the workers that asked; `runs.get` alone says so. */
  blockingCause?: "policy";
  /** Stored steps that its handler did not reach as before, at most 20. */
  nondeterminism?: StepDeviation[];
  /** What it is found by: `run.set`, and what its function takes from events. */
  attributes?: Record<string, AttributeValue>;
  /** Of a failed run: the group of its failure, see `client.errors`. */
  errorGroup?: string;
  /** Oldest first, where `getRun` is asked for them. */
  attemptLog?: RunAttempt[];
  /** When its values were overwritten: `{ $redacted: true, at, by }` stands where they were. */
  redactedAt?: string;
  redactedBy?: string;
}

/** A stored step that a re-entered handler did not reach (`unreached`), or reached in another `order`. */
export interface StepDeviation {
  stepId: string;
  name: string;
  kind: "unreached" | "order";
}

/** What a run is found by. A name keeps its type in its environment. */
export type AttributeValue = string | number | boolean | Date;

/** All that is given must be met. */
export interface AttributeCondition {
  eq?: AttributeValue;
  lt?: AttributeValue;
  lte?: AttributeValue;
  gt?: AttributeValue;
  gte?: AttributeValue;
  /** Of texts. */
  prefix?: string;
  exists?: true;
}

export interface Step {
  /** The server's id of the row, `step_…`. */
  id: string;
  /** The SDK's id, `{runId}:{name}:{n}`. */
  stepId: string;
  runId: string;
  name: string;
  /** `invoke`, `sleep`, `compensate`, … */
  type: string;
  /** `completed`, `failed`, `sleeping`, … */
  status: string;
  sequence: number;
  attempt: number;
  durationMs: number;
  output: unknown;
  error?: ReportedError;
  /** Name of the step that this one undoes. */
  compensationFor?: string;
  /** For a failed step with `retry`: how often it was tried and may be, and when it is tried again. */
  tries?: number;
  maxTries?: number;
  retryAt?: string;
  /** When and by whom the output was last replaced. */
  patchedAt?: string;
  patchedBy?: string;
  startedAt?: string;
  endedAt?: string;
  /** Its tries that failed, oldest first, where `getRunSteps` is asked for them. */
  tryLog?: StepTry[];
  /** As of a run. */
  redactedAt?: string;
  redactedBy?: string;
}

export interface TriggerDefinition {
  event?: string;
  /** CEL over `event` and `data`; only events for which it is true start a run. */
  expression?: string;
  /** Five fields, or six with leading seconds. */
  cron?: string;
}

/** A function as the server registers it: made by `createFunction` from its options, which explain it. */
export interface FunctionDefinition {
  id: string;
  name?: string;
  description?: string;
  triggers?: TriggerDefinition[];
  retry?: { maxAttempts?: number; initialDelayMs?: number; backoffFactor?: number; maxDelayMs?: number };
  timeoutMs?: number;
  /** Runs at a time; with `key`, a path inside the event's data, per value. */
  concurrency?: { limit: number; key?: string };
  debounce?: { periodMs: number; key?: string; maxWaitMs?: number };
  /** Higher goes first: -600 to 600, the seconds by which a run precedes others; or CEL over the event. */
  priority?: number | string;
  throttle?: { limit: number; periodMs: number; burst?: number; key?: string };
  rateLimit?: { limit: number; periodMs: number; key?: string };
  idempotency?: { key: string; periodMs?: number };
  /** One run at a time per value at `key`: meanwhile events start none (`skip`) or replace it (`cancel`). */
  singleton?: { mode: "skip" | "cancel"; key?: string };
  startWithinMs?: number;
  batch?: { size: number; timeoutMs: number; key?: string };
  /** A path in the event's data: runs with one value prefer one worker, which gets it as `run.actorId`. */
  actorKey?: string;
  /** Cancels a run when an event comes whose data equals that of the run's own event at the path `match`. */
  cancelOn?: { event: string; match: string }[];
  /** Names of secrets; each execution gets their values. */
  secrets?: string[];
  /** Keeps what time travel needs; `recordingProfile` says how much, `recordingRetention` how long. */
  recording?: boolean;
  recordingProfile?: "all" | "run_lifecycle" | "steps";
  recordingRetention?: `${number}d` | `${number}y` | "forever";
  /** `push`: the server calls `endpointUrl`, see `serve`. Default: `push` with `endpointUrl`, else `pull`. */
  mode?: "pull" | "push";
  endpointUrl?: string;
  /**
   * What its runs are found by, from the data of their events: a path of a text, or a path and its type. At
   * most 32; what has another type in an event is left out, which emit's answer tells.
   */
  attributes?: Record<string, string | { path: string; type?: "text" | "number" | "time" | "bool" }>;
  /** Free for your own use; a change raises the version. */
  metadata?: Record<string, unknown>;
  /** Kept in the function's history. */
  changeReason?: string;
  /** Whether a run that is cancelled is undone first, as one that failed is. Default true. */
  compensateOnCancel?: boolean;
  /**
   * For a run whose handler does not come its way again over the stored steps: it continues and shows them
   * (`warn`, the default), or fails with the code NONDETERMINISM at its next wait or its end (`fail`).
   */
  nondeterminism?: "warn" | "fail";
  /**
   * A run stays with the deployment of the worker that takes it first, with all its attempts and until it is
   * undone, while a worker of that deployment is connected. Default false. Not for `push`.
   */
  pin?: boolean;
  pinGraceMs?: number;
  /** What becomes of it then: it moves to the newest deployment (default), or waits for `runs.move`. */
  pinGone?: "move" | "hold";
}

/** What a worker registers beyond the definition. */
export interface RegisteredDefinition extends FunctionDefinition {
  /** Ends of a run that its worker is asked to undo first. */
  compensateOn?: ("failure" | "cancel")[];
  /** Its worker handles failures. */
  onFailure?: boolean;
}

export interface RegisteredFunction extends RegisteredDefinition {
  slug: string;
  status: FunctionStatus;
  /** Rises with every change of the definition, the handler's code included. */
  version: number;
  createdAt: string;
  updatedAt: string;
  /** No connected worker serves it. */
  unserved?: boolean;
  /** Connected workers serve different definitions of it. */
  definitionsDiffer?: boolean;
}

export interface EmitOptions {
  /** A second call with this key in 24 hours returns the first event. It makes the call safe to repeat. */
  idempotencyKey?: string;
  metadata?: Record<string, unknown>;
  /** Version of the event's schema. Default 1. */
  version?: number;
  /** Emits it later: after a duration, or at a time; at most 366 days ahead. Not in `emitMany`. */
  delay?: Duration;
  at?: Date | string;
  /** Where the event's trace stands (W3C Trace Context). Default: the connection's `traceparent`. */
  traceparent?: string | undefined;
}

export interface Emitted {
  eventId: string;
  /** Empty when no function matched. */
  runIds: string[];
  /** Position in the environment's log. */
  sequence: number;
  /** Of a delayed event, which has no `eventId` and no `sequence` yet: what cancels it. */
  delayed?: { id: string; dueAt: string };
  /** What flow control made of the event; left out for nothing. */
  notices?: EmitNotice[];
  /** Functions whose runs wait because no connected worker is known to serve them; left out for none. */
  unserved?: string[];
}

/** An event that is emitted later. */
export interface DelayedEventRecord {
  id: string;
  name: string;
  due_at: string;
  created_at: string;
}

export interface EmitNotice {
  functionId: string;
  /** The function's option. */
  option: string;
  /** `failed`: its expression does not apply to the event. `skipped`: no run was started. */
  outcome: string;
  message: string;
}

export interface Published {
  eventId: string;
  /** Position among all messages on topics of the environment. */
  sequence: number;
}

export interface EventRecord {
  id: string;
  name: string;
  source: string;
  timestamp: string;
  created_at: string;
  [field: string]: unknown;
}

/** Where lines of a worker go; the console by default, from SVC_LOG_LEVEL (default `info`) on. */
export interface Logger {
  debug(message: string, fields?: Record<string, unknown>): void;
  info(message: string, fields?: Record<string, unknown>): void;
  warn(message: string, fields?: Record<string, unknown>): void;
  error(message: string, fields?: Record<string, unknown>): void;
}

export type LineLevel = "debug" | "info" | "warn" | "error";

/** What a handler writes: it is kept with its run. */
export interface RunLine {
  level: LineLevel;
  text: string;
  fields?: Record<string, unknown> | undefined;
  /** Name of the step that wrote it. */
  step?: string | undefined;
}

/** A line to be sent. `seen`: lines outside of steps that the handler reached with it; else undefined. */
export interface WrittenLine extends RunLine {
  seen?: number | undefined;
}

/** One attempt of a run. */
export interface RunAttempt {
  /** From 1. Counted on after a resume. */
  number: number;
  /** The last worker that had it. */
  workerId: string;
  /** Which build that worker was, where it said so. */
  deployment?: string;
  startedAt: string;
  /** Undefined while it is under way. */
  endedAt?: string;
  outcome?: "completed" | "failed" | "cancelled";
  error?: ReportedError;
  /** Until the next attempt. */
  retryInMs?: number;
  /** How often the handler was entered. */
  executions: number;
  /** How many of these ended without a report of their worker. */
  lost?: number;
}

/** A try of a step that failed. */
export interface StepTry {
  /** Counted by the step's own `retry`; else 1. */
  number: number;
  /** The run's. */
  attempt: number;
  workerId: string;
  startedAt?: string;
  endedAt: string;
  error: ReportedError;
  /** When the step is tried again by itself. */
  retryAt?: string;
}

/** A line that a handler wrote, to its `log` or, where its worker captures it, to `console`. */
export interface RunLogLine extends RunLine {
  at: string;
  attempt: number;
  workerId: string;
}

export interface RunLogs {
  /** Oldest first: at most 64 KiB a run, 200 lines an attempt and 1 KiB a line. */
  lines: RunLogLine[];
  /** Lines beyond that. */
  leftOut: number;
  /** `after` of the next call: what was written since. */
  cursor: string;
}
