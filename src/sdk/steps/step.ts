import { errorOf, NonRetryableError, type ReportedError, StepFailedError } from "../wire/errors.ts";
import type { Logger } from "../wire/types.ts";
import type { CompletedStep, Yield } from "../wire/wire.ts";
import { Course, open } from "./course.ts";
import type { Deviations } from "./deviations.ts";
import { Handling } from "./handling.ts";
import { createScopes, escapeName, type Scope, type Scopes } from "./scope.ts";
import type { ExecutionHost, PerformOptions, StepUse, StepWork } from "./step-host.ts";
import { type TriedStep, triedOf } from "./step-retry.ts";
import { type StepWorkHost, tryOnce, tryRepeatedly } from "./step-work.ts";

type ComputingParts = Pick<StepWorkHost, "runId" | "host" | "scopes" | "log" | "blamed"> & {
  course: Course;
  handling: Handling;
};

/** Makes what runs a step's work. Results come in turn; it stays open if the job is another's, or was cut. */
function computing({ course, handling, ...rest }: ComputingParts) {
  const parts: StepWorkHost = {
    ...rest,
    isUndoing: () => handling.isUndoing,
    isOver: () => handling.isOver,
    signal: () => handling.signal(),
    stop(work) {
      course.end(work);
      return open();
    },
    async leave(work, scope, yielded) {
      course.end(work);
      await course.waitUntil(scope, yielded, yielded.duration_ms);
      course.resume(work);
    },
  };

  return (
    step: StepUse,
    work: StepWork,
    options: PerformOptions,
    before: TriedStep | undefined,
  ): Promise<unknown> => {
    const { retry, isUndone = false } = options;
    const own = course.begin(isUndone);
    const { scope, stepId } = step;
    // What other branches of the scope were handed meanwhile is nothing to this one.
    const met = options.sleptSinceMs === undefined ? scope.lastMet : stepId;
    const given = { step, work, options, computing: own };
    const result = retry
      ? tryRepeatedly(parts, { ...given, retry, before })
      : tryOnce(parts, { ...given, attempt: 1 });
    return new Promise((resolve, reject) => {
      const give = (hand: () => void) => {
        course.end(own);
        if (own.isCut) return;
        course.give(own, () => {
          scope.lastMet = met;
          hand();
        });
      };
      result.then(
        (output) => give(() => resolve(output)),
        (error) => {
          // What is undone is reported, also where the job is another's.
          const isOurs = handling.isUndoing || handling.isHeld();
          give(() => {
            if (isOurs) reject(error);
          });
        },
      );
    });
  };
}

/** One execution as its steps see it. */
export type Execution = ReturnType<typeof createExecution>;

