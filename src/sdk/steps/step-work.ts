import { secondsText } from "../wire/duration.ts";
import { type ReportedError, reportedError, StepFailedError } from "../wire/errors.ts";
import { asStored, outputText } from "../wire/payload.ts";
import { foldedStack } from "../wire/stack.ts";
import type { Logger } from "../wire/types.ts";
import type { Yield } from "../wire/wire.ts";
import type { Computing } from "./course.ts";
import type { Scope, Scopes } from "./scope.ts";
import type { ExecutionHost, PerformOptions, StepUse, StepWork } from "./step-host.ts";
import { nextTryInMs, type RetryRule, type TriedStep, triedFields } from "./step-retry.ts";
import type { StepContext } from "./steps.ts";

/** A step took longer than it was given. Retried as any other error. */
export class StepTimeoutError extends Error {
  readonly code = "STEP_TIMEOUT";
  constructor(name: string, timeoutMs: number) {
    super(`step ${name} took longer than ${timeoutMs} ms`);
    this.name = "StepTimeoutError";
  }
}

/** What the work of steps needs of their execution. */
export interface StepWorkHost {
  runId: string;
  host: ExecutionHost;
  scopes: Scopes;
  log: Logger;
  /** The compensations of the run are under way, or its `onFailure`. */
  isUndoing(): boolean;
  /** The handler has ended: no further try begins. */
  isOver(): boolean;
  /** Raised as that of the run, and when the handler has ended. */
  signal(): AbortSignal;
  /** The work does not continue here. Never settles. */
  stop(work: Computing): Promise<never>;
  /** The server hands the run out again. Resolves when the time is over while other work still runs here. */
  leave(work: Computing, scope: Scope, yielded: Yield & { type: "retry_step" }): Promise<void>;
  /** Notes which step threw it; answers it. */
  blamed(error: unknown, stepId: string): unknown;
}

interface WorkOfStep {
  step: StepUse;
  work: StepWork;
  options: PerformOptions;
  computing: Computing;
}

/** The result of the work, recorded. Throws what it threw, recorded too. */
export async function tryOnce(
  { host, scopes, isUndoing, signal, blamed }: StepWorkHost,
  {
    step: { name, stepId, scope },
    work,
    options: { timeoutMs, compensationFor, sleptSinceMs },
    computing,
    attempt,
    onFailed,
  }: WorkOfStep & {
    attempt: number;
    /** Gives further fields of the row of a failure. */
    onFailed?: (error: ReportedError) => string;
  },
): Promise<unknown> {
  const sure = host.sure();
  if (sure) await sure;
  const type = sleptSinceMs === undefined ? "invoke" : host.sleptType;
  const startedMs = sleptSinceMs ?? host.now();
  const rowOf = stepRow({ stepId, name, type, compensationFor, startedMs }, host.now);
  const record = (rest: string) => (computing.isCut ? undefined : host.record(rowOf(rest)));
  let output: unknown;
  let text: string | undefined;
  try {
    const own = (sleptSinceMs === undefined && host.substitute?.(name, work)) || work;
    const given = contextOf(stepId, attempt, host, computing.isUndone ? host.signal : signal);
    // A compensation may have steps of its own; each try reaches them again.
    const inside = {
      scope:
        compensationFor === undefined
          ? scope
          : { id: stepId, used: new Map(), parent: scope, lastMet: undefined },
      step: compensationFor === undefined ? name : undefined,
      stepId,
      isUndoing: isUndoing(),
    };
    output = await (timeoutMs === undefined
      ? scopes.inStep(inside, own, given)
      : inTime(name, timeoutMs, given, (late) => scopes.inStep(inside, own, late)));
    text = outputText(`the result of step ${name}`, output);
  } catch (error) {
    blamed(error, stepId);
    const reported = reportedError(error, foldedStack);
    const rest = onFailed?.(reported) ?? "";
    await record(`"status":"failed","error":${JSON.stringify(reported)}${rest}`);
    throw error;
  }
  const stored = record(
    text === undefined ? `"status":"completed"` : `"status":"completed","output":${text}`,
  );
  if (stored) await stored;
  return asStored(output, text);
}

