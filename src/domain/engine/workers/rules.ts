import { invalid } from "../../../kit/fault.ts";
import { functionIdBytesMax } from "../../../kit/limits.ts";
import type { CompletedStep } from "../runs/run.ts";

/**
 * The error of a run whose result can never be stored. Not retryable: every attempt would send the same
 * result.
 */
export const refusedResult = (message: string, code = "INVALID_REPORT") => ({
  message: `result refused: ${message}`,
  code,
  retryable: false,
});

/**
 * Checks an id that becomes part of a bus subject: no blank, wildcard or control character. Answers the id.
 */
export function workerToken(field: string, id: string): string {
  if (id.length === 0) throw invalid(field, "must not be empty");
  if (Buffer.byteLength(id) > functionIdBytesMax) throw invalid(field, `at most ${functionIdBytesMax} bytes`);
  if (/[\s*>\p{Cc}]/u.test(id)) throw invalid(field, "must not contain blanks, control characters, * or >");
  return id;
}

/** Whether a worker of this SDK version reads the status of completed steps: SDKs do from 0.40 on. */
export function knowsFailedSteps(sdk: string): boolean {
  const [, major, minor] = /^v?(\d+)\.(\d+)/.exec(sdk) ?? [];
  if (major === undefined || minor === undefined) return false;
  return Number(major) > 0 || Number(minor) >= 40;
}

/**
 * Older workers read every step as a completed one: a failed step would become a result of null. Of a wait
 * whose yield has `on_timeout` that is what they get; without the row they would wait again and again.
 */
export const stepsFor = (sdk: string, steps: readonly CompletedStep[]): readonly CompletedStep[] =>
  knowsFailedSteps(sdk)
    ? steps
    : steps.flatMap((step) => {
        if (step.status === "completed") return step;
        return step.on_timeout === null ? [] : { ...step, status: "completed", output: null, error: null };
      });
