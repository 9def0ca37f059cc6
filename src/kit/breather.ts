import type { Clock } from "./clock.ts";

/** Computing that others may have to wait for goes on so long at a time; with the last step of a burst, about twice that. */
export const burstMs = 2;
/** What one piece took beyond that is left to others before the next one, up to so long. */
const paybackMsMax = 100;

type Ticking = Pick<Clock, "elapsed" | "sleep">;

/** Undefined while there is time left in this turn of the event loop; else resolves at a later one, when it is one's turn. */
export type Breathe = () => Promise<void> | undefined;

/** All that computes in bursts in this thread, however many callers it is for. */
interface Thread {
  /** Since then the event loop was not given back, as far as those who compute know; undefined while nobody does. */
  beganAt: number | undefined;
  /** By tenant, who waits for a turn: each tenant's in order, the tenants by turns. */
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

/** The next tenant's first. */
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

/** One turn of the loop after the other, as long as somebody waits. */
async function turn(clock: Ticking, thread: Thread): Promise<void> {
  do {
    await clock.sleep(0);
    const overMs = clock.elapsed() - thread.beganAt! - burstMs;
    if (overMs > 0) await clock.sleep(Math.min(paybackMsMax, overMs));
    thread.beganAt = clock.elapsed();
  } while (resumeNext(thread));
  thread.beganAt = undefined;
}

/**
 * For the work of this tenant. Asked between its steps, so that the loop is given back after each burst; whatever computes by
 * bursts shares one burst a turn.
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
