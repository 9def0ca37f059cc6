import type { Instant } from "../../../../kit/clock.ts";
import { knownOf } from "../waits/compared-until.ts";
import { catchUpMsMax, openSlowWork } from "../waits/slow-work.ts";
import { StatePass, type StatePassDeps } from "./state-pass.ts";
import * as rows from "./state-rows.ts";

/** Wakes runs that wait for versions of entities, changes of keys and ends of children. */
export type States = ReturnType<typeof openStates>;

export interface StatesDeps extends StatePassDeps {
  /** Asks for a tick now. */
  wakeLoop: () => void;
}

/** Every awaited place is looked at this often, woken or not: a hint from another node may be lost. */
const lookEveryMs = 1_000;
const catchUpPassesMax = 3;

export function openStates(deps: StatesDeps) {
  const { store, clock, wakeLoop } = deps;
  const pass = new StatePass(deps);
  /** Environments with waits. */
  let known = new Set<string>();
  const woken = new Set<string>();
  let lookedAt = Number.NEGATIVE_INFINITY;
  let running: Promise<void> = Promise.resolve();

  /** Environments with a wait to look at, or a place that has moved. */
  async function look(): Promise<string[]> {
    const early = [...woken];
    woken.clear();
    try {
      return await placesToLookAt(early);
    } catch (error) {
      // The hints are still to be followed.
      for (const environmentId of early) woken.add(environmentId);
      throw error;
    }
  }

  async function placesToLookAt(early: readonly string[]): Promise<string[]> {
    const places = await rows.placesWaited(store);
    // Woken during the read: their waits may be younger than it.
    known = new Set([...places.map((place) => place.environment_id), ...early, ...woken]);
    pass.keepOnly(known);
    const moved = places.filter((place) => pass.isMoved(place)).map((place) => place.environment_id);
    return [...new Set([...early, ...moved, ...(await rows.environmentsWithDue(store, clock.now()))])];
  }

  async function next(): Promise<string[]> {
    const now = clock.elapsed();
    if (woken.size === 0 || now - lookedAt >= lookEveryMs) {
      lookedAt = now;
      return look();
    }
    const some = [...woken];
    woken.clear();
    return some;
  }

  async function round(): Promise<void> {
    let failure: { error: unknown } | undefined;
    // One pass of each environment in turn: what changes much in one holds up no other.
    for (let queue = await next(); queue.length > 0; ) {
      const again: string[] = [];
      for (const environmentId of queue) {
        // The failure of one environment is thrown once the others had their turn.
        const more = await pass.run(environmentId).catch((error: unknown) => {
          failure ??= { error };
          return false;
        });
        if (more) again.push(environmentId);
      }
      const isLookDue = again.length > 0 && (woken.size > 0 || clock.elapsed() - lookedAt >= lookEveryMs);
      queue = [...new Set([...again, ...(isLookDue ? await next() : [])])];
    }
    if (failure) throw failure.error;
  }

  async function lookOn(environmentId: string): Promise<void> {
    for (let passes = 0; passes < catchUpPassesMax; passes++) if (!(await pass.run(environmentId))) return;
  }

  const wake = (environmentId: string) => {
    woken.add(environmentId);
    wakeLoop();
  };
  const slowWork = openSlowWork(clock, wake);
  return {
    /** Runs of the environment began to wait for such. */
    awaited(environmentId: string) {
      known.add(environmentId);
      wake(environmentId);
    },
    /** Something was appended or put there: asks for a tick where a run waits. */
    changed(environmentId: string) {
      if (known.has(environmentId)) wake(environmentId);
    },
    /** The tick of loop `runs.states`: looks at woken environments; at all of them once a second. */
    lookOnce() {
      const turn = running.then(round);
      running = turn.catch(() => {});
      return turn;
    },
    /**
     * Looks at these environments beside the loop. Answers until when all changes have been compared with
     * waits that are not due for a look; an environment of which this node does not know it is left out. A
     * look that takes longer than `catchUpMsMax` continues in the background.
     */
    async catchUp(environmentIds: Iterable<string>): Promise<ReadonlyMap<string, Instant>> {
      const ids = [...environmentIds];
      // A failed environment must not hold up wakes of others; the loop meets and reports the same failure.
      await slowWork.each(catchUpMsMax, ids, lookOn);
      return knownOf(ids, (id) => pass.comparedUntil(id));
    },
  };
}
