import { beginningOf, type CutValue, cutValues } from "../../../kit/cut-values.ts";
import { Fault } from "../../../kit/fault.ts";
import type { Run, RunError, Step } from "./run.ts";

export interface WithCuts {
  cutValues?: readonly CutValue[];
}

const bytesOf = ({ message, stack = "" }: RunError) => Buffer.byteLength(message) + Buffer.byteLength(stack);

/** An error stays, as a shorter one: its message says more than that there was one. */
function cutError<Found extends { error: RunError | null } & WithCuts>(
  found: Found,
  bytesMax = 0,
): Found & WithCuts {
  const { error } = found;
  const bytes = bytesMax === 0 || error === null ? 0 : bytesOf(error);
  if (error === null || bytes <= bytesMax) return found;
  const message = beginningOf(error.message, bytesMax);
  const stack = error.stack === undefined ? {} : { stack: beginningOf(error.stack, bytesMax) };
  return {
    ...{ ...found, error: { ...error, message, ...stack } },
    cutValues: [...(found.cutValues ?? []), { field: "error", bytes, begins: "" }],
  };
}

const ofRun = { input: "input", output: "output" } as const;
const ofStep = { ...ofRun, originalOutput: "original_output" } as const;

/** Values that are larger are told of only; all stay where no bound is given. */
export const cutRun = <Found extends Run>(run: Found, bytesMax: number | undefined): Found & WithCuts =>
  cutError(cutValues(run, ofRun, { bytesMax, instead: null }), bytesMax);

export const cutStep = (step: Step, bytesMax: number | undefined): Step & WithCuts =>
  cutError(cutValues(step, ofStep, { bytesMax, instead: null }), bytesMax);

export const stepsTooLarge = (bytes: number): Fault =>
  new Fault(
    "failed_precondition",
    `the steps of the run have ${bytes} bytes: ask with max_value_bytes, or for one step`,
  );
