import { SvcError } from "./errors.ts";

/** Three attempts, 100 ms doubling, capped at 10 s. */
export const callAttemptsMax = 3;
const firstDelayMs = 100;
const delayMsMax = 10_000;
/** As long as a server asks, and no longer: what a balancer says of its maintenance is not for workers. */
export const retryAfterMsMax = delayMsMax;
/** The longest time that timers of every runtime keep. */
export const timerMsMax = 2 ** 31 - 1;

/** Calls that may be made twice, and calls that may not. */
export const safe = { repeatable: true };
export const once = { repeatable: false };

/** Delay before the attempt after `attempt` failed ones (from 1), in milliseconds. */
export const delayAfter = (attempt: number, first = firstDelayMs, max = delayMsMax): number =>
  Math.min(first * 2 ** (attempt - 1), max);

const reconnectFirstMs = 250;
const reconnectMsMax = 30_000;

/**
 * Delay before a subscription is opened again after `failures` failed attempts (from 1), in milliseconds.
 * Half is random, so that clients that lost a server at the same moment do not come back at the same moment.
 */
export function reconnectDelayMs(failures: number, error: SvcError | undefined): number {
  const fullMs = delayAfter(failures, reconnectFirstMs, reconnectMsMax);
  const askedMs = Math.min(error?.retryAfterMs ?? 0, reconnectMsMax);
  return Math.max(fullMs / 2 + (Math.random() * fullMs) / 2, askedMs);
}

/**
 * Whether a failed call may be made again. `repeatable`: doing it twice equals doing it once (a read, or an
 * emit with an idempotency key). Anything else is repeated only when the server refused it unread.
 */
export function mayRepeat(error: unknown, repeatable: boolean): boolean {
  if (!(error instanceof SvcError) || !error.retryable) return false;
  // If the server asks for a longer pause than the SDK's, the caller decides: the error has `retryAfterMs`.
  if ((error.retryAfterMs ?? 0) > retryAfterMsMax) return false;
  return repeatable || error.unsent || error.status === 503 || error.status === 429;
}

/** Runs `attempt` up to three times. Throws the last error. */
export async function withRetries<Value>(
  attempt: () => Promise<Value>,
  options: { repeatable: boolean; signal?: AbortSignal | undefined },
): Promise<Value> {
  for (let made = 1; ; made++) {
    try {
      return await attempt();
    } catch (error) {
      if (made >= callAttemptsMax || options.signal?.aborted || !mayRepeat(error, options.repeatable))
        throw error;
      await pause(Math.max(delayAfter(made), (error as SvcError).retryAfterMs ?? 0), options.signal);
    }
  }
}

/** Calls back after `ms`, which may be longer than a timer keeps. What it returns gives that up. */
export function after(ms: number, callback: () => void): () => void {
  let leftMs = ms;
  let timer: ReturnType<typeof setTimeout>;
  const arm = () => {
    const nextMs = Math.min(leftMs, timerMsMax);
    leftMs -= nextMs;
    timer = setTimeout(leftMs > 0 ? arm : callback, nextMs);
  };
  arm();
  return () => clearTimeout(timer);
}

/** By the next turn of the event loop whoever was answered, and does not wait, has continued. */
export const afterTurn: (look: () => void) => void =
  typeof setImmediate === "function" ? (look) => void setImmediate(look) : (look) => void setTimeout(look, 0);

/** Resolves after `ms`, or at once when the signal is raised; never rejects. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((done) => {
    const finish = () => {
      cancel();
      signal?.removeEventListener("abort", finish);
      done();
    };
    const cancel = after(ms, finish);
    signal?.addEventListener("abort", finish, { once: true });
  });
}
