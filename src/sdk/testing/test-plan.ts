import type { SvcFunction } from "../steps/svc-function.ts";
import type { ReportedError } from "../wire/errors.ts";
import type { AttributeValue, Logger, RunLine, StepDeviation } from "../wire/types.ts";
import type { TestAppend, TestStates } from "./testing-streams.ts";

/** A step of a finished test run, as the server would have stored it. */
export interface TestStep {
  /** `{runId}:{name}:{n}` */
  id: string;
  name: string;
  type:
    | "invoke"
    | "compensate"
    | "sleep"
    | "wait_for_event"
    | "wait_for_events"
    | "wait_for_signal"
    | "invoke_function"
    | "invoke_function_async";
  status: "completed" | "failed" | "timed_out";
  /** The attempt of the run that brought it here. */
  attempt: number;
  output: unknown;
  error?: ReportedError;
  compensationFor?: string;
  /** Of a failed step with `retry`. */
  tries?: number;
  maxTries?: number;
}

export interface TestResult<Output = unknown> {
  status: "completed" | "failed";
  /** Null unless completed. */
  output: Output;
  /** Undefined unless failed. */
  error: ReportedError | undefined;
  /** In the order in which they ended first. */
  steps: TestStep[];
  /** How many compensations failed for good; their steps have the errors. */
  compensationFailed: number;
  /** Stored steps that the handler did not come to as before, when it was entered again. */
  nondeterminism: StepDeviation[];
  attempts: number;
  /** How often the handler was entered: attempts, yields and crashes. */
  executions: number;
  /** Sleeps, waits and retry delays together, on the virtual clock. */
  elapsedMs: number;
  emitted: { event: string; data: unknown; idempotencyKey: string }[];
  published: { topic: string; data: unknown; idempotencyKey: string }[];
  /** Calls of tools, those that failed too. */
  toolCalls: { name: string; input: unknown }[];
  /** What it appended to streams, by any client. */
  appended: TestAppend[];
  /** What its handler wrote, in all attempts. */
  logs: RunLine[];
  /** What it wrote to its outputs, by name, without what was tried again. */
  outputs: Record<string, unknown[]>;
  /** What it is found by, as `run.set` had it last. */
  attributes: Record<string, AttributeValue>;
}

/** A wait that the test is to answer. */
export interface TestWait {
  name: string;
  event: string;
  match?: string;
  matchValue?: unknown;
  payload?: unknown;
}

export interface TestCall {
  functionId: string;
  input: unknown;
}

/** What a FunctionTest was told, as `simulate` reads it. */
export interface TestPlan {
  target: SvcFunction;
  steps: Map<string, unknown>;
  invokes: Map<string, unknown>;
  tools: Map<string, unknown>;
  failures: { name: string; attempt: number | undefined; tries: number | undefined; error: unknown }[];
  crashes: { step: string | number; stored: boolean }[];
  deliveries: { event: string; data: unknown; afterMs: number | undefined }[];
  signals: { name: string; data: unknown; afterMs: number | undefined }[];
  answers: Map<string, (wait: TestWait) => unknown>;
  states: TestStates;
  secrets: Record<string, string>;
  log: Logger;
}
