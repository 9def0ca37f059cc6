import type { HandlerEvent } from "../steps/svc-function.ts";
import type { ReportedError, SvcError } from "./errors.ts";

/** A job as handed out: contract of the worker routes, snake_case as on the wire. */
export interface Assignment {
  job_id: string;
  run_id: string;
  function_id: string;
  attempt: number;
  max_attempts?: number;
  event: Omit<HandlerEvent, "idempotencyKey"> & { idempotency_key?: string };
  /** All events of a run that a batch began; absent for a run of one event. */
  events?: Assignment["event"][];
  completed_steps: CompletedStep[];
  /** Highest stored sequence + 1; absent means 0. */
  step_sequence_base?: number;
  actor_id?: string;
  context?: {
    trace_id?: string;
    metadata?: Record<string, string>;
    secrets?: Record<string, string>;
    /** Where the handler continues in its trace. */
    traceparent?: string;
    /** The server keeps a span of each step. */
    step_spans?: boolean;
  };
  execution_seq: number;
  lease_token: string;
  /** RFC 3339. */
  lease_expires_at?: string;
  /** Where the run's event stands in the log. */
  sequence?: string;
  /** What was left of the lease when the job was handed out, in milliseconds. */
  lease_ms?: number;
  /** Lines outside of steps that its handler wrote in this attempt, and will reach again. */
  log_seen?: number;
  /** The run ends: nothing is to be done but to undo it. */
  compensating?: Compensating;
}

export interface Compensating {
  status: "failed" | "cancelled";
  /** Of a failed run. */
  error?: ReportedError;
  cause?: string;
  /** The last execution before was cut off: what it did last may not be stored. */
  interrupted: boolean;
  /** Further jobs that a retryable failure may ask for. */
  tries_left: number;
}

export interface CompletedStep {
  step_id: string;
  name: string;
  output: unknown;
  /** Absent means completed. */
  status?: "completed" | "failed" | "timed_out";
  /** JSON, or its text. */
  error?: unknown;
  /** It stayed when a resume ran an earlier step again: its place among the others says nothing. */
  kept?: boolean;
}

/** One of the things that a step waits for. */
export type Condition = { name: string } & (
  | { event: string; match?: string; match_value?: unknown; has_match_value?: boolean }
  | { stream: { entity_id: string; version?: number; after?: number } }
  | { key: KeyCondition }
  | { run: { run_id: string } }
);

export interface KeyCondition {
  bucket: string;
  key: string;
  after?: number;
  /** Base64. */
  equals?: string;
  exists?: true;
  deleted?: true;
}

/** Why an execution stops although its run continues. */
export type Yield = { step_id: string; step_name: string } & (
  | {
      type: "sleep";
      /** RFC 3339, by this machine's clock. */
      until: string;
      /** In place of it, by the server's clock. */
      duration_ms?: number;
    }
  /** The step is tried again then, within the attempt. */
  | { type: "retry_step"; duration_ms: number }
  | {
      type: "wait_for_event";
      event_filter: {
        event: string;
        /** Absent fails the run. */
        on_timeout?: "null" | "throw";
        match?: string;
        match_value?: unknown;
        /** The value is there although it is null. */
        has_match_value?: boolean;
        /** A number with its unit; the server's default is 7d. */
        timeout?: string;
        payload?: unknown;
      };
    }
  | {
      type: "wait_for_events";
      mode: "any" | "all";
      conditions: Condition[];
      timeout?: string;
      on_timeout: "null" | "throw";
    }
  | { type: "wait_for_signal"; signal: string; timeout?: string; on_timeout: "null" | "throw" }
  | {
      type: "invoke_function";
      function_id: string;
      input?: unknown;
      invoke_timeout_ms?: number;
      /** Functions with event triggers, too. */
      any_function?: boolean;
    }
  | { type: "invoke_function_async"; function_id: string; input?: unknown; any_function?: boolean }
);

/** A wait among all that a handler waits for; `after` is the step whose result its branch was handed last. */
export type AskedWait = Yield & { after?: string };

/** As on the server: things that a handler may wait for at a time. */
export const openWaitsMax = 1_000;

/** A step as it is reported. */
export interface ReportedStep {
  id: string;
  name: string;
  type: "invoke" | "compensate" | "sleep";
  status: "completed" | "failed";
  output?: unknown;
  error?: ReportedError;
  started_at: string;
  ended_at: string;
  duration_ms: number;
  compensation_for?: string;
  /** Of a failed step with `retry`. */
  tries?: number;
  max_tries?: number;
  /** Left out when it is not tried again. */
  retry_in_ms?: number;
}

export const progressStepsMax = 500;
export const exchangeReportsMax = 200;
/** Characters of reports in a request, well under the server's limit of 4 MiB; a larger report goes alone. */
export const exchangeCharactersMax = 1_000_000;

/** A report on its way. `text` is its JSON, written once. */
export interface Report {
  readonly jobId: string;
  readonly text: string;
}

/** A report that the server has not answered yet, and what settles the promise of its sender. */
export interface PendingReport extends Report {
  resolve(outcome: "stored" | "withdrawn"): void;
  reject(error: SvcError): void;
}

/** What became of one report; undefined = taken. */
export type Outcome = SvcError | undefined;

/** Where the code of a run is in its trace; with a step's id, that step's code. Undefined for no trace. */
export type TraceparentOf = (stepId?: string) => string | undefined;

/** The id that the server gives the span of a step: FNV-1a, 64 bits (`kit/trace.ts`). */
export function spanIdOf(runId: string, stepId: string): string {
  let hash = 0xcbf29ce484222325n;
  for (const byte of new TextEncoder().encode(`${runId}/${stepId}`))
    hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  return (hash || 1n).toString(16).padStart(16, "0");
}

/** Where the server keeps no spans of steps, these continue from where their run does. */
export function traceparentsOf({
  run_id: runId,
  context: { traceparent, step_spans } = {},
}: Pick<Assignment, "run_id" | "context">): TraceparentOf {
  return (stepId) => {
    if (stepId === undefined || traceparent === undefined || !step_spans) return traceparent;
    const [version, traceId, , flags] = traceparent.split("-");
    return [version, traceId, spanIdOf(runId, stepId), flags].join("-");
  };
}
