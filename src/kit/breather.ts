import type { Clock } from "./clock.ts";

/** A burst of computing blocks the event loop this long; with its last step, about twice as long. */
export const burstMs = 2;
/** After a burst that took longer, the loop rests for the excess, at most this long. */
const paybackMsMax = 100;

type Ticking = Pick<Clock, "elapsed" | "sleep">;

/**
 * Undefined while the burst has time left; otherwise a promise that resolves in a later turn of the event
 * loop.
 */
export type Breathe = () => Promise<void> | undefined;

/** The bursts of this thread: all callers share one burst a turn. */
interface Thread {
  /** When the current burst began; undefined while nothing computes. */
  beganAt: number | undefined;
  /**
   * Callers waiting for the next burst, by tenant: tenants take turns, a tenant's callers keep their order.
   */
  readonly waiting: Map<string, (() => void)[]>;
}

const threads = new WeakMap<Ticking, Thread>();

function threadOf(clock: Ticking): Thread {
  let thread = threads.get(clock);
  if (!thread) {
    thread = { beganAt: undefined, waiting: new Map() };
    threads.set(clock, thread);
  }
  return thread;
}

/** Lets the first caller of the next tenant continue; false when none waits. */
function resumeNext({ waiting }: Thread): boolean {
  const [next] = waiting;
  if (!next) return false;
  const [tenant, queue] = next;
  waiting.delete(tenant);
  const goOn = queue.shift()!;
  if (queue.length > 0) waiting.set(tenant, queue);
  goOn();
  return true;
}

const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

/**
 * Gives the event loop back, then lets callers continue for a burst, until no caller waits. A burst that many
 * short steps used up is followed by one turn (microseconds); a long computation pauses between bursts.
 */
async function turn(clock: Ticking, thread: Thread): Promise<void> {
  for (let isFirst = true; isFirst || thread.waiting.size > 0; isFirst = false) {
    await (isFirst ? nextTurn() : clock.sleep(0));
    const overMs = clock.elapsed() - thread.beganAt! - burstMs;
    if (overMs > 0) await clock.sleep(Math.min(paybackMsMax, overMs));
    thread.beganAt = clock.elapsed();
    // A sleep takes a millisecond, and a step may take none: ten thousand short ones would take ten seconds.
    while (clock.elapsed() - thread.beganAt < burstMs && resumeNext(thread)) await nextTurn();
  }
  thread.beganAt = undefined;
}

/**
 * For a tenant's long computation: call the returned function between steps, and await what it returns. It
 * gives the event loop back after each burst, so that one tenant's expressions do not delay everybody's
 * requests.
 */
export function breather(clock: Ticking, tenant: string): Breathe {
  const thread = threadOf(clock);
  return () => {
    const now = clock.elapsed();
    if (thread.beganAt === undefined) {
      thread.beganAt = now;
      void turn(clock, thread);
    }
    if (now - thread.beganAt < burstMs) return undefined;
    return new Promise<void>((resolve) => {
      const queue = thread.waiting.get(tenant);
      if (queue) queue.push(resolve);
      else thread.waiting.set(tenant, [resolve]);
    });
  };
}
