import { purgeSliceMax } from "../../../kit/limits.ts";
import type { Store } from "../../../store/store.ts";
import type { Step } from "../runs/run.ts";
import { type CancelDeps, cancelRun } from "./cancel.ts";
import type { Controls } from "./controls.ts";
import { type PauseDeps, pauseRun } from "./pause.ts";
import { previewResume, type ResumeDeps, resumeRun, resumeWindowMs } from "./resume.ts";
import * as rows from "./rows.ts";
import { notHeld } from "./rules.ts";
import { injectOutput, patchOutput, type StepOutputsDeps } from "./step-outputs.ts";

export type { DiscardedStep } from "./rules.ts";

export interface PausedState {
  steps: Step[];
  /** Name of the step that the run sleeps or waits at; empty when it does neither. */
  nextStepHint: string;
  pauseReason: string;
}

export type Steering = ReturnType<typeof openSteering>;

export type SteeringDeps = CancelDeps & PauseDeps & StepOutputsDeps & ResumeDeps & { controls: Controls };

export function openSteering(deps: SteeringDeps) {
  const { clock, runs } = deps;
  return {
    /**
     * Idempotent. `failed_precondition` when the run ended in another status before the call, `aborted`
     * during it.
     */
    cancel: (environmentId: string, runId: string, reason: string, actorId?: string) =>
      cancelRun(deps, environmentId, runId, { reason, actorId }),
    pause: (environmentId: string, runId: string, actorId: string) =>
      pauseRun(deps, environmentId, runId, actorId),

    async pausedState(environmentId: string, runId: string): Promise<PausedState> {
      const run = await runs.get(environmentId, runId);
      if (run.pauseReason !== "injection") throw notHeld();
      const steps = await runs.steps(environmentId, runId);
      const next = steps.find((step) => step.status === "sleeping" || step.status === "waiting");
      return { steps, nextStepHint: next?.name ?? "", pauseReason: run.pauseReason };
    },

    /** Replaces a step's output in a held run; answers the previous output. */
    inject: (
      environmentId: string,
      target: { runId: string; stepId: string; output: string; reason: string },
      actorId: string,
    ) => injectOutput(deps, environmentId, target, actorId),
    patch: (
      environmentId: string,
      target: { stepId: string; output: string; reason: string },
      actorId: string,
    ) => patchOutput(deps, environmentId, target, actorId),
    resume: (
      environmentId: string,
      target: {
        runId: string;
        fromStep: string | undefined;
        /**
         * True ends the sleep that the run is in, or was held in; false leaves it alone; undefined ends it
         * unless it was held.
         */
        skipSleep: boolean | undefined;
        /** The sleep to end, of several. */
        stepId?: string | undefined;
      },
      actorId: string,
    ) => resumeRun(deps, { ...target, environmentId, actorId }),
    /** What a resume would do with the steps that are stored, in order. */
    previewResume: (environmentId: string, target: { runId: string; fromStep: string | undefined }) =>
      previewResume(deps, environmentId, target),

    /**
     * The tick of loop `runs.resumes`, part of the duty `retention`: deletes resumes whose window has passed.
     */
    async forgetOnce(write: Store["write"]) {
      const before = clock.now() - resumeWindowMs;
      while (
        (await write((session) => rows.forgetWindows(session, before, purgeSliceMax))) === purgeSliceMax
      );
    },
  };
}
