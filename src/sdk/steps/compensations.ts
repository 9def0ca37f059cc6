import { NonRetryableError, type ReportedError, reportedError } from "../wire/errors.ts";
import type { Compensating } from "../wire/wire.ts";
import type { ExecutionEnd } from "./attempts.ts";
import type { HandlerContext } from "./function.ts";
import { escapeName, type Scope } from "./scope.ts";
import { type Execution, storedError } from "./step.ts";
import type { StepUse } from "./step-host.ts";
import type { SvcFunction } from "./svc-function.ts";

/** A place among the compensations, for what is about to be done. */
export interface UndoReservation {
  /** Resolves once the server knows that the run has something to undo; undefined when it does. */
  readonly known: Promise<void> | undefined;
  /** It is done: from here on it is to be undone. */
  done(undo: () => unknown): void;
  /** It failed, and has nothing to undo. */
  failed(): void;
}

/** How the compensations of a run went. */
interface Undone {
  /** Those that failed for good. */
  failedCount: number;
  /** Those that may succeed later, and what one of them threw. */
  again: { count: number; error: ReportedError } | undefined;
}

/** What a run undoes when it ends without success. */
export type Compensations = ReturnType<typeof createCompensations>;

/** As on the server. */
const shiftedBy = 1_000_000;

interface Compensation {
  step: StepUse;
  name: string;
  /** Undefined while it is not known whether there is anything to undo. */
  undo: (() => unknown) | undefined;
}

export function createCompensations(execution: Execution) {
  const { host } = execution;
  const registered: Compensation[] = [];

  /** Undefined when it went well. */
  async function outcomeOf({ step, name, undo }: Compensation): Promise<ReportedError | undefined> {
    const stored = host.memo(step.stepId);
    if (stored?.status === "failed" && storedError(stored).retryable === false)
      return storedError(stored) as ReportedError;
    try {
      await execution.perform(step, undo ?? (() => Promise.reject(outcomeUnknown(name))), {
        compensationFor: name,
      });
      return undefined;
    } catch (thrown) {
      // Recorded as a failed step; the others still have theirs to undo.
      return reportedError(thrown);
    }
  }

  const taken = new Map<string, Set<number>>();
  /** That of its step, by which a resume finds it; `shiftedBy` is added where one without a step has it. */
  function numberOf(id: string, undone: StepUse | undefined): number {
    const numbers = taken.get(id) ?? new Set();
    taken.set(id, numbers);
    let n = undone ? Number(/\d+$/.exec(undone.stepId)) : 0;
    if (undone && numbers.has(n)) n += shiftedBy;
    while (numbers.has(n)) n++;
    numbers.add(n);
    return n;
  }

  return {
    /**
     * Takes the id at once, so that it does not depend on which step ends first. `undone` is the step to be
     * undone, where there is one.
     */
    reserve(name: string, scope: Scope, undone?: StepUse): UndoReservation {
      const own = `compensate:${name}`;
      const n = numberOf(`${scope.id}:${own}`, undone);
      const step = { name: own, scope, stepId: `${scope.id}:${escapeName(own)}:${n}` };
      const compensation: Compensation = { name, step, undo: undefined };
      // Those of branches run in the order in which they were done.
      registered.push(compensation);
      return {
        known: host.undoes?.(
          registered.length,
          undone !== undefined && host.memo(undone.stepId) !== undefined,
        ),
        done(undo) {
          registered.splice(registered.indexOf(compensation), 1);
          registered.push(compensation);
          compensation.undo = undo;
        },
        failed() {
          registered.splice(registered.indexOf(compensation), 1);
          void host.undoes?.(registered.length, true);
        },
      };
    },

    /**
     * Runs them in reverse order, one after the other. Never throws; one that is stored already is not
     * repeated. `isCutOff`: what was begun last may be done although it is not stored.
     */
    async run(isCutOff = false): Promise<Undone> {
      execution.undoes();
      let failedCount = 0;
      let again: Undone["again"];
      for (const compensation of registered.toReversed()) {
        if (!compensation.undo && !isCutOff) continue;
        try {
          host.requireHeld();
        } catch {
          break;
        }
        const error = await outcomeOf(compensation);
        if (error === undefined) continue;
        if (error.retryable) again = { count: (again?.count ?? 0) + 1, error };
        else failedCount++;
      }
      return { failedCount, again };
    },
  };
}

const outcomeUnknown = (name: string) =>
  new NonRetryableError(`step ${name} was cut off: whether it has anything to undo is not known`, {
    code: "STEP_OUTCOME_UNKNOWN",
  });

export interface UndoParts {
  execution: Execution;
  compensations: Compensations;
  context: () => Promise<HandlerContext>;
}

/**
 * Undoes a run that ends: the handler retraces its stored steps, so that its compensations are known; they
 * run, and then the function's `onFailure`. What may succeed later is tried again. Never throws.
 */
export async function undo(
  target: SvcFunction,
  compensating: Compensating,
  { execution, compensations, context }: UndoParts,
): Promise<ExecutionEnd> {
  const { interrupted, tries_left: triesLeft } = compensating;
  await execution.replay(async () => target.handler((await context()) as never));
  const undone = await compensations.run(interrupted);
  const mayRetry = triesLeft > 0;
  if (!undone.again || !mayRetry) await handleFailure(target, compensating, undone, { execution, context });
  const { failedCount, again } = undone;
  if (again && mayRetry) {
    const { message, code } = again.error;
    const error = {
      message: `the run is not undone yet: ${message}`,
      ...(code && { code }),
      retryable: true,
    };
    return { status: "failed", error };
  }
  return {
    status: "failed",
    error: { message: "the run was undone", code: "COMPENSATED", retryable: false },
    compensationsFailed: failedCount + (again?.count ?? 0),
  };
}

/** Runs `onFailure` as one more step of the run; how it went is added to `undone`. */
async function handleFailure(
  { onFailure }: SvcFunction,
  { status, error }: Compensating,
  undone: Undone,
  { execution, context }: Pick<UndoParts, "execution" | "context">,
): Promise<void> {
  if (!onFailure || status !== "failed" || !error) return;
  const { runId, host, scopes } = execution;
  const step = { name: "onFailure", stepId: `${runId}:onFailure:0`, scope: scopes.current() };
  const stored = host.memo(step.stepId);
  if (stored?.status === "failed" && storedError(stored).retryable === false) {
    undone.failedCount++;
    return;
  }
  try {
    host.requireHeld();
    const given = await context();
    await execution.perform(step, () =>
      scopes.inBranch("onFailure", 0, async () => onFailure({ ...given, error } as never)),
    );
  } catch (thrown) {
    const failure = reportedError(thrown);
    if (failure.retryable) undone.again = { count: (undone.again?.count ?? 0) + 1, error: failure };
    else undone.failedCount++;
  }
}
