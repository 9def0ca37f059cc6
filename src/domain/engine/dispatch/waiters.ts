import type { Desks } from "./desks.ts";
import type { Waiter } from "./lanes.ts";

/** Slots of a waiter that nothing is promised to. */
export const creditOf = (waiter: Waiter): number =>
  waiter.closed ? 0 : waiter.available - waiter.pending - waiter.jobs.length - waiter.desk.pending;

export interface Waiters {
  /** Answers a waiter that has something, or has nothing to wait for (`final`), once no promise to it is open. */
  finish(waiter: Waiter, final: boolean): void;
  /** A job was delivered to it outside a claim; `handOut` answers it. */
  delivered(waiter: Waiter): void;
  /** Answers the workers that runs were delivered to: once, after the last of a flush. */
  handOut(): void;
}

/** How workers that ask are answered. */
export function openWaiters(desks: Desks, isDraining: () => boolean): Waiters {
  /** Workers that births were delivered to and that are not answered yet. */
  const born = new Set<Waiter>();

  /** From now on the waiter is being answered: its worker counts as on its way back. */
  const shut = (waiter: Waiter) => {
    waiter.closed = true;
    // After an empty answer workers pause for a second (contract.md 1.6).
    const asksAgain = waiter.reports || waiter.jobs.length + waiter.pending > 0;
    const comesBack = asksAgain && waiter.available > 0 && !isDraining() && !waiter.signal.aborted;
    if (comesBack) desks.leave(waiter.desk, waiter.available - waiter.jobs.length - waiter.pending);
    for (const lane of waiter.lanes) {
      lane.waiters.delete(waiter);
      if (comesBack) lane.away.add(waiter.desk);
    }
  };

  const finish = (waiter: Waiter, final: boolean) => {
    if (!waiter.closed && (waiter.jobs.length > 0 || final)) shut(waiter);
    if (!waiter.closed || waiter.pending > 0 || waiter.answered) return;
    waiter.answered = true;
    waiter.settle();
  };

  return {
    finish,
    delivered: (waiter) => {
      born.add(waiter);
    },
    handOut() {
      for (const waiter of born) finish(waiter, false);
      born.clear();
    },
  };
}
