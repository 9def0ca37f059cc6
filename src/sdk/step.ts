import type { StepCallOptions } from "./calls.ts";
import { NonRetryableError, type ReportedError, reportedError } from "./errors.ts";
import { asStored, outputText } from "./payload.ts";
import { createScopes, escapeName, type Scope, type Scopes, Suspended, suspensionOf } from "./scope.ts";
import type { StepContext } from "./steps.ts";
import type { CompletedStep, Yield } from "./wire.ts";

/** What an execution needs of the place where it runs: a worker's job, a request to an endpoint, a test. */
export interface ExecutionHost {
  /** Throws when the execution may not go on: another worker has the run, it was cancelled, or a step was refused. */
  requireHeld(): void;
  memo(stepId: string): CompletedStep | undefined;
  /** Undefined while the lease cannot be over; otherwise resolves when the server confirms it, and throws when it is lost. */
  sure(): Promise<void> | undefined;
  /** Takes the JSON of a finished step. Resolves at once, or when it is stored where that is asked for. */
  record(stepText: string): Promise<void> | undefined;
  signal(): AbortSignal;
  /** Milliseconds since 1970. */
  now(): number;
  /** A unary RPC, made for the run; one that may be repeated unless `options` say otherwise. Throws SvcError. */
  call<Answer>(method: string, message: unknown, options?: StepCallOptions): Promise<Answer>;
  /**
   * Takes how many compensations the run has; resolves once the server knows that there are some, undefined when it does
   * (`isKnown`). Absent where the server does not hand out runs to be undone: the execution that fails then undoes what it can.
   */
  undoes?(count: number, isKnown: boolean): Promise<void> | undefined;
  /** Tests put other code in the place of a step's. */
  substitute?(name: string, work: StepWork): StepWork;
}

export type StepWork = (context: StepContext) => unknown;

/** The next use of a name in its scope. */
export interface StepUse {
  readonly name: string;
  readonly stepId: string;
  readonly scope: Scope;
}

export interface PerformOptions {
  timeoutMs?: number | undefined;
  /** Makes it a compensation of that step. */
  compensationFor?: string;
}

/** One execution as its steps see it. */
export interface Execution {
  readonly runId: string;
  readonly host: ExecutionHost;
  readonly scopes: Scopes;
  /** Throws when no further step may begin here. */
  requireGoing(): void;
  use(name: string): StepUse;
  /** The stored result of a step, or that of its work. */
  perform(step: StepUse, work: StepWork, options?: PerformOptions): Promise<unknown>;
  /** The stored result of a step that others finish; without one the execution ends here. */
  awaitStored(
    name: string,
    reason: (base: { step_id: string; step_name: string }) => Yield,
    /** What is made of a step that was not finished in time; left out it is a failure. */
    late?: (message: string) => unknown,
  ): Promise<unknown>;
  /** Notes that something runs; what it returns notes that it has ended. */
  begin(): () => void;
  /** Resolves when nothing runs any more. */
  still(): Promise<void>;
  /** Why the run as a whole stops here. */
  suspended(): Suspended | undefined;
  /** From here on nothing can be waited for. */
  close(): void;
  /** Runs the handler up to where it was when its run came to its end: what is not stored does not begin. */
  replay(handler: () => Promise<unknown>): Promise<void>;
  /** The step that threw this. */
  stepOf(thrown: unknown): string | undefined;
}

/** A step took longer than it was given. Retried as any other error. */
export class StepTimeoutError extends Error {
  readonly code = "STEP_TIMEOUT";
  constructor(name: string, timeoutMs: number) {
    super(`step ${name} took longer than ${timeoutMs} ms`);
    this.name = "StepTimeoutError";
  }
}

