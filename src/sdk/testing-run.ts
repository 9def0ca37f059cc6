import type { ReportedError } from "./errors.ts";
import type { ExecutionInput } from "./execute.ts";
import type { HandlerEvent } from "./svc-function.ts";
import type { TestPlan, TestResult } from "./test-plan.ts";
import { TestCalls } from "./testing-calls.ts";
import { asJson } from "./testing-json.ts";
import { TestServer } from "./testing-server.ts";
import { TestStreams } from "./testing-streams.ts";
import { TestWorker } from "./testing-worker.ts";

const executionsMax = 100_000;
const retryDefault = { maxAttempts: 3, initialDelayMs: 1_000, backoffFactor: 2, maxDelayMs: 300_000 };
let runs = 0;

type GivenEvent = Partial<Omit<HandlerEvent, "data">>;

function entryEventOf(
  { target }: TestPlan,
  data: unknown,
  event: GivenEvent,
  startMs: number,
): ExecutionInput["event"] {
  const { idempotencyKey, ...given } = event;
  return {
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
}

/** Runs a function to its end, against a server and a worker in memory. */
export async function simulate(plan: TestPlan, data: unknown, event: GivenEvent = {}): Promise<TestResult> {
  const { target, secrets } = plan;
  const runId = `run_test${++runs}`;
  const startMs = Date.now();
  const retry = { ...retryDefault, ...target.definition.retry };
  const entryEvent = entryEventOf(plan, data, event, startMs);
  const calls = new TestCalls(plan.tools);
  const streams = new TestStreams();
  const server = new TestServer({
    plan,
    trigger: entryEvent.data,
    startMs,
    runChild: (child, input) => simulate({ ...plan, target: child }, input),
  });
  const worker = new TestWorker(plan, server, calls);

  let executions = 0;
  let end: { output: unknown } | { error: ReportedError } | undefined;
  while (end === undefined) {
    if (++executions > executionsMax)
      throw new Error(`function ${target.id} was entered ${executionsMax} times and never ended`);
    const entry = {
      run_id: runId,
      attempt: server.attempt,
      max_attempts: retry.maxAttempts,
      event: entryEvent,
      context: { secrets },
    };
    const ended = await streams.during(() => worker.execute(entry));
    if (calls.lacking) throw calls.lacking;
    if (ended === undefined) continue;
    if (ended.status === "completed") end = { output: JSON.parse(ended.outputText) };
    else if (ended.status === "yielded") {
      const error = await server.settleYield(ended.yield);
      if (error) end = { error };
    } else if (!ended.error.retryable || server.attempt >= retry.maxAttempts) end = { error: ended.error };
    else {
      const delayMs = retry.initialDelayMs * retry.backoffFactor ** (server.attempt - 1);
      server.nowMs += Math.min(delayMs, retry.maxDelayMs);
      server.attempt++;
    }
  }
  return {
    status: "output" in end ? "completed" : "failed",
    output: "output" in end ? end.output : null,
    error: "error" in end ? end.error : undefined,
    steps: server.steps(),
    attempts: server.attempt,
    executions,
    elapsedMs: server.nowMs - startMs,
    emitted: calls.emitted,
    published: calls.published,
    toolCalls: calls.toolCalls,
    appended: streams.appended,
  };
}
