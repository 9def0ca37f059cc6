import { durationMs } from "./duration.ts";
import { type ReportedError, reportedError } from "./errors.ts";
import { invokeMsMax } from "./step-yields.ts";
import type { SvcFunction } from "./svc-function.ts";
import type { TestPlan, TestResult, TestStep } from "./test-plan.ts";
import { asJson } from "./testing-json.ts";
import { findDelivery, type TestEvent } from "./testing-match.ts";
import type { TestNames } from "./testing-names.ts";
import type { CompletedStep, ReportedStep, Yield } from "./wire.ts";

const waitMsDefault = 7 * 86_400_000;

type Wait = Extract<Yield, { type: "wait_for_event" }>;
type WaitMany = Extract<Yield, { type: "wait_for_events" }>;
type Invoke = Extract<Yield, { function_id: string }>;

export interface TestServerOptions {
  plan: TestPlan;
  names: TestNames;
  /** The data of the event that started the run. */
  trigger: unknown;
  startMs: number;
  /** Runs a child that a test answers with another function. */
  runChild: (target: SvcFunction, input: unknown) => Promise<TestResult>;
}

const isFunction = (value: unknown): value is SvcFunction =>
  typeof value === "object" && value !== null && "handler" in value && "definition" in value;

const baseOf = ({ step_id: id, step_name: name, type }: Exclude<Yield, { type: "retry_step" }>) => ({
  id,
  name,
  type,
});

const waitTimedOut = (name: string): ReportedError => ({
  message: `timed out waiting for the event "${name}"`,
  code: "WAIT_TIMEOUT",
  retryable: false,
});

/** The server of one test run: its stored steps, its virtual clock, and what ends the waits of the run. */
export class TestServer {
  readonly #options: TestServerOptions;
  readonly #steps = new Map<string, TestStep>();
  readonly #deliveries: TestEvent[];
  /** When failed steps are tried again, by their ids. */
  readonly #retryAt = new Map<string, number>();
  nowMs: number;
  /** The attempt of the run that is going on, from 1. */
  attempt = 1;

