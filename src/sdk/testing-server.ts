import { durationMs } from "./duration.ts";
import { type ReportedError, reportedError } from "./errors.ts";
import { invokeMsMax } from "./step-yields.ts";
import type { SvcFunction } from "./svc-function.ts";
import type { TestPlan, TestResult, TestStep } from "./test-plan.ts";
import { asJson } from "./testing-json.ts";
import { findDelivery, type TestEvent } from "./testing-match.ts";
import type { TestNames } from "./testing-names.ts";
import { stateMet, type TestChild } from "./testing-states.ts";
import type { TestAppend } from "./testing-streams.ts";
import type { CompletedStep, Condition, ReportedStep, Yield } from "./wire.ts";

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
  /** What the run appended to streams. */
  appended: readonly TestAppend[];
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

/** As the server names them. */
function nameOf(condition: Condition): string {
  if ("event" in condition) return condition.event;
  if ("stream" in condition) return `stream ${condition.stream.entity_id}`;
  return "run" in condition
    ? `run ${condition.run.run_id}`
    : `key ${condition.key.bucket}/${condition.key.key}`;
}

const waitTimedOut = (names: string): ReportedError => ({
  message: /(?<!,) /.test(names)
    ? `timed out waiting for ${names}`
    : `timed out waiting for the event "${names}"`,
  code: "WAIT_TIMEOUT",
  retryable: false,
});

/** The server of one test run: its stored steps, its virtual clock, and what ends the waits of the run. */
export class TestServer {
  readonly #options: TestServerOptions;
  readonly #steps = new Map<string, TestStep>();
  /** Ids of steps, in the order in which they ended last. */
  readonly #ended = new Set<string>();
  readonly #deliveries: TestEvent[];
  /** When failed steps are tried again, by their ids. */
  readonly #retryAt = new Map<string, number>();
  /** Runs that the function started and did not wait for. */
  readonly #children = new Map<string, TestChild>();
  /** When the child that was started last is over. */
  #childEndMs = 0;
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
    return [...this.#ended].flatMap((stepId) => {
      const { id, name, type, status, tries } = this.#steps.get(stepId)!;
      return status === "failed" && tries === undefined && (type === "invoke" || type === "compensate")
        ? []
        : { step_id: id, name };
    });
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
    if (this.#steps.get(step.id)?.status === "failed") this.#ended.delete(step.id);
    this.#ended.add(step.id);
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
    const { conditions, mode, timeout } = wait;
    const untilMs = this.nowMs + (timeout === undefined ? waitMsDefault : durationMs(timeout));
    const met = conditions.flatMap((condition) => this.#metOf(wait, condition, untilMs) ?? []);
    const inOrder = met.toSorted((a, b) => a.atMs - b.atMs);
    const used = mode === "any" ? inOrder.slice(0, 1) : inOrder.length === conditions.length ? inOrder : [];
    for (const one of inOrder) if (one.found && !used.includes(one)) one.found.taken = false;
    const last = used.at(-1);
    this.nowMs = last?.atMs ?? untilMs;
    if (!last) {
      const names = conditions.map(nameOf).join(", ");
      this.#store({ ...baseOf(wait), status: "timed_out", output: null, error: waitTimedOut(names) });
      return;
    }
    const values = used.map((one) => [one.name, one.value()] as const);
    const output =
      mode === "any" ? { name: last.name, [last.kind]: values[0]![1] } : Object.fromEntries(values);
    this.#store({ ...baseOf(wait), status: "completed", output });
  }

  /** What meets a condition in time; an event is taken until it is given back. */
  #metOf(wait: WaitMany, condition: Condition, untilMs: number) {
    const { nowMs } = this;
    const { name } = condition;
    if (!("event" in condition)) {
      const { plan, names, appended, startMs } = this.#options;
      names.state(condition);
      const standing = { states: plan.states, children: this.#children, appended, startMs };
      const met = stateMet(condition, standing, { nowMs, untilMs });
      return met && { name, kind: met.kind, value: () => met.value, found: undefined, atMs: met.atMs };
    }
    const { step_id, step_name } = wait;
    const single = { type: "wait_for_event" as const, step_id, step_name, event_filter: condition };
    const found = this.#findAwaited(single, untilMs);
    if (!found) return undefined;
    const value = () => this.#awaited(condition.event, found.data);
    return { name, kind: "event" as const, value, found, atMs: found.atMs ?? nowMs };
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
    const { size } = this.#children;
    const started = { run_id: `run_child_${id}${size === 0 ? "" : `_${size + 1}`}` };
    try {
      const output = asJson(await this.#childOutput(invoke, invokes.get(id)));
      if (isAsync) this.#children.set(started.run_id, { functionId: id, endedMs: this.#childEndMs, output });
      this.#store({ ...base, status: "completed", output: isAsync ? started : output });
    } catch (error) {
      const failure = reportedError(error);
      if (isAsync) {
        // A parent that does not wait learns how its child ended by a wait for the run.
        const child = { functionId: id, endedMs: this.#childEndMs, error: failure };
        this.#children.set(started.run_id, child);
        return this.#store({ ...base, status: "completed", output: started });
      }
      const refused = { ...failure, code: "INVOKE_FAILED", retryable: false };
      this.#store({ ...base, status: "failed", output: null, error: refused });
    }
  }

  /** Throws when the child failed, or took longer than the parent waits. */
  async #childOutput(invoke: Invoke, answer: unknown): Promise<unknown> {
    const input = asJson(invoke.input);
    this.#childEndMs = this.nowMs;
    if (!isFunction(answer))
      return typeof answer === "function" ? answer({ functionId: invoke.function_id, input }) : answer;
    const child = await this.#options.runChild(answer, input);
    this.#childEndMs += child.elapsedMs;
    if (invoke.type === "invoke_function") {
      this.nowMs += child.elapsedMs;
      const limitMs = invoke.invoke_timeout_ms ?? invokeMsMax;
      if (child.elapsedMs > limitMs) throw new Error(`took longer than ${limitMs} ms`);
    }
    if (child.status === "failed") throw new Error(child.error?.message);
    return child.output;
  }
}
