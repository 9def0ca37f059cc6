import { reportedError } from "../wire/errors.ts";
import type { Compensating } from "../wire/wire.ts";
import type { Compensations, Undone } from "./compensations.ts";
import type { ExecutionEnd } from "./execution-end.ts";
import type { HandlerContext } from "./function.ts";
import { type Execution, storedError } from "./step.ts";
import type { SvcFunction } from "./svc-function.ts";

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