  constructor(options: TestServerOptions) {
    const { plan, startMs } = options;
    this.#options = options;
    this.nowMs = startMs;
    this.#deliveries = plan.deliveries.map(({ event, data, afterMs }) => ({
      event,
      data,
      atMs: afterMs === undefined ? undefined : startMs + afterMs,
      taken: false,
    }));
  }

  steps(): TestStep[] {
    return [...this.#steps.values()];
  }

  memo(stepId: string): CompletedStep | undefined {
    const step = this.#steps.get(stepId);
    if (!step) return undefined;
    const { id, name, output, status, error, tries } = step;
    const tried = tries && { tries, max_tries: step.maxTries, retry_in_ms: this.#dueInMs(id) };
    return {
      step_id: id,
      name,
      output: asJson(output),
      status,
      ...(error && { error: { ...error, ...tried } }),
    };
  }

  /** The steps that a worker gets with the run: what failed is done again, unless others did it or it has tries of its own. */
  handedOut(): Pick<CompletedStep, "step_id" | "name">[] {
    return this.steps().flatMap(({ id, name, type, status, tries }) =>
      status === "failed" && tries === undefined && (type === "invoke" || type === "compensate")
        ? []
        : { step_id: id, name },
    );
  }

  storeReported({ id, name, type, status, output, error, compensation_for, ...own }: ReportedStep): void {
    const { tries, max_tries: maxTries, retry_in_ms: dueInMs = 0 } = own;
    if (tries !== undefined) this.#retryAt.set(id, this.nowMs + dueInMs);
    this.#store({
      id,
      name,
      type,
      status,
      output: output ?? null,
      ...(error && { error }),
      ...(compensation_for !== undefined && { compensationFor: compensation_for }),
      ...(tries !== undefined && { tries }),
      ...(maxTries !== undefined && { maxTries }),
    });
  }

  #dueInMs(stepId: string): number {
    return Math.max(0, (this.#retryAt.get(stepId) ?? 0) - this.nowMs);
  }

  /** Finishes the step at which the execution yielded. */
  async settleYield(reason: Yield): Promise<void> {
    switch (reason.type) {
      case "sleep":
        this.nowMs = Math.max(
          this.nowMs,
          reason.duration_ms === undefined ? Date.parse(reason.until) : this.nowMs + reason.duration_ms,
        );
        this.#store({ ...baseOf(reason), status: "completed", output: null });
        return;
      case "retry_step":
        this.nowMs += reason.duration_ms;
        return;
      case "wait_for_event":
        this.#settleWait(reason);
        return;
      case "wait_for_events":
        this.#settleMany(reason);
        return;
      default:
        await this.#settleInvoke(reason);
    }
  }

  #store(step: Omit<TestStep, "attempt">): void {
    this.#steps.set(step.id, { ...step, attempt: this.attempt });
  }

  #settleWait(wait: Wait): void {
    const { event: name, timeout } = wait.event_filter;
    const untilMs = this.nowMs + (timeout === undefined ? waitMsDefault : durationMs(timeout));
    const found = this.#findAwaited(wait, untilMs);
    this.nowMs = found ? (found.atMs ?? this.nowMs) : untilMs;
    if (!found) {
      this.#store({ ...baseOf(wait), status: "timed_out", output: null, error: waitTimedOut(name) });
      return;
    }
    this.#store({ ...baseOf(wait), status: "completed", output: this.#awaited(name, found.data) });
  }

  /** An event as a wait gets it. */
  #awaited(name: string, data: unknown) {
    return {
      id: "evt_awaited",
      name,
      version: 1,
      data: asJson(data),
      timestamp: new Date(this.nowMs).toISOString(),
      source: "api",
    };
  }

  /** By the rules of the single wait; what does not end the wait is left for the next one. */
  #settleMany(wait: WaitMany): void {
    const { conditions, mode, timeout, step_name } = wait;
    const untilMs = this.nowMs + (timeout === undefined ? waitMsDefault : durationMs(timeout));
    const met = conditions.flatMap(({ name, ...filter }) => {
      const single = {
        type: "wait_for_event" as const,
        step_id: wait.step_id,
        step_name,
        event_filter: filter,
      };
      const found = this.#findAwaited(single, untilMs);
      return found
        ? { name, event: filter.event, data: found.data, found, atMs: found.atMs ?? this.nowMs }
        : [];
    });
    const inOrder = met.toSorted((a, b) => a.atMs - b.atMs);
    const used = mode === "any" ? inOrder.slice(0, 1) : inOrder.length === conditions.length ? inOrder : [];
    for (const { found } of inOrder) if (!used.some((one) => one.found === found)) found.taken = false;
    const last = used.at(-1);
    this.nowMs = last?.atMs ?? untilMs;
    if (!last) {
      const names = conditions.map(({ event }) => event).join(", ");
      this.#store({ ...baseOf(wait), status: "timed_out", output: null, error: waitTimedOut(names) });
      return;
    }
    const events = used.map(({ name, event, data }) => [name, this.#awaited(event, data)] as const);
    const output = mode === "any" ? { name: last.name, event: events[0]![1] } : Object.fromEntries(events);
    this.#store({ ...baseOf(wait), status: "completed", output });
  }

  #findAwaited(wait: Wait, untilMs: number): Pick<TestEvent, "atMs" | "data" | "taken"> | undefined {
    const { plan, trigger } = this.#options;
    const { nowMs } = this;
    const { event, match, match_value, payload } = wait.event_filter;
    this.#options.names.wait(event);
    const answer = plan.answers.get(event);
    if (!answer) return findDelivery(this.#deliveries, wait.event_filter, { nowMs, untilMs, trigger });
    const data = answer({
      name: wait.step_name,
      event,
      payload,
      ...(match !== undefined && { match }),
      ...(match_value !== undefined && { matchValue: match_value }),
    });
    return { atMs: nowMs, data, taken: true };
  }

  async #settleInvoke(invoke: Invoke): Promise<void> {
    const isAsync = invoke.type === "invoke_function_async";
    const id = invoke.function_id;
    const { names, plan } = this.#options;
    const { invokes } = plan;
    names.invoke(id);
    if (!invokes.has(id) && !isAsync)
      throw new TypeError(`the test has no answer for ${id}: say mockInvoke("${id}", …)`);
    const base = baseOf(invoke);
    const started = { run_id: `run_child_${id}` };
    try {
      const output = await this.#childOutput(invoke, invokes.get(id));
      this.#store({ ...base, status: "completed", output: isAsync ? started : asJson(output) });
    } catch (error) {
      // A parent that does not wait never learns how its child ended.
      if (isAsync) return this.#store({ ...base, status: "completed", output: started });
      const failure = { ...reportedError(error), code: "INVOKE_FAILED", retryable: false };
      this.#store({ ...base, status: "failed", output: null, error: failure });
    }
  }

  /** Throws when the child failed, or took longer than the parent waits. */
  async #childOutput(invoke: Invoke, answer: unknown): Promise<unknown> {
    const input = asJson(invoke.input);
    if (!isFunction(answer))
      return typeof answer === "function" ? answer({ functionId: invoke.function_id, input }) : answer;
    const child = await this.#options.runChild(answer, input);
    if (invoke.type === "invoke_function") {
      this.nowMs += child.elapsedMs;
      const limitMs = invoke.invoke_timeout_ms ?? invokeMsMax;
      if (child.elapsedMs > limitMs) throw new Error(`took longer than ${limitMs} ms`);
    }
    if (child.status === "failed") throw new Error(child.error?.message);
    return child.output;
  }
}
