import { attemptDelayMs, type ExecutionEnd, type FailedEnd, retryOf } from "../steps/attempts.ts";
import type { ExecutionInput } from "../steps/execute.ts";
import type { HandlerEvent } from "../steps/svc-function.ts";
import { type ReportedError, stackless } from "../wire/errors.ts";
import type { StepDeviation } from "../wire/types.ts";
import type { Compensating } from "../wire/wire.ts";
import type { TestPlan, TestResult } from "./test-plan.ts";
import { asJson, unresolvedIn } from "./testing-match.ts";
import { TestNames } from "./testing-names.ts";
import { TestServer } from "./testing-server.ts";
import { TestStreams } from "./testing-streams.ts";
import { TestCalls, TestWorker } from "./testing-worker.ts";

const executionsMax = 100_000;
/** As on the server. */
const compensationTriesMax = 5;
let runs = 0;

const runTimedOut = (timeoutMs: number): ReportedError => ({
  message: `run exceeded its timeout of ${timeoutMs} ms`,
  code: "RUN_TIMEOUT",
  retryable: false,
});

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

/** The events of a run of a batch; what stands alone comes alone. */
function batchOf(plan: TestPlan, list: readonly unknown[], startMs: number): ExecutionInput["event"][] {
  const { id, definition } = plan.target;
  const size = definition.batch?.size;
  if (size === undefined) throw new TypeError(`function ${id} has no batch`);
  if (list.length < 1 || list.length > size)
    throw new TypeError(`a batch of function ${id} has from 1 to ${size} events`);
  return list.map((data, at) => entryEventOf(plan, data, { id: `evt_test${at + 1}` }, startMs));
}

/** What a run of a test begins with. `batch`: its data is a list, one for each event. */
interface GivenStart {
  event?: GivenEvent | undefined;
  batch?: boolean;
}

/**
 * Runs a function to its end, against a server and a worker in memory. Throws TypeError when a name of the
 * test matches nothing.
 */
export async function simulate(plan: TestPlan, data: unknown, start: GivenStart = {}): Promise<TestResult> {
  const names = new TestNames();
  requireTriggered(plan, start.event?.name);
  const result = await simulateOne(plan, names, data, start);
  names.requireMatched(plan);
  return result;
}

/** Throws TypeError for an event that starts no run of the function. */
function requireTriggered({ target }: TestPlan, name: string | undefined): void {
  const events = (target.definition.triggers ?? []).flatMap(({ event }) => event ?? []);
  if (name === undefined || name === target.id || events.length === 0) return;
  if (events.some((one) => one === name || /[*>]/.test(one))) return;
  throw new TypeError(
    `function ${target.id} has no trigger for the event ${name} (there: ${events.join(", ")})`,
  );
}

async function simulateOne(
  plan: TestPlan,
  names: TestNames,
  data: unknown,
  { event = {}, batch = false }: GivenStart,
): Promise<TestResult> {
  const { target, secrets } = plan;
  const runId = `run_test${++runs}`;
  const startMs = Date.now();
  const retry = retryOf(target.definition.retry);
  const events = batch ? batchOf(plan, data as readonly unknown[], startMs) : undefined;
  const entryEvent = events?.[0] ?? entryEventOf(plan, data, event, startMs);
  names.function(target);
  const calls = new TestCalls(plan.tools, names);
  const streams = new TestStreams();
  const server = new TestServer({
    plan,
    names,
    trigger: entryEvent.data,
    startMs,
    appended: streams.appended,
    runChild: (child, input) => simulateOne({ ...plan, target: child }, names, input, {}),
  });
  const worker = new TestWorker({ plan, names, server, calls });

  // As on the server 0 is none.
  const timeoutMs = target.definition.timeoutMs || Number.POSITIVE_INFINITY;
  let executions = 0;
  let end: { output: unknown } | { error: ReportedError } | undefined;
  let compensating: Compensating | undefined;
  let compensationFailed = 0;
  let nondeterminism: StepDeviation[] = [];

  /** The run fails for good: it is undone first, if there is anything to undo. */
  function fail(reported: FailedEnd["error"]): void {
    // What a report says of its step is the server's to know.
    const { step_id: _step, exhausted: _exhausted, ...error } = stackless<FailedEnd["error"]>(reported);
    if (worker.undoCount === 0 && !target.onFailure) end = { error };
    else compensating = { status: "failed", error, interrupted: false, tries_left: compensationTriesMax - 1 };
  }

  while (end === undefined) {
    if (++executions > executionsMax)
      throw new Error(`function ${target.id} was entered ${executionsMax} times and never ended`);
    const entry = {
      run_id: runId,
      attempt: server.attempt,
      max_attempts: retry.maxAttempts,
      event: entryEvent,
      ...(events && { events }),
      context: { secrets },
      ...(compensating && { compensating }),
    };
    const ended = await streams.during(() => worker.execute(entry));
    if (calls.lacking) throw calls.lacking;
    if (ended === undefined) continue;
    if (ended.deviations) nondeterminism = ended.deviations;
    if (compensating) {
      const { error: failure, compensationsFailed = 0 } = ended as ExecutionEnd & { status: "failed" };
      if (failure.retryable) {
        server.nowMs += attemptDelayMs(retry, compensationTriesMax - compensating.tries_left);
        compensating.tries_left--;
      } else {
        compensationFailed = compensationsFailed;
        end = { error: compensating.error as ReportedError };
      }
    } else if (ended.status === "completed") end = { output: JSON.parse(ended.outputText) };
    else if (ended.status === "yielded") {
      const waits = ended.yields ?? [ended.yield];
      const unresolved = unresolvedIn(waits, entryEvent.data);
      if (unresolved) fail(unresolved);
      else await server.settle(waits);
    } else if (!ended.error.retryable || server.attempt >= retry.maxAttempts) fail(ended.error);
    else {
      server.nowMs += attemptDelayMs(retry, server.attempt);
      server.attempt++;
    }
    if (!end && !compensating && server.nowMs - startMs >= timeoutMs) {
      server.nowMs = startMs + timeoutMs;
      fail(runTimedOut(timeoutMs));
    }
  }
  return {
    status: "output" in end ? "completed" : "failed",
    output: "output" in end ? end.output : null,
    error: "error" in end ? end.error : undefined,
    steps: server.steps(),
    compensationFailed,
    nondeterminism,
    attempts: server.attempt,
    executions,
    elapsedMs: server.nowMs - startMs,
    emitted: calls.emitted,
    published: calls.published,
    toolCalls: calls.toolCalls,
    appended: streams.appended,
    ...{ logs: worker.lines, outputs: worker.outputs.all() },
    attributes: Object.fromEntries(worker.attributes),
  };
}
