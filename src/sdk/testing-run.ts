import { durationMs } from "./duration.ts";
import { reportedError, SvcError } from "./errors.ts";
import { type Entry, execute } from "./execute.ts";
import type { HandlerEvent, SvcFunction } from "./function.ts";
import type { ExecutionHost, StepWork } from "./step.ts";
import type { TestPlan, TestResult, TestStep } from "./testing.ts";
import { findDelivery } from "./testing-match.ts";
import type { CompletedStep, ReportedStep, Yield } from "./wire.ts";

const executionsMax = 100_000;
const waitMsDefault = 7 * 86_400_000;
const invokeMsDefault = 30_000;
let runs = 0;

const asJson = (value: unknown): unknown => (value === undefined ? null : JSON.parse(JSON.stringify(value)));

const isFunction = (value: unknown): value is SvcFunction =>
  typeof value === "object" && value !== null && "handler" in value && "definition" in value;

/** Server and worker of one run, in memory. */
export async function simulate(
  plan: TestPlan,
  data: unknown,
  event: Partial<Omit<HandlerEvent, "data">> = {},
): Promise<TestResult> {
  const { target } = plan;
  const runId = `run_test${++runs}`;
  const startMs = Date.now();
  const retry = { maxAttempts: 3, initialDelayMs: 1_000, backoffFactor: 2, maxDelayMs: 300_000 };
  Object.assign(retry, target.definition.retry);

  const rows = new Map<string, TestStep>();
  const emitted: TestResult["emitted"] = [];
  const published: TestResult["published"] = [];
  const crashes = plan.crashes.map((crash) => ({ ...crash, at: new Set<string>() }));
  const deliveries = plan.deliveries.map((one) => ({
    ...one,
    atMs: one.afterMs === undefined ? undefined : startMs + one.afterMs,
    taken: false,
  }));
  let nowMs = startMs;
  let attempt = 1;
  let executions = 0;
  let executed = 0;
  let end: { output: unknown } | { error: TestResult["error"] & object } | undefined;

  const { idempotencyKey, ...given } = event;
  const entryEvent: Entry["event"] = {
    id: "evt_test",
    name: target.definition.triggers?.find((one) => one.event !== undefined)?.event ?? target.id,
    timestamp: new Date(startMs).toISOString(),
    version: target.events?.version(event.name ?? "") ?? 1,
    source: "api",
    metadata: null,
    ...given,
    ...(idempotencyKey !== undefined && { idempotency_key: idempotencyKey }),
    data: asJson(data),
  };

  function store(row: Omit<TestStep, "attempt">): void {
    rows.set(row.id, { ...row, attempt });
  }

  function storeReported({ id, name, type, status, output, error, compensation_for }: ReportedStep): void {
    store({
      id,
      name,
      type,
      status,
      output: output ?? null,
      ...(error && { error }),
      ...(compensation_for !== undefined && { compensationFor: compensation_for }),
    });
  }

  /** The crash that is due after this step, if any. */
  function crashAfter(step: ReportedStep): { stored: boolean } | undefined {
    for (const crash of crashes) {
      const every = crash.step === "every";
      if (!every && crash.step !== step.name && crash.step !== executed) continue;
      if (every ? crash.at.has(step.id) : crash.at.size > 0) continue;
      crash.at.add(step.id);
      return crash;
    }
    return undefined;
  }

  function memoOf(row: TestStep | undefined): CompletedStep | undefined {
    if (!row) return undefined;
    const { id, name, output, status, error } = row;
    return { step_id: id, name, output: asJson(output), status, ...(error && { error }) };
  }

  function work(name: string, own: StepWork): StepWork {
    const failure = plan.failures.find(
      (one) => one.name === name && (one.attempt === undefined || one.attempt === attempt),
    );
    if (failure) {
      return () => {
        throw failure.error;
      };
    }
    if (!plan.steps.has(name)) return own;
    const answer = plan.steps.get(name);
    return typeof answer === "function" ? (answer as StepWork) : () => answer;
  }

  async function call(method: string, message: unknown): Promise<Record<string, unknown>> {
    const sent = message as Record<string, unknown>;
    const key = String(sent.idempotencyKey);
    const payload = asJson("data" in sent ? sent.data : sent.dataValue);
    if (method === "PubSubService/Publish") {
      const at = published.findIndex((one) => one.idempotencyKey === key);
      if (at < 0) published.push({ topic: String(sent.topic), data: payload, idempotencyKey: key });
      const sequence = at < 0 ? published.length : at + 1;
      return { eventId: `evt_published${sequence}`, sequence };
    }
    const at = emitted.findIndex((one) => one.idempotencyKey === key);
    if (at < 0) emitted.push({ event: String(sent.event), data: payload, idempotencyKey: key });
    const sequence = at < 0 ? emitted.length : at + 1;
    return { eventId: `evt_emitted${sequence}`, runIds: [], sequence };
  }

  /** Undefined when the worker died on the way. */
  async function executeOnce() {
    const stop = new AbortController();
    let died: SvcError | undefined;
    const requireHeld = () => {
      if (died) throw died;
    };
    const host: ExecutionHost = {
      requireHeld,
      memo: (stepId) => memoOf(rows.get(stepId)),
      sure: () => undefined,
      record(text) {
        requireHeld();
        const step = JSON.parse(text) as ReportedStep;
        executed++;
        const crash = crashAfter(step);
        if (crash?.stored ?? true) storeReported(step);
        if (!crash) return undefined;
        died = new SvcError("worker_stopped", `the test's worker was killed after step ${step.name}`);
        stop.abort(died);
        throw died;
      },
      signal: () => stop.signal,
      now: () => nowMs,
      call: async <Answer>(method: string, message: unknown) => (await call(method, message)) as Answer,
      substitute: work,
    };
    const entry: Entry = {
      run_id: runId,
      attempt,
      max_attempts: retry.maxAttempts,
      event: entryEvent,
      context: { secrets: plan.secrets },
    };
    const ended = await execute(target, entry, host, plan.log);
    return died ? undefined : ended;
  }

  async function settleYield(reason: Yield): Promise<void> {
    const base = { id: reason.step_id, name: reason.step_name, type: reason.type };
    switch (reason.type) {
      case "sleep":
        nowMs = Math.max(nowMs, Date.parse(reason.until));
        return store({ ...base, type: "sleep", status: "completed", output: null });
      case "wait_for_event": {
        const { event: name, timeout, match, match_value, payload } = reason.event_filter;
        const untilMs = nowMs + (timeout === undefined ? waitMsDefault : durationMs(timeout));
        const answer = plan.answers.get(name);
        const found = answer
          ? {
              atMs: nowMs,
              data: answer({
                name: reason.step_name,
                event: name,
                payload,
                ...(match !== undefined && { match }),
                ...(match_value !== undefined && { matchValue: match_value }),
              }),
            }
          : findDelivery(deliveries, reason.event_filter, { nowMs, untilMs, trigger: entryEvent.data });
        nowMs = found ? (found.atMs ?? nowMs) : untilMs;
        if (found) {
          const timestamp = new Date(nowMs).toISOString();
          const awaited = {
            id: "evt_awaited",
            name,
            version: 1,
            data: asJson(found.data),
            timestamp,
            source: "api",
          };
          return store({ ...base, status: "completed", output: awaited });
        }
        const error = { message: `no event ${name} came in time`, code: "STEP_TIMEOUT", retryable: false };
        store({ ...base, status: "timed_out", output: null, error });
        end = { error };
        return;
      }
      default:
        return settleInvoke(reason, base);
    }
  }

  async function settleInvoke(
    reason: Extract<Yield, { function_id: string }>,
    base: { id: string; name: string; type: TestStep["type"] },
  ): Promise<void> {
    const isAsync = reason.type === "invoke_function_async";
    const id = reason.function_id;
    if (!plan.invokes.has(id) && !isAsync)
      throw new TypeError(`the test has no answer for ${id}: say mockInvoke("${id}", …)`);
    const answer = plan.invokes.get(id);
    const input = asJson(reason.input);
    try {
      let output: unknown;
      if (isFunction(answer)) {
        const child = await simulate({ ...plan, target: answer }, input);
        if (!isAsync) nowMs += child.elapsedMs;
        const limitMs = (!isAsync && reason.invoke_timeout_ms) || invokeMsDefault;
        if (!isAsync && child.elapsedMs > limitMs) throw new Error(`took longer than ${limitMs} ms`);
        if (child.status === "failed") throw new Error(child.error?.message);
        output = child.output;
      } else output = typeof answer === "function" ? await answer({ functionId: id, input }) : answer;
      store({
        ...base,
        status: "completed",
        output: isAsync ? { run_id: `run_child_${id}` } : asJson(output),
      });
    } catch (error) {
      if (isAsync) return store({ ...base, status: "completed", output: { run_id: `run_child_${id}` } });
      const failure = { ...reportedError(error), code: "INVOKE_FAILED", retryable: false };
      store({ ...base, status: "failed", output: null, error: failure });
    }
  }

  while (end === undefined) {
    if (++executions > executionsMax)
      throw new Error(`function ${target.id} was entered ${executionsMax} times and never ended`);
    const ended = await executeOnce();
    if (ended === undefined) continue;
    if (ended.status === "completed") end = { output: JSON.parse(ended.outputText) };
    else if (ended.status === "yielded") await settleYield(ended.yield);
    else if (!ended.error.retryable || attempt >= retry.maxAttempts) end = { error: ended.error };
    else {
      nowMs += Math.min(retry.initialDelayMs * retry.backoffFactor ** (attempt - 1), retry.maxDelayMs);
      attempt++;
    }
  }
  return {
    status: "output" in end ? "completed" : "failed",
    output: "output" in end ? end.output : null,
    error: "error" in end ? end.error : undefined,
    steps: [...rows.values()],
    attempts: attempt,
    executions,
    elapsedMs: nowMs - startMs,
    emitted,
    published,
  };
}
