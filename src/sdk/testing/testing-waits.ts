import { invokeMsMax } from "../steps/step-yields.ts";
import type { SvcFunction } from "../steps/svc-function.ts";
import { durationMs } from "../wire/duration.ts";
import { type ReportedError, reportedError } from "../wire/errors.ts";
import type { AskedWait, Condition, Yield } from "../wire/wire.ts";
import type { TestPlan, TestResult, TestStep } from "./test-plan.ts";
import { asJson, findDelivery, type TestEvent } from "./testing-match.ts";
import type { TestNames } from "./testing-names.ts";
import { stateMet, type TestAppend, type TestChild } from "./testing-streams.ts";

const waitMsDefault = 7 * 86_400_000;

type WaitOne = Extract<Yield, { type: "wait_for_event" }>;
type WaitMany = Extract<Yield, { type: "wait_for_events" }>;
type WaitSignal = Extract<Yield, { type: "wait_for_signal" }>;
type Invoke = Extract<Yield, { function_id: string }>;
type EndedStep = Omit<TestStep, "attempt">;

export interface TestWaitsOptions {
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

/** How a wait ends as things stand; `step` is none where a step is tried again. */
interface TestEnd {
  atMs: number;
  step?: EndedStep;
  /** Events and signals that end it. */
  taken?: TestEvent[];
  /** Place among those that were sent. */
  signal?: number;
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

const invokeTimedOut = (functionId: string): ReportedError => ({
  message: `timed out waiting for the function "${functionId}"`,
  code: "INVOKE_TIMEOUT",
  retryable: false,
});

const untilOf = (timeout: string | undefined, sinceMs: number): number =>
  sinceMs + (timeout === undefined ? waitMsDefault : durationMs(timeout));

/** An event as a wait gets it. */
const awaitedEvent = (name: string, data: unknown, atMs: number) => ({
  id: "evt_awaited",
  name,
  version: 1,
  data: asJson(data),
  timestamp: new Date(atMs).toISOString(),
  source: "api",
});

/** What the handler of a test run waits for, and what ends it, on the virtual clock. */
export class TestWaits {
  readonly #options: TestWaitsOptions;
  readonly #deliveries: TestEvent[];
  /** Sent to the run, oldest first. */
  readonly #signals: TestEvent[];
  /**
   * By step, how each would end now, beside the signals that those before it have: what stands keeps its
   * beginning and its deadline.
   */
  readonly #open = new Map<string, (others: TestEvent[]) => TestEnd>();
  /** Runs that the function started and did not wait for. */
  readonly #children = new Map<string, TestChild>();