export function createExecution(runId: string, host: ExecutionHost): Execution {
  const scopes = createScopes(runId);
  const root = scopes.current();
  const culprits = new WeakMap<object, string>();
  let suspensions = 0;
  let closed = false;
  let replaying = false;
  let underWay = 0;
  let whenStill: (() => void) | undefined;

  function requireGoing(): void {
    host.requireHeld();
    const suspension = suspensionOf(scopes.current());
    if (suspension) throw suspension;
  }

  function begin(): () => void {
    underWay++;
    return () => {
      if (--underWay === 0) whenStill?.();
    };
  }

  function use(name: string): StepUse {
    if (typeof name !== "string" || name === "") throw new TypeError("a step needs a name");
    const scope = scopes.current();
    const n = scope.used.get(name) ?? 0;
    scope.used.set(name, n + 1);
    const stepId = `${scope.id}:${escapeName(name)}:${n}`;
    // Rows of older SDKs carry the name as it is.
    const legacyId = `${scope.id}:${name}:${n}`;
    const isLegacy = legacyId !== stepId && !host.memo(stepId) && host.memo(legacyId);
    return { name, stepId: isLegacy ? legacyId : stepId, scope };
  }

  function suspend(scope: Scope, yielded: Yield | undefined): Suspended {
    scope.suspended = new Suspended(yielded, suspensions++);
    return scope.suspended;
  }

  async function still(): Promise<void> {
    while (underWay > 0) {
      await new Promise<void>((done) => {
        whenStill = done;
      });
    }
  }

  return {
    runId,
    host,
    scopes,
    requireGoing,
    use,
    begin,
    suspended: () => root.suspended,
    stepOf: (thrown) => (typeof thrown === "object" && thrown !== null ? culprits.get(thrown) : undefined),
    close() {
      closed = true;
    },

    still,

    async replay(handler) {
      replaying = true;
      try {
        await handler();
      } catch {} // How the run ends is known.
      await still();
      replaying = false;
      root.suspended = undefined;
    },

    async perform({ name, stepId, scope }, work, { timeoutMs, compensationFor } = {}) {
      const memo = host.memo(stepId);
      if (memo && (memo.status ?? "completed") === "completed") return memo.output;
      if (replaying) throw memo ? recordedError(memo) : suspend(scope, undefined);
      const end = begin();
      try {
        await host.sure();
        const rowOf = stepRow({ stepId, name, compensationFor, startedMs: host.now() }, host.now);
        let output: unknown;
        let text: string | undefined;
        try {
          const own = host.substitute?.(name, work) ?? work;
          output = await (timeoutMs === undefined
            ? own(contextOf(stepId, host))
            : inTime(name, timeoutMs, stepId, host, own));
          text = outputText(`the result of step ${name}`, output);
        } catch (error) {
          if (!(error instanceof Suspended)) {
            if (typeof error === "object" && error !== null && !culprits.has(error))
              culprits.set(error, stepId);
            const failure = JSON.stringify(reportedError(error, true));
            await host.record(rowOf(`"status":"failed","error":${failure}`));
          }
          throw error;
        }
        const rest = text === undefined ? `"status":"completed"` : `"status":"completed","output":${text}`;
        await host.record(rowOf(rest));
        return asStored(output, text);
      } finally {
        end();
      }
    },

    async awaitStored(name, reason, late) {
      requireGoing();
      const { stepId, scope } = use(name);
      const memo = host.memo(stepId);
      if (memo) {
        if ((memo.status ?? "completed") === "completed") return memo.output;
        if (late && memo.status === "timed_out") return late(storedError(memo).message ?? "");
        throw failureOf(memo, name);
      }
      if (closed) throw new TypeError(`step ${name}: a compensation cannot sleep or wait`);
      throw suspend(scope, reason({ step_id: stepId, step_name: name }));
    },
  };
}

/** The JSON of a step that ends now. Written by hand, once: the text goes into the report as it is. */
function stepRow(
  step: { stepId: string; name: string; compensationFor: string | undefined; startedMs: number },
  now: () => number,
): (rest: string) => string {
  const { stepId, name, compensationFor, startedMs } = step;
  return (rest) => {
    const endedMs = now();
    return (
      `{"id":${JSON.stringify(stepId)},"name":${JSON.stringify(name)},` +
      (compensationFor === undefined
        ? `"type":"invoke",`
        : `"type":"compensate","compensation_for":${JSON.stringify(compensationFor)},`) +
      `${rest},"started_at":"${new Date(startedMs).toISOString()}",` +
      `"ended_at":"${new Date(endedMs).toISOString()}","duration_ms":${Math.max(0, endedMs - startedMs)}}`
    );
  };
}

const contextOf = (id: string, host: ExecutionHost): StepContext => ({
  id,
  // Most steps never look at it.
  get signal() {
    return host.signal();
  },
});

async function inTime(
  name: string,
  timeoutMs: number,
  id: string,
  host: ExecutionHost,
  work: StepWork,
): Promise<unknown> {
  const over = new AbortController();
  const outer = host.signal();
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
    return await Promise.race([late, Promise.resolve(work({ id, signal: over.signal }))]);
  } finally {
    clearTimeout(timer);
    outer.removeEventListener("abort", relay);
  }
}

/** The error that is stored with a step: JSON, or its text. */
export function storedError(memo: CompletedStep): Partial<ReportedError> & Record<string, unknown> {
  const { error } = memo;
  if (typeof error !== "string") return (error ?? {}) as Record<string, unknown>;
  try {
    return (JSON.parse(error) ?? {}) as Record<string, unknown>;
  } catch {
    return { message: error };
  }
}

/** What a step threw, as far as it was stored. */
function recordedError(memo: CompletedStep): Error {
  const { message = "", code, retryable = true } = storedError(memo);
  if (!retryable) return new NonRetryableError(message, code === undefined ? {} : { code });
  return Object.assign(new Error(message), code !== undefined && { code });
}

/** The error of a step that others could not finish. Not retried: the same row would be there again. */
function failureOf(memo: CompletedStep, name: string): NonRetryableError {
  const error = storedError(memo);
  const cause = error.cause as { message?: unknown } | string | undefined;
  const words: unknown[] = [error.message, typeof cause === "object" ? cause?.message : cause];
  const isLate = memo.status === "timed_out";
  const message = words.find((word) => typeof word === "string" && word !== "");
  const code = typeof error.code === "string" ? error.code : undefined;
  return new NonRetryableError(
    `step ${name} ${isLate ? "took too long" : "failed"}${message ? `: ${message}` : ""}`,
    {
      code:
        code ??
        (isLate ? "STEP_TIMEOUT" : error.child_run_id === undefined ? "STEP_FAILED" : "INVOKE_FAILED"),
      cause: error,
    },
  );
}
