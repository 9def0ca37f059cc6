/** An error as it is stored. */
export interface Stacked {
  /** Of its class. */
  name?: string;
  stack?: string;
  cause?: Stacked | string;
}

/** How far below an error its causes are looked at. */
const causeLevelsMax = 5;
/** A step that was tried as often as it may be: where its work failed says more than where it was called. */
const stepFailed = "StepFailedError";

/**
 * Where the user's code stood: the first frame of an error, without its `at`, or of what led to it; for a
 * step out of tries, of its work. Empty where there is none. `readMax` characters of a stack are looked at.
 */
export function firstFrame(
  { name, stack = "", cause }: Stacked,
  readMax = Number.POSITIVE_INFINITY,
  level = 0,
): string {
  const led = typeof cause === "object" && level < causeLevelsMax ? cause : undefined;
  const below = () => (led ? firstFrame(led, readMax, level + 1) : "");
  const own = /^\s*at (.{1,1000})$/m.exec(stack.slice(0, readMax))?.[1] ?? "";
  return (name === stepFailed && below()) || own || below();
}
