import type { Clock } from "../../src/kit/clock.ts";

/** The one line of time of a simulation: what is due next happens next, and nothing else moves. */
export interface Time {
  /** Milliseconds since the simulation began. */
  elapsed(): number;
  after(ms: number, callback: () => void): () => void;
  sleep(ms: number): Promise<void>;
  /** Runs what is due until `done` answers true or nothing is left before `untilMs`; answers whether it was done. */
  run(done: () => boolean, untilMs: number): Promise<boolean>;
}

interface Due {
  at: number;
  order: number;
  callback: (() => void) | undefined;
}

export function simulatedTime(): Time {
  const heap: Due[] = [];
  let at = 0;
  let order = 0;

  const before = (a: Due, b: Due) => a.at < b.at || (a.at === b.at && a.order < b.order);
  const push = (due: Due) => {
    let place = heap.push(due) - 1;
    while (place > 0) {
      const above = (place - 1) >> 1;
      if (!before(heap[place]!, heap[above]!)) break;
      [heap[place], heap[above]] = [heap[above]!, heap[place]!];
      place = above;
    }
  };
  const pop = (): Due | undefined => {
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    heap[0] = last;
    for (let place = 0; ; ) {
      const left = 2 * place + 1;
      let least = place;
      if (left < heap.length && before(heap[left]!, heap[least]!)) least = left;
      if (left + 1 < heap.length && before(heap[left + 1]!, heap[least]!)) least = left + 1;
      if (least === place) return first;
      [heap[place], heap[least]] = [heap[least]!, heap[place]!];
      place = least;
    }
  };

  const time: Time = {
    elapsed: () => at,
    after(ms, callback) {
      const due: Due = { at: at + Math.max(0, ms), order: order++, callback };
      push(due);
      return () => {
        due.callback = undefined;
      };
    },
    sleep: (ms) => new Promise((resolve) => void time.after(ms, resolve)),
    async run(done, untilMs) {
      for (;;) {
        // Everything that follows from the last step without waiting has happened once the turn is over.
        await new Promise<void>((resolve) => setImmediate(resolve));
        if (done()) return true;
        let next = pop();
        while (next && next.callback === undefined) next = pop();
        if (!next || next.at > untilMs) return false;
        at = next.at;
        next.callback!();
      }
    },
  };
  return time;
}

/** What one simulated process sees of time: its clock may be wrong, it may stand still, and it may be gone. */
export interface ProcessTime {
  clock: Clock;
  alive(): boolean;
  /** Nothing of it happens any more. */
  kill(): void;
  /** Nothing of it happens for so long; then all at once. */
  freeze(ms: number): void;
  /** Resolves when it is not frozen; never once it is dead. */
  awake(): Promise<void>;
  setAhead(ms: number): void;
}

/** When every simulation begins, for clocks that are right. */
export const startAt = 1_700_000_000_000;

export function processTime(time: Time): ProcessTime {
  let alive = true;
  let frozenUntil = 0;
  let aheadMs = 0;
  let last = 0;
  const whenAwake = (callback: () => void) => {
    if (!alive) return;
    const left = frozenUntil - time.elapsed();
    if (left > 0) time.after(left, () => whenAwake(callback));
    else callback();
  };
  const clock: Clock = {
    now() {
      last = Math.max(last, Math.floor(startAt + time.elapsed() + aheadMs));
      return last;
    },
    elapsed: () => time.elapsed(),
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) return resolve();
        const cancel = clock.after(ms, resolve);
        signal?.addEventListener(
          "abort",
          () => {
            cancel();
            resolve();
          },
          { once: true },
        );
      }),
    after: (ms, callback) => {
      let cancelled = false;
      const cancel = time.after(ms, () => whenAwake(() => cancelled || callback()));
      return () => {
        cancelled = true;
        cancel();
      };
    },
  };
  return {
    clock,
    alive: () => alive,
    kill() {
      alive = false;
    },
    freeze(ms) {
      frozenUntil = Math.max(frozenUntil, time.elapsed() + ms);
    },
    awake: () => new Promise((resolve) => whenAwake(resolve)),
    setAhead(ms) {
      aheadMs = ms;
    },
  };
}