  constructor(options: TestWaitsOptions) {
    const { plan, startMs } = options;
    this.#options = options;
    this.#deliveries = plan.deliveries.map(({ event, data, afterMs }) => ({
      event,
      data,
      atMs: afterMs === undefined ? undefined : startMs + afterMs,
      taken: false,
    }));
    this.#signals = plan.signals
      .map(({ name, data, afterMs = 0 }) => ({ event: name, data, atMs: startMs + afterMs, taken: false }))
      .toSorted((one, other) => one.atMs - other.atMs);
  }

  /** Of all that the handler waits for: those that end first, in order of their ends. Drops what it omits. */
  async next(all: readonly AskedWait[], nowMs: number): Promise<{ atMs: number; ended: EndedStep[] }> {
    const wanted = new Set(all.map(({ step_id }) => step_id));
    for (const id of this.#open.keys()) if (!wanted.has(id)) this.#open.delete(id);
    for (const one of all)
      if (!this.#open.has(one.step_id)) this.#open.set(one.step_id, await this.#begin(one, nowMs));
    const others: TestEvent[] = [];
    const ends = [...this.#open]
      .map(([id, end]) => ({ id, ...end(others) }))
      .toSorted((a, b) => a.atMs - b.atMs || (a.signal ?? 0) - (b.signal ?? 0));
    const atMs = Math.max(nowMs, ends[0]!.atMs);
    const over = ends.filter((end) => end.atMs <= atMs);
    for (const { id, taken = [] } of over) {
      this.#open.delete(id);
      // Who waits for it in the same moment has it, too; who comes later has not.
      for (const event of taken) event.taken = true;
    }
    return { atMs, ended: over.flatMap(({ step }) => step ?? []) };
  }

  async #begin(reason: Yield, sinceMs: number): Promise<(others: TestEvent[]) => TestEnd> {
    switch (reason.type) {
      case "sleep": {
        const { duration_ms: ms, until } = reason;
        const atMs = ms === undefined ? Date.parse(until) : sinceMs + ms;
        return () => ({ atMs, step: { ...baseOf(reason), status: "completed", output: null } });
      }
      case "retry_step":
        return () => ({ atMs: sinceMs + reason.duration_ms });
      case "wait_for_event":
        return this.#one(reason, sinceMs);
      case "wait_for_events":
        return this.#many(reason, sinceMs);
      case "wait_for_signal":
        return this.#signal(reason, sinceMs);
      default: {
        const end = await this.#invoke(reason, sinceMs);
        return () => end;
      }
    }
  }

  #one(wait: WaitOne, sinceMs: number): () => TestEnd {
    const { event: name, timeout } = wait.event_filter;
    const untilMs = untilOf(timeout, sinceMs);
    const find = this.#finder(wait, { sinceMs, untilMs });
    return () => {
      const found = find([]);
      if (!found)
        return {
          atMs: untilMs,
          step: { ...baseOf(wait), status: "timed_out", output: null, error: waitTimedOut(name) },
        };
      const { atMs = sinceMs } = found;
      const output = awaitedEvent(name, found.data, atMs);
      return { atMs, step: { ...baseOf(wait), status: "completed", output }, taken: [found] };
    };
  }

  /** The oldest that is not taken, in time; what is not waited for yet is kept. */
  #signal(wait: WaitSignal, sinceMs: number): (others: TestEvent[]) => TestEnd {
    const { signal, timeout } = wait;
    const untilMs = untilOf(timeout, sinceMs);
    this.#options.names.signal(signal);
    return (others) => {
      const found = this.#signals.find(
        (one) => one.event === signal && !one.taken && !others.includes(one) && one.atMs! <= untilMs,
      );
      if (!found) {
        const error = waitTimedOut(`signal ${signal}`);
        return { atMs: untilMs, step: { ...baseOf(wait), status: "timed_out", output: null, error } };
      }
      others.push(found);
      const step: EndedStep = { ...baseOf(wait), status: "completed", output: asJson(found.data) };
      return {
        atMs: Math.max(sinceMs, found.atMs!),
        step,
        taken: [found],
        signal: this.#signals.indexOf(found),
      };
    };
  }

  /** By the rules of the single wait; what does not end the wait is left for the next one. */
  #many(wait: WaitMany, sinceMs: number): () => TestEnd {
    const { conditions, mode, timeout } = wait;
    const untilMs = untilOf(timeout, sinceMs);
    const finders = conditions.map((condition) => this.#metBy(wait, condition, { sinceMs, untilMs }));
    return () => {
      const taken: TestEvent[] = [];
      const met = finders.flatMap((find) => find(taken) ?? []).toSorted((a, b) => a.atMs - b.atMs);
      const isMet = mode === "any" ? met.length > 0 : met.length === conditions.length;
      const used = mode === "any" ? met.slice(0, 1) : met;
      const last = used.at(-1);
      if (!isMet || !last) {
        const names = conditions.map(nameOf).join(", ");
        const error = waitTimedOut(names);
        return { atMs: untilMs, step: { ...baseOf(wait), status: "timed_out", output: null, error } };
      }
      const values = used.map((one) => [one.name, one.value(last.atMs)] as const);
      const output =
        mode === "any" ? { name: last.name, [last.kind]: values[0]![1] } : Object.fromEntries(values);
      return {
        atMs: last.atMs,
        step: { ...baseOf(wait), status: "completed", output },
        taken: used.flatMap(({ found }) => found ?? []),
      };
    };
  }

  /** What meets a condition in time. */
  #metBy(wait: WaitMany, condition: Condition, when: { sinceMs: number; untilMs: number }) {
    const { plan, names, appended, startMs } = this.#options;
    const { name } = condition;
    if (!("event" in condition)) {
      names.state(condition);
      return () => {
        const standing = { states: plan.states, children: this.#children, appended, startMs };
        const met = stateMet(condition, standing, { nowMs: when.sinceMs, untilMs: when.untilMs });
        return met && { name, kind: met.kind, value: () => met.value, found: undefined, atMs: met.atMs };
      };
    }
    const { step_id, step_name } = wait;
    const single = { type: "wait_for_event" as const, step_id, step_name, event_filter: condition };
    const find = this.#finder(single, when);
    return (taken: TestEvent[]) => {
      const found = find(taken);
      if (!found) return undefined;
      taken.push(found);
      const value = (atMs: number) => awaitedEvent(condition.event, found.data, atMs);
      return { name, kind: "event" as const, value, found, atMs: found.atMs ?? when.sinceMs };
    };
  }

  /** Finds the event that ends a wait, beside those that others of its conditions have. */
  #finder(wait: WaitOne, { sinceMs, untilMs }: { sinceMs: number; untilMs: number }) {
    const { plan, names, trigger } = this.#options;
    const { event, match, match_value, payload } = wait.event_filter;
    names.wait(event);
    const answer = plan.answers.get(event);
    if (!answer)
      return (others: readonly TestEvent[]): TestEvent | undefined =>
        findDelivery(
          this.#deliveries.filter((one) => !others.includes(one)),
          wait.event_filter,
          { nowMs: sinceMs, untilMs, trigger },
        );
    const data = answer({
      name: wait.step_name,
      event,
      payload,
      ...(match !== undefined && { match }),
      ...(match_value !== undefined && { matchValue: match_value }),
    });
    const answered: TestEvent = { event, data, atMs: sinceMs, taken: true };
    return () => answered;
  }

  async #invoke(invoke: Invoke, sinceMs: number): Promise<TestEnd> {
    const isAsync = invoke.type === "invoke_function_async";
    const id = invoke.function_id;
    const { names, plan } = this.#options;
    const { invokes } = plan;
    names.invoke(id);
    if (!invokes.has(id) && !isAsync)
      throw new TypeError(`the test has no answer for ${id}: say mockInvoke("${id}", …)`);
    const base = baseOf(invoke);
    const limitMs = isAsync ? Number.POSITIVE_INFINITY : (invoke.invoke_timeout_ms ?? invokeMsMax);
    const { tookMs, ...child } = await this.#childEnd(invoke, invokes.get(id));
    if (isAsync) {
      // A parent that does not wait learns how its child ended by a wait for the run.
      const { size } = this.#children;
      const output = { run_id: `run_child_${id}${size === 0 ? "" : `_${size + 1}`}` };
      this.#children.set(output.run_id, { functionId: id, endedMs: sinceMs + tookMs, ...child });
      return { atMs: sinceMs, step: { ...base, status: "completed", output } };
    }
    const failed = child.error && { ...child.error, code: "INVOKE_FAILED", retryable: false };
    const error = tookMs > limitMs ? invokeTimedOut(id) : failed;
    const atMs = sinceMs + Math.min(tookMs, limitMs);
    if (!error) return { atMs, step: { ...base, status: "completed", output: child.output } };
    return { atMs, step: { ...base, status: "failed", output: null, error } };
  }

  async #childEnd(
    invoke: Invoke,
    answer: unknown,
  ): Promise<{ tookMs: number; output?: unknown; error?: ReportedError }> {
    const input = asJson(invoke.input);
    try {
      if (!isFunction(answer)) {
        const output =
          typeof answer === "function" ? await answer({ functionId: invoke.function_id, input }) : answer;
        return { tookMs: 0, output: asJson(output) };
      }
      const { status, error, output, elapsedMs: tookMs } = await this.#options.runChild(answer, input);
      if (status === "failed") return { tookMs, error: reportedError(new Error(error?.message)) };
      return { tookMs, output: asJson(output) };
    } catch (error) {
      return { tookMs: 0, error: reportedError(error) };
    }
  }
}
