import type { ExecutionEnd } from "../steps/attempts.ts";
import { type ExecutionInput, execute } from "../steps/execute.ts";
import { type ExecutionHost, type OutputSource, retryPauseMsMax, type StepWork } from "../steps/step-host.ts";
import { givenValue, type ReportedAttributes } from "../wire/attributes.ts";
import { reportedError, SvcError } from "../wire/errors.ts";
import type { AttributeValue, RunLine } from "../wire/types.ts";
import type { ReportedStep } from "../wire/wire.ts";
import type { TestPlan, TestResult } from "./test-plan.ts";
import { asJson } from "./testing-match.ts";
import type { TestNames } from "./testing-names.ts";
import type { TestServer } from "./testing-server.ts";

/** The calls that steps of a test run make to the server. A call with a used key changes nothing. */
export class TestCalls {
  readonly emitted: TestResult["emitted"] = [];
  readonly published: TestResult["published"] = [];
  readonly toolCalls: TestResult["toolCalls"] = [];
  /** What the test would have had to say. */
  lacking: TypeError | undefined;
  readonly #tools: TestPlan["tools"];
  readonly #names: TestNames;

  constructor(tools: TestPlan["tools"], names: TestNames) {
    this.#tools = tools;
    this.#names = names;
  }

  async answer(method: string, message: unknown): Promise<Record<string, unknown>> {
    const sent = message as Record<string, unknown>;
    if (method === "AgentToolsService/InvokeTool") return this.#answerOfTool(sent);
    const idempotencyKey = String(sent.idempotencyKey);
    const data = asJson("data" in sent ? sent.data : sent.dataValue);
    if (method === "PubSubService/Publish") {
      const sequence = placeOf(this.published, { topic: String(sent.topic), data, idempotencyKey });
      return { eventId: `evt_published${sequence}`, sequence };
    }
    const sequence = placeOf(this.emitted, { event: String(sent.event), data, idempotencyKey });
    return { eventId: `evt_emitted${sequence}`, runIds: [], sequence };
  }

  async #answerOfTool(sent: Record<string, unknown>): Promise<Record<string, unknown>> {
    const name = String(sent.toolName);
    const input = asJson("inputValue" in sent ? sent.inputValue : sent.input);
    this.#names.tool(name);
    this.toolCalls.push({ name, input });
    if (!this.#tools.has(name)) {
      this.lacking = new TypeError(`the test has no answer for the tool ${name}: say mockTool("${name}", …)`);
      throw this.lacking;
    }
    const answer = this.#tools.get(name);
    try {
      return { outputValue: asJson(typeof answer === "function" ? await answer(input) : answer) };
    } catch (error) {
      const { message, code = "HANDLER_ERROR" } = reportedError(error);
      return { error: { code, message } };
    }
  }
}

/** The place, from 1, of the call with the same key; a new call is added at the end. */
function placeOf<Call extends { idempotencyKey: string }>(calls: Call[], call: Call): number {
  const at = calls.findIndex((one) => one.idempotencyKey === call.idempotencyKey);
  return at < 0 ? calls.push(call) : at + 1;
}

interface Written {
  stepId: string;
  /** The try of the step, or the attempt of the handler. */
  source: string;
  chunk: unknown;
}

/** What a test run wrote to its outputs, by the server's rules. */
class TestOutputs {
  readonly #written = new Map<string, Written[]>();

  /** Takes the chunks of one execution. Outside of steps a handler that is entered again writes the same. */
  of(attempt: number, execution: number) {
    const counts = new Map<string, number>();
    return (name: string, { stepId, entry }: OutputSource, chunk: unknown): void => {
      const source = stepId === "" ? `attempt ${attempt}` : `${execution}.${entry} ${stepId}`;
      const all = this.#written.get(name) ?? [];
      const place = counts.get(`${source}\n${name}`) ?? 0;
      counts.set(`${source}\n${name}`, place + 1);
      const own = all.filter((one) => one.source === source);
      if (place < own.length) return;
      const kept = own.length > 0 ? all : all.filter((one) => one.stepId !== stepId);
      this.#written.set(name, [...kept, { stepId, source, chunk }]);
    };
  }

