import { type Duration, durationMs } from "../wire/duration.ts";
import type { ReportedError } from "../wire/errors.ts";

/** How a step is tried again by itself, without its run being entered again. */
export interface StepRetry {
  /** Tries, the first one included: 1 to 100. Default 3. */
  maxAttempts?: number;
  /** Before the second try. Default 1 s, at most 366 days. */
  delay?: Duration;
  /** By what the delay grows with each try: 1 to 100. Default 2. */
  backoff?: number;
  /** No delay is longer. Default five minutes, or `delay` when that is longer. */
  maxDelay?: Duration;
}

/** The same, checked, in milliseconds. */
export interface RetryRule {
  triesMax: number;
  delayMs: number;
  factor: number;
  delayMsMax: number;
}

/** How often a step was tried before, as it is stored. */
export interface TriedStep {
  tries: number;
  /** The step has failed for good. */
  isOver: boolean;
  /** Until it is tried again. */
  dueInMs: number;
}

const triesMax = 100;
const triesDefault = 3;
const factorMax = 100;
const delayMsDefault = 1_000;
const delayMsMaxDefault = 5 * 60_000;
const delayMsMax = 366 * 86_400_000;
/** The longest time that timers of every runtime keep. */
const timeoutMsMax = 2 ** 31 - 1;
const names: ReadonlySet<string> = new Set(["maxAttempts", "delay", "backoff", "maxDelay"]);

/** Throws TypeError that names the option. */
function boundedMs(
  step: string,
  option: string,
  duration: Duration,
  [least, most]: [number, number],
): number {
  const isNegative = typeof duration === "number" && duration < 0;
  const ms = isNegative ? Number.NaN : durationMs(duration, `step ${step}: ${option}`);
  if (!(ms >= least && ms <= most))
    throw new TypeError(`step ${step}: ${option} must be from ${least} to ${most} ms`);
  return ms;
}

export const stepTimeoutMs = (step: string, timeout: Duration): number =>
  boundedMs(step, "timeout", timeout, [1, timeoutMsMax]);

/** Throws TypeError that names the option. */
export function retryRuleOf(step: string, given: StepRetry): RetryRule {
  if (typeof given !== "object" || given === null)
    throw new TypeError(`step ${step}: retry must be an object`);
  for (const name of Object.keys(given))
    if (!names.has(name))
      throw new TypeError(`step ${step}: retry has no option ${name} (one of ${[...names].join(", ")})`);
  const { maxAttempts = triesDefault, delay = delayMsDefault, backoff = 2 } = given;
  if (!Number.isInteger(maxAttempts) || maxAttempts < 1 || maxAttempts > triesMax)
    throw new TypeError(`step ${step}: retry.maxAttempts must be a whole number from 1 to ${triesMax}`);
  if (typeof backoff !== "number" || !(backoff >= 1 && backoff <= factorMax))
    throw new TypeError(`step ${step}: retry.backoff must be a number from 1 to ${factorMax}`);
  const delayMs = boundedMs(step, "retry.delay", delay, [0, delayMsMax]);
  const { maxDelay = Math.max(delayMs, delayMsMaxDefault) } = given;
  return {
    triesMax: maxAttempts,
    delayMs,
    factor: backoff,
    delayMsMax: boundedMs(step, "retry.maxDelay", maxDelay, [delayMs, delayMsMax]),
  };
}

/** How long to wait after so many tries; undefined when there are no further ones. */
export function nextTryInMs(rule: RetryRule, tries: number, error: ReportedError): number | undefined {
  if (!error.retryable || tries >= rule.triesMax) return undefined;
  return Math.min(Math.round(rule.delayMs * rule.factor ** (tries - 1)), rule.delayMsMax);
}

/** What the stored error of a step says of its tries; undefined when it was not tried by itself. */
export function triedOf(error: Record<string, unknown>): TriedStep | undefined {
  const { tries, max_tries: most, retry_in_ms: dueInMs, retryable } = error;
  if (typeof tries !== "number") return undefined;
  const isOver = retryable === false || tries >= (typeof most === "number" ? most : tries);
  return { tries, isOver, dueInMs: typeof dueInMs === "number" ? dueInMs : 0 };
}

/** The fields of the row of a failed try. */
export function triedFields(
  { triesMax: most }: RetryRule,
  tries: number,
  dueInMs: number | undefined,
): string {
  const due = dueInMs === undefined ? "" : `,"retry_in_ms":${dueInMs}`;
  // What is not tried again has no tries left.
  return `,"tries":${tries},"max_tries":${dueInMs === undefined ? tries : most}${due}`;
}
