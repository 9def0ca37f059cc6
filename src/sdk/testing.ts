import { type Duration, durationMs } from "./duration.ts";
import type { ReportedError } from "./errors.ts";
import type { HandlerEvent, SvcFunction } from "./function.ts";
import { simulate } from "./testing-run.ts";
import type { Logger } from "./types.ts";

/** A step of a finished test run, as the server would have stored it. */
export interface TestStep {
  /** `{runId}:{name}:{n}` */
  id: string;
  name: string;
  type: "invoke" | "compensate" | "sleep" | "wait_for_event" | "invoke_function" | "invoke_function_async";
  status: "completed" | "failed" | "timed_out";
  /** The attempt of the run that brought it here. */
  attempt: number;
  output: unknown;
  error?: ReportedError;
  compensationFor?: string;
}

export interface TestResult<Output = unknown> {
  status: "completed" | "failed";
  /** Null unless completed. */
  output: Output;
  /** Undefined unless failed. */
  error: ReportedError | undefined;
  /** In the order in which they ended first. */
  steps: TestStep[];
  attempts: number;
  /** How often the handler was entered: attempts, yields and crashes. */
  executions: number;
  /** Sleeps, waits and retry delays together, on the virtual clock. */
  elapsedMs: number;
  emitted: { event: string; data: unknown; idempotencyKey: string }[];
  published: { topic: string; data: unknown; idempotencyKey: string }[];
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

/** What a test run is to do differently; every method returns the same object. */
export interface FunctionTest<Input = unknown, Output = unknown> {
  /** Code in the place of a step's, or the value that it gives. */
  mockStep(name: string, answer: unknown): this;
  /** The answer of a child: a function of its input, another `createFunction` that is then run as well, or a value. */
  mockInvoke(target: SvcFunction | string, answer: unknown): this;
  /** Fails a step with `error` (default: a plain, retryable one): in this attempt, or in every one. */
  failStep(name: string, options?: { attempt?: number; error?: unknown }): this;
  /**
   * Kills the worker once after a step, by its name or its place (from 1) among those executed, and begins again from what
   * is stored. With `stored: false` the server never got the step, so it runs again. `"every"`: after each step.
   */
  crashAfter(step: string | number, options?: { stored?: boolean }): this;
  /**
   * An event that ends a wait which it matches: whenever the wait comes, or `after` the start on the virtual clock, if the
   * wait is there by then.
   */
  deliver(event: string, data: unknown, options?: { after?: Duration }): this;
  /** Answers every wait for an event with this data, at once. */
  on(event: string, answer: (wait: TestWait) => unknown): this;
  secrets(values: Record<string, string>): this;
  /** Where the lines of the function go; default: nowhere. */
  log(log: Logger): this;
  /**
   * Runs the function with an event of this data, from the first trigger's name unless told otherwise. Throws when the
   * test lacks something: an invoke without an answer, or a function that never ends.
   */
  run(data?: Input, event?: Partial<Omit<HandlerEvent, "data">>): Promise<TestResult<Output>>;
}

/** What a FunctionTest was told, as `simulate` reads it. */
export interface TestPlan {
  target: SvcFunction;
  steps: Map<string, unknown>;
  invokes: Map<string, unknown>;
  failures: { name: string; attempt: number | undefined; error: unknown }[];
  crashes: { step: string | number; stored: boolean }[];
  deliveries: { event: string; data: unknown; afterMs: number | undefined }[];
  answers: Map<string, (wait: TestWait) => unknown>;
  secrets: Record<string, string>;
  log: Logger;
}

const silent: Logger = { debug() {}, info() {}, warn() {}, error() {} };

/**
 * A function run in memory, by the same code that runs it in a worker: sleeps and retry delays pass at once on a virtual
 * clock, outputs go through JSON, the handler is entered again after every yield. No server and no worker are needed.
 *
 * `const result = await testFunction(ship).mockStep("charge", { ok: true }).crashAfter("every").run({ orderId: "o1" });`
 */
export function testFunction<Input, Output>(target: SvcFunction<Input, Output>): FunctionTest<Input, Output> {
  const plan: TestPlan = {
    target,
    steps: new Map(),
    invokes: new Map(),
    failures: [],
    crashes: [],
    deliveries: [],
    answers: new Map(),
    secrets: {},
    log: silent,
  };
  const test: FunctionTest<Input, Output> = {
    mockStep(name, answer) {
      plan.steps.set(name, answer);
      return test;
    },
    mockInvoke(child, answer) {
      plan.invokes.set(typeof child === "string" ? child : child.id, answer);
      return test;
    },
    failStep(name, { attempt, error = new Error(`step ${name} was told to fail`) } = {}) {
      plan.failures.push({ name, attempt, error });
      return test;
    },
    crashAfter(step, { stored = true } = {}) {
      plan.crashes.push({ step, stored });
      return test;
    },
    deliver(event, data, { after } = {}) {
      plan.deliveries.push({ event, data, afterMs: after === undefined ? undefined : durationMs(after) });
      return test;
    },
    on(event, answer) {
      plan.answers.set(event, answer);
      return test;
    },
    secrets(values) {
      Object.assign(plan.secrets, values);
      return test;
    },
    log(log) {
      plan.log = log;
      return test;
    },
    run: async (data, event) => (await simulate(plan, data, event)) as TestResult<Output>,
  };
  return test;
}
