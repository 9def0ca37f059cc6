import type { Clock } from "../../../../kit/clock.ts";
import { outputLookMs, outputPaceMsEach, outputPaceMsMax, outputToldLookMs } from "./limits.ts";

/** How nodes tell each other what becomes of the outputs of runs. */
export interface OutputNewsDeps {
  clock: Pick<Clock, "after" | "elapsed">;
  /** Whether writes at all nodes are told here; a hint may still be lost. */
  hearsAll: () => boolean;
  /** Calls back when the run has ended, at whatever node, until what it answers is called. */
  watchEnd: (runId: string, onEnd: () => void) => () => void;
}

interface RunNews {
  readers: number;
  /** Grows with every write. */
  version: number;
  wokenAt: number;
  waiting: Set<() => void>;
  /** When those who wait are to be woken, by a write; undefined for none. */
  cancelWaking: (() => void) | undefined;
  /** Or because it is time to look. */
  cancelLook: (() => void) | undefined;
  unwatch: () => void;
}

/** Wakes the readers of a run together: the more they are, the more of what is written they find at once. */
export function openOutputNews({ clock, hearsAll, watchEnd }: OutputNewsDeps) {
  const runs = new Map<string, RunNews>();

  function wakeAll(run: RunNews): void {
    run.cancelWaking?.();
    run.cancelLook?.();
    run.cancelWaking = run.cancelLook = undefined;
    run.wokenAt = clock.elapsed();
    const waiting = run.waiting;
    run.waiting = new Set();
    for (const go of waiting) go();
  }

  /** How long they still wait for more. */
  const leftMs = (run: RunNews) =>
    run.wokenAt + Math.min(outputPaceMsMax, run.readers * outputPaceMsEach) - clock.elapsed();

  function wakeSoon(run: RunNews): void {
    if (run.cancelWaking) return;
    const ms = leftMs(run);
    if (ms <= 0) wakeAll(run);
    else run.cancelWaking = clock.after(Math.ceil(ms), () => wakeAll(run));
  }

  function wake(runId: string): void {
    const run = runs.get(runId);
    if (!run) return;
    run.version++;
    if (run.waiting.size > 0) wakeSoon(run);
  }

  function opened(runId: string): RunNews {
    const none = { waiting: new Set<() => void>(), cancelWaking: undefined, cancelLook: undefined };
    const unwatch = watchEnd(runId, () => wake(runId));
    const run = { ...none, unwatch, readers: 0, version: 0, wokenAt: Number.NEGATIVE_INFINITY };
    runs.set(runId, run);
    return run;
  }

  return {
    /** Something was written, here or at another node. */
    wake,

    /** What was told may have been lost, or is told no more. */
    wakeEvery(): void {
      for (const runId of runs.keys()) wake(runId);
    },

    join(runId: string) {
      const run = runs.get(runId) ?? opened(runId);
      run.readers++;
      return {
        version: () => run.version,

        /** Until more was written than at version `seen`, it is time to look, or until `signal`. */
        wait: (seen: number, signal: AbortSignal) =>
          new Promise<void>((done) => {
            if (signal.aborted || (run.version !== seen && leftMs(run) <= 0)) return done();
            const go = () => {
              signal.removeEventListener("abort", go);
              run.waiting.delete(go);
              done();
            };
            run.waiting.add(go);
            signal.addEventListener("abort", go, { once: true });
            if (run.version !== seen) wakeSoon(run);
            run.cancelLook ??= clock.after(hearsAll() ? outputToldLookMs : outputLookMs, () => wakeAll(run));
          }),

        leave(): void {
          if (--run.readers > 0) return;
          run.cancelWaking?.();
          run.cancelLook?.();
          run.unwatch();
          runs.delete(runId);
        },
      };
    },
  };
}
