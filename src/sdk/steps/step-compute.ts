import { type Course, open } from "./course.ts";
import type { Handling } from "./handling.ts";
import type { PerformOptions, StepUse, StepWork } from "./step-host.ts";
import type { TriedStep } from "./step-retry.ts";
import { type StepWorkHost, tryOnce, tryRepeatedly } from "./step-work.ts";

type ComputingParts = Pick<StepWorkHost, "runId" | "host" | "scopes" | "log" | "blamed"> & {
  course: Course;
  handling: Handling;
};

/** Makes what runs a step's work. Results come in turn; it stays open if the job is another's, or was cut. */
export function computing({ course, handling, ...rest }: ComputingParts) {
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
