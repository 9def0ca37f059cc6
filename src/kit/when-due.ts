import type { Clock, Instant } from "./clock.ts";

/** What is due and held by another node stays due: its loop comes back after this, and does not spin. */
const againMsMin = 20;

/**
 * A tick of work that falls due: one read where nothing is due, which is so at most ticks of most nodes.
 * `nextAt` is when the first of it is due; the answer says in how many milliseconds.
 */
export async function whenDue(
  clock: Pick<Clock, "now">,
  { nextAt, move }: { nextAt: () => Promise<Instant | undefined>; move: () => Promise<unknown> },
): Promise<{ againInMs?: number }> {
  let next = await nextAt();
  if (next !== undefined && next <= clock.now()) {
    await move();
    next = await nextAt();
  }
  return next === undefined ? {} : { againInMs: Math.max(againMsMin, next - clock.now()) };
}
