import type { Deviations } from "./deviations.ts";
import { errorOf, NonRetryableError, type ReportedError, StepFailedError } from "./errors.ts";
import { createScopes, escapeName, type Scope, type Scopes, Suspended, suspensionOf } from "./scope.ts";
import type { ExecutionHost, PerformOptions, StepUse, StepWork } from "./step-host.ts";
import { triedOf } from "./step-retry.ts";
import { type StepWorkHost, tryOnce, tryRepeatedly } from "./step-work.ts";
import type { Logger } from "./types.ts";
import type { CompletedStep, Yield } from "./wire.ts";

/** One execution as its steps see it. */
export interface Execution {
  readonly runId: string;
  readonly host: ExecutionHost;
  readonly scopes: Scopes;
  /** Undefined where nothing is stored that the handler is to come to again. */
  readonly deviations: Deviations | undefined;
  /** Throws when no further step may begin here; with the name of one also when that one may not. */
  requireGoing(name?: string): void;
  /** The handler has returned its result: from here on no step begins. */
  returned(): void;
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

export function createExecution(
  runId: string,
  host: ExecutionHost,
  log: Logger,
  deviations?: Deviations | undefined,
): Execution {
  const scopes = createScopes(runId);
  const root = scopes.current();
  const culprits = new WeakMap<object, string>();
  let suspensions = 0;
  let closed = false;
  let replaying = false;
  let hasReturned = false;
  const { begin, still } = createActivity();

  function requireGoing(name?: string): void {
    host.requireHeld();
    const suspension = suspensionOf(scopes.current());
    if (suspension) {
      deviations?.cut();
      throw suspension;
    }
    if (name === undefined) return;
    const outer = scopes.currentStep();
    if (outer !== undefined) throw nestedStep(name, outer);
    if (!hasReturned) return;
    deviations?.leftOver();
    const message = `step ${name} was called after its handler had returned: await every step`;
    // Its caller may await nothing, and would not learn of it.
    log.warn(message, { runId });
    throw new TypeError(message);
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
    const usedId = isLegacy ? legacyId : stepId;
    deviations?.reached(usedId);
    return { name, stepId: usedId, scope };
  }

  function suspend(scope: Scope, yielded: Yield | undefined): Suspended {
    scope.suspended = new Suspended(yielded, suspensions++);
    return scope.suspended;
  }

  function blamed(error: unknown, stepId: string): unknown {
    if (typeof error === "object" && error !== null && !culprits.has(error)) culprits.set(error, stepId);
    return error;
  }

  const parts: StepWorkHost = { runId, host, scopes, log, begin, requireGoing, suspend, blamed };
  return {
    runId,
    host,
    scopes,
    deviations,
    requireGoing,
    use,
    begin,
    returned() {
      hasReturned = true;
    },
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

    perform(step, work, options = {}) {
      const { stepId, scope } = step;
      const memo = host.memo(stepId);
      if (memo && (memo.status ?? "completed") === "completed") return Promise.resolve(memo.output);
      const tried = options.retry && memo && triedOf(storedError(memo));
      if (memo && tried?.isOver) throw blamed(recordedError(memo), stepId);
      // Before its last try the handler was not further than this step.
      if (replaying) throw memo && !tried ? recordedError(memo) : suspend(scope, undefined);
      const { retry } = options;
      if (!retry) return tryOnce(parts, { step, work, options, attempt: 1 });
      return tryRepeatedly(parts, { step, work, options, retry, before: tried });
    },

    async awaitStored(name, reason, late) {
      requireGoing(name);
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

/** Counts what runs in an execution. */
function createActivity(): Pick<Execution, "begin" | "still"> {
  let underWay = 0;
  let whenStill: (() => void) | undefined;
  return {
    begin() {
      underWay++;
      return () => {
        if (--underWay === 0) whenStill?.();
      };
    },
    async still() {
      while (underWay > 0) {
        await new Promise<void>((done) => {
          whenStill = done;
        });
      }
    },
  };
}

const nestedStep = (name: string, outer: string): NonRetryableError =>
  new NonRetryableError(
    `step ${name} was called within step ${outer}: a step has no steps of its own; call it beside ${outer}`,
    { code: "NESTED_STEP" },
  );

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
  const { message = "", retryable = true, tries, ...rest } = storedError(memo);
  const error = errorOf({ ...rest, message });
  if (retryable && typeof tries === "number")
    return new StepFailedError(memo.name, tries, { ...rest, message }, error);
  if (retryable) return error;
  const { cause, code } = error as { cause?: unknown; code?: string };
  const final = new NonRetryableError(message, { ...(code !== undefined && { code }), cause });
  return rest.name === undefined ? final : Object.assign(final, { name: rest.name });
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
