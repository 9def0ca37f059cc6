import type { Bus } from "../../../../bus/bus.ts";
import type { Clock, Instant } from "../../../../kit/clock.ts";
import { Fault } from "../../../../kit/fault.ts";
import { endLookSlice, endWaitsMax } from "../../../../kit/limits.ts";
import type { Store } from "../../../../store/store.ts";
import type { Settlement } from "../execution/settle.ts";
import type { Tally } from "../execution/tally.ts";
import type { RunResult } from "../run.ts";
import { endedOf, resultsOf } from "./results.ts";

/** Callers that wait for the ends of runs, on this node. */
export interface Ends {
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

export interface EndsDeps {
  store: Store;
  clock: Clock;
  bus: Bus;
  /** Tells this process's own hints from those of others. */
  self: string;
}

interface Waiter extends EndWait {
  left: Set<string>;
  finish: () => void;
}

interface Hint {
  from: string;
  runIds: string[];
  /** With `runs.awaited`: how long the others shall tell of these. */
  forMs?: number;
}

const told = new TextDecoder();

export function openEnds({ store, clock, bus, self }: EndsDeps): Ends {
  const waiters = new Map<string, Set<Waiter>>();
  /** Runs that callers at other nodes wait for, until when. */
  const elsewhere = new Map<string, Instant>();
  const finished = new Set<{
    waiter: Waiter;
    resolve: (r: RunResult[]) => void;
    reject: (e: unknown) => void;
  }>();
  let places = 0;

  const hint = (subject: string, content: Omit<Hint, "from">) => {
    if (bus.kind === "nats" && bus.present().length > 1)
      bus.hint(subject, JSON.stringify({ from: self, ...content } satisfies Hint));
  };
  const listen = (subject: string, heard: (content: Hint) => void) => {
    if (bus.kind !== "nats") return;
    bus.onHint(subject, (payload) => {
      const content = JSON.parse(told.decode(payload)) as Hint;
      if (content.from !== self) heard(content);
    });
  };
  listen("runs.ended", ({ runIds }) => note(runIds));
  listen("runs.awaited", ({ runIds, forMs = 0 }) => {
    const until = clock.now() + forMs;
    for (const runId of runIds) if (elsewhere.size < endWaitsMax) elsewhere.set(runId, until);
  });

  function note(runIds: readonly string[]): void {
    for (const runId of runIds)
      for (const waiter of waiters.get(runId) ?? []) {
        waiter.left.delete(runId);
        if (waiter.left.size === 0) waiter.finish();
      }
  }

  /** Those who finish together are read together. */
  function read(waiter: Waiter): Promise<RunResult[]> {
    return new Promise((resolve, reject) => {
      finished.add({ waiter, resolve, reject });
      if (finished.size === 1)
        queueMicrotask(async () => {
          const all = [...finished];
          finished.clear();
          try {
            const targets = all.flatMap(({ waiter: { environmentId, runIds } }) =>
              runIds.map((runId) => ({ environmentId, runId })),
            );
            const results = await resultsOf(store, targets, clock.now());
            for (const one of all)
              one.resolve(one.waiter.runIds.flatMap((runId) => results.get(runId) ?? []));
          } catch (error) {
            for (const one of all) one.reject(error);
          }
        });
    });
  }

  return {
    enter() {
      if (places >= endWaitsMax)
        throw new Fault("resource_exhausted", "too many callers wait for the ends of runs", {
          headers: { "Retry-After": "1" },
        });
      places++;
      let here = true;
      return () => {
        if (here) places--;
        here = false;
      };
    },

    async wait(waiting) {
      const { runIds, timeoutMs, signal } = waiting;
      if (runIds.length === 0) return [];
      const waiter: Waiter = { ...waiting, left: new Set(runIds), finish: () => {} };
      await new Promise<void>((resolve) => {
        const cancel = clock.after(timeoutMs, () => waiter.finish());
        waiter.finish = () => {
          cancel();
          signal.removeEventListener("abort", waiter.finish);
          for (const runId of runIds) {
            const others = waiters.get(runId);
            others?.delete(waiter);
            if (others?.size === 0) waiters.delete(runId);
          }
          resolve();
        };
        for (const runId of runIds) {
          const others = waiters.get(runId);
          if (others) others.add(waiter);
          else waiters.set(runId, new Set([waiter]));
        }
        signal.addEventListener("abort", waiter.finish, { once: true });
        if (signal.aborted) return waiter.finish();
        hint("runs.awaited", { runIds: [...runIds], forMs: timeoutMs });
        // A look that fails is made up for by the next tick.
        if (waiting.look) endedOf(store, runIds).then(note, () => {});
      });
      return read(waiter);
    },

    ended(runIds) {
      if (waiters.size > 0) note(runIds);
      if (elsewhere.size === 0) return;
      const awaited = runIds.filter((runId) => elsewhere.delete(runId));
      if (awaited.length > 0) hint("runs.ended", { runIds: awaited });
    },

    async lookOnce() {
      const now = clock.now();
      for (const [runId, until] of elsewhere) if (until < now) elsewhere.delete(runId);
      const runIds = [...waiters.keys()];
      for (let from = 0; from < runIds.length; from += endLookSlice)
        note(await endedOf(store, runIds.slice(from, from + endLookSlice)));
    },

    drain() {
      for (const all of [...waiters.values()]) for (const waiter of [...all]) waiter.finish();
    },
  };
}

/** Whatever counts ends also tells those who wait for them. */
export const tellingEnds = (
  tally: Tally | undefined,
  ended: Ends["ended"],
  moved: (settlements: readonly Settlement[]) => void = () => {},
  committed: (settlements: readonly Settlement[], now: Instant) => void = () => {},
): Tally => ({
  ended(status, runIds, now) {
    tally?.ended(status, runIds, now);
    if (runIds.length > 0) ended(runIds);
  },
  settled(settlements, now) {
    tally?.settled(settlements, now);
    const over = settlements.flatMap(({ ends, runId }) => (ends === null ? [] : runId));
    if (over.length > 0) ended(over);
    if (over.length < settlements.length) moved(settlements);
    committed(settlements, now);
  },
});
