import type { Bus } from "../../../../bus/bus.ts";
import type { Clock, Instant } from "../../../../kit/clock.ts";
import { tryAgain } from "../../../../kit/fault.ts";
import { endLookSlice, endWaitsMax } from "../../../../kit/limits.ts";
import type { Store } from "../../../../store/store.ts";
import type { ExecutionChange } from "../execution/commit-reports.ts";
import type { RunResult } from "../run.ts";
import type { Tally } from "../tally.ts";
import { endedOf, resultsOf } from "./run-results.ts";

/** Callers that wait for the ends of runs, on this node. */
export interface RunEnds {
  /** Takes a place among those who wait, before the runs are started; gives it back when called. */
  enter(): () => void;
  /** The runs as they stand once all are over, or when the time is up, or the signal says that nobody listens any more. */
  wait(waiting: EndWait): Promise<RunResult[]>;
  /** Told after the commit that ended them on this node. */
  ended(runIds: readonly string[]): void;
  /** The tick of loop `runs.ends`: one look for all, at what was ended elsewhere or before anybody waited. */
  lookOnce(): Promise<void>;
  /** Everybody is answered with what there is. */
  drain(): void;
}

export interface EndWait {
  environmentId: string;
  runIds: readonly string[];
  timeoutMs: number;
  signal: AbortSignal;
  /** The runs may be over already. */
  look?: boolean;
}

export interface RunEndsDeps {
  store: Store;
  clock: Clock;
  bus: Bus;
  /** Tells this process's own hints from those of others. */
  self: string;
}

interface OpenEndWait extends EndWait {
  left: Set<string>;
  finish: () => void;
}

interface EndHint {
  from: string;
  runIds: string[];
  /** With `runs.awaited`: how long the others shall tell of these. */
  forMs?: number;
}

const decoder = new TextDecoder();

export function openRunEnds({ store, clock, bus, self }: RunEndsDeps): RunEnds {
  const openWaits = new Map<string, Set<OpenEndWait>>();
  /** Runs that callers at other nodes wait for, until when. */
  const elsewhere = new Map<string, Instant>();
  const finished = new Set<{
    openWait: OpenEndWait;
    resolve: (r: RunResult[]) => void;
    reject: (e: unknown) => void;
  }>();
  let entered = 0;

  const hint = (subject: string, content: Omit<EndHint, "from">) => {
    if (bus.kind === "nats" && bus.present().length > 1)
      bus.hint(subject, JSON.stringify({ from: self, ...content } satisfies EndHint));
  };
  const listen = (subject: string, onContent: (content: EndHint) => void) => {
    if (bus.kind !== "nats") return;
    bus.onHint(subject, (payload) => {
      const content = JSON.parse(decoder.decode(payload)) as EndHint;
      if (content.from !== self) onContent(content);
    });
  };
  listen("runs.ended", ({ runIds }) => note(runIds));
  listen("runs.awaited", ({ runIds, forMs = 0 }) => {
    const until = clock.now() + forMs;
    for (const runId of runIds) if (elsewhere.size < endWaitsMax) elsewhere.set(runId, until);
  });

  function note(runIds: readonly string[]): void {
    for (const runId of runIds)
      for (const openWait of openWaits.get(runId) ?? []) {
        openWait.left.delete(runId);
        if (openWait.left.size === 0) openWait.finish();
      }
  }

  /** Those who finish together are read together. */
  function read(openWait: OpenEndWait): Promise<RunResult[]> {
    return new Promise((resolve, reject) => {
      finished.add({ openWait, resolve, reject });
      if (finished.size === 1)
        queueMicrotask(async () => {
          const all = [...finished];
          finished.clear();
          try {
            const targets = all.flatMap(({ openWait: { environmentId, runIds } }) =>
              runIds.map((runId) => ({ environmentId, runId })),
            );
            const results = await resultsOf(store, targets, clock.now());
            for (const one of all)
              one.resolve(one.openWait.runIds.flatMap((runId) => results.get(runId) ?? []));
          } catch (error) {
            for (const one of all) one.reject(error);
          }
        });
    });
  }

  return {
    enter() {
      if (entered >= endWaitsMax)
        throw tryAgain("resource_exhausted", "too many callers wait for the ends of runs");
      entered++;
      let here = true;
      return () => {
        if (here) entered--;
        here = false;
      };
    },

    async wait(waiting) {
      const { runIds, timeoutMs, signal } = waiting;
      if (runIds.length === 0) return [];
      const openWait: OpenEndWait = { ...waiting, left: new Set(runIds), finish: () => {} };
      await new Promise<void>((resolve) => {
        const cancel = clock.after(timeoutMs, () => openWait.finish());
        openWait.finish = () => {
          cancel();
          signal.removeEventListener("abort", openWait.finish);
          for (const runId of runIds) {
            const others = openWaits.get(runId);
            others?.delete(openWait);
            if (others?.size === 0) openWaits.delete(runId);
          }
          resolve();
        };
        for (const runId of runIds) {
          const others = openWaits.get(runId);
          if (others) others.add(openWait);
          else openWaits.set(runId, new Set([openWait]));
        }
        signal.addEventListener("abort", openWait.finish, { once: true });
        if (signal.aborted) return openWait.finish();
        hint("runs.awaited", { runIds: [...runIds], forMs: timeoutMs });
        // A look that fails is made up for by the next tick.
        if (waiting.look) endedOf(store, runIds).then(note, () => {});
      });
      return read(openWait);
    },

    ended(runIds) {
      if (openWaits.size > 0) note(runIds);
      if (elsewhere.size === 0) return;
      const awaited = runIds.filter((runId) => elsewhere.delete(runId));
      if (awaited.length > 0) hint("runs.ended", { runIds: awaited });
    },

    async lookOnce() {
      const now = clock.now();
      for (const [runId, until] of elsewhere) if (until < now) elsewhere.delete(runId);
      const runIds = [...openWaits.keys()];
      for (let from = 0; from < runIds.length; from += endLookSlice)
        note(await endedOf(store, runIds.slice(from, from + endLookSlice)));
    },

    drain() {
      for (const all of [...openWaits.values()]) for (const openWait of [...all]) openWait.finish();
    },
  };
}

/** Whatever counts ends also tells those who wait for them. */
export const notifyingTally = (
  tally: Tally | undefined,
  ended: RunEnds["ended"],
  moved: (changes: readonly ExecutionChange[]) => void = () => {},
  committed: (changes: readonly ExecutionChange[], now: Instant) => void = () => {},
): Tally => ({
  ended(status, runIds, now) {
    tally?.ended(status, runIds, now);
    if (runIds.length > 0) ended(runIds);
  },
  reported(changes, now) {
    tally?.reported(changes, now);
    const over = changes.flatMap(({ ends, runId }) => (ends === null ? [] : runId));
    if (over.length > 0) ended(over);
    if (over.length < changes.length) moved(changes);
    committed(changes, now);
  },
});
