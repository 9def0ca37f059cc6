import type { CompletedStep } from "../runs/run.ts";

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