/**
 * Tries until the work succeeds or its tries are used up. They count over executions: each failed one is
 * stored with the time of the next. A long wait is the server's.
 */
export async function tryRepeatedly(
  execution: StepWorkHost,
  { retry, before, ...rest }: WorkOfStep & { retry: RetryRule; before: TriedStep | undefined },
): Promise<unknown> {
  const { runId, host, log, isOver, leave, stop, blamed } = execution;
  const { name, stepId, scope } = rest.step;
  let dueInMs = before?.dueInMs ?? 0;
  for (let tries = (before?.tries ?? 0) + 1; ; tries++) {
    if (dueInMs > host.pauseMsMax) {
      const type = "retry_step";
      const yielded = { type, step_id: stepId, step_name: name, duration_ms: dueInMs } as const;
      await leave(rest.computing, scope, yielded);
    } else if (dueInMs > 0) await host.pause(dueInMs);
    if (dueInMs > 0) {
      host.requireHeld();
      if (isOver()) return stop(rest.computing);
    }
    let next: number | undefined;
    try {
      const onFailed = (error: ReportedError) => {
        next = nextTryInMs(retry, tries, error);
        return triedFields(retry, tries, next);
      };
      return await tryOnce(execution, { ...rest, attempt: tries, onFailed });
    } catch (error) {
      host.requireHeld();
      const reported = reportedError(error, foldedStack);
      if (next === undefined)
        throw reported.retryable ? blamed(new StepFailedError(name, tries, reported, error), stepId) : error;
      const what = `step ${name}: try ${tries} of ${retry.triesMax} failed, again in ${secondsText(next)}`;
      log.warn(what, {
        ...{ runId, reason: reported.message },
        ...(reported.stack !== undefined && { stack: reported.stack }),
      });
      dueInMs = next;
    }
  }
}

interface StepStart {
  stepId: string;
  name: string;
  type: "invoke" | "sleep";
  compensationFor: string | undefined;
  startedMs: number;
}

/** The JSON of a step that ends now. Written by hand, once: the text goes into the report as it is. */
function stepRow(step: StepStart, now: () => number): (rest: string) => string {
  const { stepId, name, type, compensationFor, startedMs } = step;
  return (rest) => {
    const endedMs = now();
    return (
      `{"id":${JSON.stringify(stepId)},"name":${JSON.stringify(name)},` +
      (compensationFor === undefined
        ? `"type":"${type}",`
        : `"type":"compensate","compensation_for":${JSON.stringify(compensationFor)},`) +
      `${rest},"started_at":"${new Date(startedMs).toISOString()}",` +
      `"ended_at":"${new Date(endedMs).toISOString()}","duration_ms":${Math.max(0, endedMs - startedMs)}}`
    );
  };
}

const contextOf = (
  id: string,
  attempt: number,
  host: ExecutionHost,
  signal: () => AbortSignal,
): StepContext => ({
  id,
  attempt,
  // Most steps never look at it.
  get signal() {
    return signal();
  },
  get traceparent() {
    return host.traceparent?.(id);
  },
});

async function inTime(name: string, timeoutMs: number, given: StepContext, work: StepWork): Promise<unknown> {
  const { id, attempt, signal: outer } = given;
  const over = new AbortController();
  const relay = () => over.abort(outer.reason);
  if (outer.aborted) relay();
  outer.addEventListener("abort", relay, { once: true });
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, fail) => {
    timer = setTimeout(() => {
      const error = new StepTimeoutError(name, timeoutMs);
      over.abort(error);
      fail(error);
    }, timeoutMs);
  });
  try {
    return await Promise.race([
      late,
      Promise.resolve(work({ id, attempt, traceparent: given.traceparent, signal: over.signal })),
    ]);
  } finally {
    clearTimeout(timer);
    outer.removeEventListener("abort", relay);
  }
}