  all(): Record<string, unknown[]> {
    return Object.fromEntries([...this.#written].map(([name, all]) => [name, all.map(({ chunk }) => chunk)]));
  }
}

export interface TestWorkerParts {
  plan: TestPlan;
  names: TestNames;
  server: TestServer;
  calls: TestCalls;
}

/** The worker of a test run: it runs steps' code, or what the test puts in its place, and dies on request. */
export class TestWorker {
  readonly #plan: TestPlan;
  readonly #server: TestServer;
  readonly #calls: TestCalls;
  /** `after` are the steps after which the worker has died. */
  readonly #crashes: { step: string | number; stored: boolean; after: Set<string> }[];
  readonly #names: TestNames;
  /** Compensations that the run has. */
  undoCount = 0;
  /** What reports have brought to the server. */
  readonly attributes = new Map<string, AttributeValue>();
  readonly lines: RunLine[] = [];
  readonly outputs = new TestOutputs();
  #executions = 0;
  /** Lines outside of steps that the handler came to, by attempt. */
  readonly #seen = new Map<number, number>();

  constructor({ plan, names, server, calls }: TestWorkerParts) {
    this.#plan = plan;
    this.#names = names;
    this.#server = server;
    this.#calls = calls;
    this.#crashes = plan.crashes.map(({ step, stored }) => ({ step, stored, after: new Set() }));
  }

  /** Enters the handler. Undefined when the worker died on the way. */
  async execute(entry: ExecutionInput): Promise<ExecutionEnd | undefined> {
    const stop = new AbortController();
    const execution = ++this.#executions;
    const outputs = this.outputs.of(entry.attempt, execution);
    let died: SvcError | undefined;
    let unsent: ReportedAttributes = {};
    const tellAttributes = () => {
      for (const [name, value] of Object.entries(unsent))
        value === null ? this.attributes.delete(name) : this.attributes.set(name, givenValue(value));
      unsent = {};
    };
    const requireHeld = () => {
      if (died) throw died;
    };
    const host: ExecutionHost = {
      requireHeld,
      memo: (stepId) => this.#server.memo(stepId),
      stored: () => this.#server.handedOut(),
      sure: () => undefined,
      undoes: (count) => {
        this.undoCount = count;
        return undefined;
      },
      record: (text) => {
        requireHeld();
        const step = JSON.parse(text) as ReportedStep;
        const crash = this.#crashAfter(step, this.#names.reported());
        if (crash?.stored ?? true) {
          this.#server.storeReported(step);
          tellAttributes();
        }
        if (!crash) return undefined;
        died = new SvcError("worker_stopped", `the test's worker was killed after step ${step.name}`);
        stop.abort(died);
        throw died;
      },
      set(attributes) {
        unsent = { ...unsent, ...attributes };
      },
      output: async (name, source, chunk) => outputs(name, source, asJson(chunk)),
      write: ({ seen, ...line }) => {
        this.lines.push(line);
        if (seen !== undefined) this.#seen.set(entry.attempt, seen);
      },
      signal: () => stop.signal,
      now: () => this.#server.nowMs,
      pause: async (ms) => {
        this.#server.nowMs += ms;
      },
      sleptType: "sleep",
      pauseMsMax: retryPauseMsMax,
      call: <Answer>(method: string, message: unknown) =>
        this.#calls.answer(method, message) as Promise<Answer>,
      substitute: (name, own) => this.#workOf(name, own),
    };
    const { target, log } = this.#plan;
    const before = this.#seen.get(entry.attempt);
    const given = { ...entry, ...(before !== undefined && { log_seen: before }) };
    const ended = await execute(target, given, host, log);
    if (died) return undefined;
    tellAttributes();
    return ended;
  }

  /** The crash due after this step, if any: one that names a step comes once, "every" once after each. */
  #crashAfter({ id, name }: ReportedStep, place: number): { stored: boolean } | undefined {
    const due = this.#crashes.find(({ step, after }) =>
      step === "every" ? !after.has(id) : (step === name || step === place) && after.size === 0,
    );
    due?.after.add(id);
    return due;
  }

  #workOf(name: string, own: StepWork): StepWork {
    this.#names.step(name);
    const { attempt } = this.#server;
    const failure = this.#plan.failures.find(
      (one) => one.name === name && (one.attempt === undefined || one.attempt === attempt),
    );
    const answer = this.#plan.steps.get(name);
    const mocked = typeof answer === "function" ? (answer as StepWork) : () => answer;
    const work = this.#plan.steps.has(name) ? mocked : own;
    if (!failure) return work;
    return (context) => {
      if (context.attempt > (failure.tries ?? Number.POSITIVE_INFINITY)) return work(context);
      throw failure.error;
    };
  }
}