export function createExecution(
  runId: string,
  host: ExecutionHost,
  log: Logger,
  deviations?: Deviations | undefined,
) {
  const scopes = createScopes(runId);
  const course = new Course();
  const isStored = (stepId: string) => placeOf(stepId) !== undefined;
  const handling = new Handling({ runId, host, scopes, course, deviations, log, isStored });
  const culprits = new WeakMap<object, string>();
  let replaying = false;
  let places: Map<string, number> | undefined;

  /** Throws for a call within a step. False when nothing begins here any more: what was called stays open. */
  function requireGoing(name = ""): boolean {
    const outer = scopes.currentStep();
    if (outer !== undefined) throw nestedStep(name, outer);
    course.moved();
    return handling.isHeld();
  }

  function placeOf(stepId: string): number | undefined {
    places ??= new Map(host.stored().map(({ step_id }, place) => [step_id, place]));
    return places.get(stepId);
  }

  const stored = (stepId: string, result: () => unknown) => inItsTurn(course, placeOf(stepId), result);

  function blamed(error: unknown, stepId: string): unknown {
    if (typeof error === "object" && error !== null && !culprits.has(error)) culprits.set(error, stepId);
    return error;
  }

  const compute = computing({ runId, host, scopes, log, course, handling, blamed });

  return {
    ...{ runId, host, scopes, requireGoing },
    /** Undefined where nothing is stored that the handler is to come to again. */
    deviations,
    /** The step that threw this. */
    stepOf: (thrown: unknown) =>
      typeof thrown === "object" && thrown !== null ? culprits.get(thrown) : undefined,
    isWaiting: (branch: Scope) => course.isWaiting(branch),
    whenResting: (check?: () => boolean) => course.whenResting(check),
    joined(parent: Scope) {
      parent.lastMet = course.lastMet;
    },
    /** What the handler waits for, in the order of its calls; `isWhole`: that may be more than one thing. */
    waits: () => ({
      list: course.waits.flatMap(({ yielded }) => yielded ?? []),
      isWhole: course.wasParallel,
    }),

    /** The next use of a name; undefined when its step may not begin: what was called stays open. */
    enter(name: string): StepUse | undefined {
      if (!requireGoing(name)) return undefined;
      const step = useOf(name, { host, scopes, deviations });
      return handling.isLate(step) ? undefined : step;
    },

    /** What the SDK itself computes for the handler. */
    during: <Result>(work: Promise<Result>) => handling.during(work),
    /** Follows the handler to its end, for its result; undefined when it waits. Throws what it threw. */
    follow: (handler: () => Promise<unknown>) => handling.follow(handler),
    /** From here on nothing can be waited for: what the run did is undone. */
    undoes: () => handling.undoes(),

    /** Runs the handler up to where it was when its run ended: what is not stored does not begin. */
    async replay(handler: () => Promise<unknown>) {
      replaying = true;
      try {
        await handling.follow(handler);
      } catch {} // How the run ends is known.
      replaying = false;
    },

    /** The stored result of a step, or that of its work. */
    perform(step: StepUse, work: StepWork, options: PerformOptions = {}): Promise<unknown> {
      const { stepId, scope } = step;
      const memo = host.memo(stepId);
      if (memo && isCompleted(memo)) return stored(stepId, handedTo(scope, memo.output));
      const tried = options.retry && memo && triedOf(storedError(memo));
      if (memo && (tried?.isOver || (replaying && !tried)))
        return stored(stepId, () => {
          throw blamed(recordedError(memo), stepId);
        });
      // Before its last try the handler was not further than this step.
      return replaying ? course.wait(scope, undefined) : compute(step, work, options, tried);
    },

    /** The stored result of a step that others finish; without one it stays open. */
    async awaitStored(
      name: string,
      reason: (base: { step_id: string; step_name: string }) => Yield,
      /** What is made of a step that was not finished in time; left out it is a failure. */
      late?: (message: string) => unknown,
    ): Promise<unknown> {
      const step = this.enter(name);
      if (!step) return open();
      const { stepId, scope } = step;
      const memo = host.memo(stepId);
      if (memo)
        return stored(stepId, () => {
          scope.lastMet = stepId;
          course.lastMet = stepId;
          if (isCompleted(memo)) return memo.output;
          if (late && memo.status === "timed_out") return late(storedError(memo).message ?? "");
          throw failureOf(memo, name);
        });
      if (handling.isUndoing) throw new TypeError(`step ${name}: a compensation cannot sleep or wait`);
      const yielded = { ...reason({ step_id: stepId, step_name: name }), ...afterOf(scope) };
      if (yielded.type !== "sleep" || replaying) return course.wait(scope, yielded);
      const sleptSinceMs = host.now();
      await course.waitUntil(scope, yielded, Date.parse(yielded.until) - sleptSinceMs);
      return compute(step, () => null, { sleptSinceMs }, undefined);
    },
  };
}

function useOf(
  name: string,
  { host, scopes, deviations }: { host: ExecutionHost; scopes: Scopes; deviations: Deviations | undefined },
): StepUse {
  if (typeof name !== "string" || name === "") throw new TypeError("a step needs a name");
  const scope = scopes.current();
  const n = scope.used.get(name) ?? 0;
  scope.used.set(name, n + 1);
  const stepId = `${scope.id}:${escapeName(name)}:${n}`;
  // Rows of older SDKs carry the name as it is.
  const legacyId = `${scope.id}:${name}:${n}`;
  const usedId = legacyId !== stepId && !host.memo(stepId) && host.memo(legacyId) ? legacyId : stepId;
  deviations?.reached(usedId);
  return { name, stepId: usedId, scope };
}

/** What is stored, in its turn. */
const inItsTurn = (course: Course, place: number | undefined, result: () => unknown): Promise<unknown> =>
  new Promise((resolve, reject) => {
    course.giveStored(place ?? Number.POSITIVE_INFINITY, () => {
      try {
        resolve(result());
      } catch (error) {
        reject(error);
      }
    });
  });

const isCompleted = ({ status = "completed" }: CompletedStep): boolean => status === "completed";

/** What other branches of the scope are handed meanwhile is nothing to this one. */
function handedTo(scope: Scope, output: unknown): () => unknown {
  const { lastMet } = scope;
  return () => {
    scope.lastMet = lastMet;
    return output;
  };
}

const afterOf = ({ lastMet }: Scope) => (lastMet === undefined ? {} : { after: lastMet });

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
