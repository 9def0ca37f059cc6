import type { Tool } from "../client/tool-types.ts";
import { toolName } from "../client/tools.ts";
import { encodedValue } from "../steps/conditions.ts";
import type { HandlerEvent, SvcFunction } from "../steps/svc-function.ts";
import { type Duration, durationMs } from "../wire/duration.ts";
import type { Jsonify } from "../wire/jsonify.ts";
import type { Logger } from "../wire/types.ts";
import type { TestPlan, TestResult, TestWait } from "./test-plan.ts";
import { simulate } from "./testing-run.ts";

/** What a test run is to do differently; every method returns the same object. */
export interface FunctionTest<Input = unknown, Output = unknown> {
  /** Code in the place of a step's, or the value that it gives. */
  mockStep(name: string, answer: unknown): this;
  /** The answer of a child: a function of its input, another `createFunction` that then runs, or a value. */
  mockInvoke(target: SvcFunction | string, answer: unknown): this;
  /** The answer of a tool: a function of its input, or a value. What the function throws is its error. */
  mockTool(tool: Tool | string, answer: unknown): this;
  /**
   * Fails a step with `error` (default: a plain, retryable one): in this attempt of the run, or in every one.
   * With `tries` only so many first tries of a step with `retry`.
   */
  failStep(name: string, options?: { attempt?: number; tries?: number; error?: unknown }): this;
  /**
   * Kills the worker once after a step, by its name or its place (from 1) among those executed, and begins
   * again from what is stored. With `stored: false` the server never got the step, so it runs again.
   * `"every"`: after each step.
   */
  crashAfter(step: string | number, options?: { stored?: boolean }): this;
  /**
   * An event that ends a wait which it matches: whenever the wait comes, or `after` the start on the virtual
   * clock, if the wait is there by then.
   */
  deliver(event: string, data: unknown, options?: { after?: Duration }): this;
  /** The stream of an entity has this version: from the beginning, or from `after` the start on. */
  stream(entityId: string, version: number, options?: { after?: Duration }): this;
  /** A key of a bucket has this value, undefined for none: from the start, or from `after` the start on. */
  key(bucket: string, key: string, value: unknown, options?: { after?: Duration }): this;
  /**
   * Sends the run a signal: before it begins, or `after` the start on the virtual clock. The next wait for
   * its name takes it, in the order in which they come.
   */
  signal(name: string, data?: unknown, options?: { after?: Duration }): this;
  /** Answers every wait for an event with this data, at once. */
  on(event: string, answer: (wait: TestWait) => unknown): this;
  secrets(values: Record<string, string>): this;
  /** Where the lines of the function go; default: nowhere. */
  log(log: Logger): this;
  /**
   * Runs the function with an event of this data, from the first trigger's name by default. Throws when the
   * test lacks something: an invoke or a tool without an answer, or a function that never ends. Throws as
   * well when the run uses nothing of a name that the test gave.
   */
  run(data?: Input, event?: Partial<Omit<HandlerEvent, "data">>): Promise<TestResult<Jsonify<Output>>>;
  /** The same with a batch of events, of these data. Throws TypeError for more than its function takes. */
  runBatch(list: readonly Input[]): Promise<TestResult<Jsonify<Output>>>;
}

const afterMsOf = (after: Duration | undefined): number | undefined =>
  after === undefined ? undefined : durationMs(after, "after");

const silent: Logger = { debug() {}, info() {}, warn() {}, error() {} };

/**
 * A function run in memory, by the same code that runs it in a worker: sleeps and retry delays pass at once
 * on a virtual clock, outputs go through JSON, the handler is entered again after every yield. No server and
 * no worker are needed.
 *
 * `const result = await testFunction(ship).mockStep("charge", { ok: true })
 *   .crashAfter("every").run({ orderId: "o1" });`
 */
export function testFunction<Input, Output>(target: SvcFunction<Input, Output>): FunctionTest<Input, Output> {
  const plan: TestPlan = {
    target,
    steps: new Map(),
    invokes: new Map(),
    tools: new Map(),
    failures: [],
    crashes: [],
    deliveries: [],
    signals: [],
    answers: new Map(),
    states: { streams: [], keys: [] },
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
    mockTool(tool, answer) {
      plan.tools.set(toolName(tool), answer);
      return test;
    },
    failStep(name, { attempt, tries, error = new Error(`step ${name} was told to fail`) } = {}) {
      plan.failures.push({ name, attempt, tries, error });
      return test;
    },
    crashAfter(step, { stored = true } = {}) {
      plan.crashes.push({ step, stored });
      return test;
    },
    deliver(event, data, { after } = {}) {
      plan.deliveries.push({ event, data, afterMs: afterMsOf(after) });
      return test;
    },
    stream(entityId, version, { after } = {}) {
      plan.states.streams.push({ entityId, version, afterMs: afterMsOf(after) });
      return test;
    },
    key(bucket, key, value, { after } = {}) {
      const encoded = value === undefined ? undefined : encodedValue(`key ${bucket}/${key}`, value);
      plan.states.keys.push({ bucket, key, value: encoded, afterMs: afterMsOf(after) });
      return test;
    },
    signal(name, data = null, { after } = {}) {
      plan.signals.push({ name, data, afterMs: afterMsOf(after) });
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
    run: async (data, event) => (await simulate(plan, data, { event })) as TestResult<Jsonify<Output>>,
    runBatch: async (list) => (await simulate(plan, list, { batch: true })) as TestResult<Jsonify<Output>>,
  };
  return test;
}
