import { secondsText } from "../wire/duration.ts";
import type { ReportedError } from "../wire/errors.ts";
import type { FunctionDefinition, Logger, StepDeviation } from "../wire/types.ts";
import type { AskedWait, Yield } from "../wire/wire.ts";
import type { SvcFunction } from "./svc-function.ts";

export interface FailedEnd {
  status: "failed";
  /** `exhausted`: its step was tried as often as it may be. */
  error: ReportedError & { step_id?: string; exhausted?: boolean };
  /** Of a run that was undone: compensations that failed for good. */
  compensationsFailed?: number;
}

/** How an execution ended. It means nothing when the job was lost meanwhile. */
export type ExecutionEnd = {
  /** Stored steps that the handler did not come to as before; absent for none. */
  deviations?: StepDeviation[];
} & (
  | { status: "completed"; outputText: string }
  /** `yields`: all that it waits for, where that may be more than one thing. */
  | { status: "yielded"; yield: Yield; yields?: readonly AskedWait[] }
  | FailedEnd
);

const retryDefault = { maxAttempts: 3, initialDelayMs: 1_000, backoffFactor: 2, maxDelayMs: 300_000 };

/** As the server reads it: what is left out, undefined or 0 is what it does by itself. */
export const retryOf = (retry: FunctionDefinition["retry"]): typeof retryDefault => ({
  ...retryDefault,
  ...Object.fromEntries(Object.entries(retry ?? {}).filter(([, value]) => value)),
});

/** Milliseconds from the end of a failed attempt (from 1) to the next one, by the server's rules. */
export function attemptDelayMs(retry: FunctionDefinition["retry"], attempt: number): number {
  const { initialDelayMs, backoffFactor, maxDelayMs } = retryOf(retry);
  return Math.min(Math.round(initialDelayMs * backoffFactor ** (attempt - 1)), maxDelayMs);
}

/** Says which attempt failed, what it threw and where, and when the run is tried again. */
export function logFailedAttempt(
  log: Logger,
  {
    target,
    end: { error },
    run: { runId, attempt, max_attempts: maxAttempts = 0 },
  }: {
    target: SvcFunction;
    end: FailedEnd;
    run: { runId: string; attempt: number; max_attempts?: number };
  },
): void {
  const { message: reason, code, stack, retryable } = error;
  log.warn(failedAttemptText({ attempt, maxAttempts, retryable }, target.definition.retry), {
    ...{ runId, functionId: target.id, reason },
    ...(code !== undefined && { code }),
    ...(stack !== undefined && { stack }),
  });
}

/** `maxAttempts` is 0 where it is not known. */
export function failedAttemptText(
  { attempt, maxAttempts, retryable }: { attempt: number; maxAttempts: number; retryable: boolean },
  retry: FunctionDefinition["retry"],
): string {
  const which = maxAttempts === 0 ? `attempt ${attempt}` : `attempt ${attempt} of ${maxAttempts}`;
  if (!retryable) return `${which} failed, and is not tried again`;
  if (maxAttempts === 0) return `${which} failed`;
  if (attempt >= maxAttempts) return `${which} failed: it was the last one`;
  // A run goes by the definition that it began with, which may be an older one.
  const isOwn = retryOf(retry).maxAttempts === maxAttempts;
  return isOwn
    ? `${which} failed, again in ${secondsText(attemptDelayMs(retry, attempt))}`
    : `${which} failed`;
}
