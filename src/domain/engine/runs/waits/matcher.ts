import type { Clock, Instant } from "../../../../kit/clock.ts";
import { knownOf } from "./compared-until.ts";
import { MatchPass, type MatchPassDeps, type PassOutcome } from "./match-pass.ts";
import * as rows from "./wait-rows.ts";

/** Slow passes at once: each holds a slice of a log in memory. */
const slowWorkMax = 32;
/** The wake loop waits this long, in milliseconds, for the look at one environment. */
export const catchUpMsMax = 250;

export function openSlowWork(
  clock: Pick<Clock, "after" | "elapsed">,
  onOver: (environmentId: string) => void,
) {
  const underWay = new Map<string, Promise<void>>();
  const slowWork = {
    /** Whether work of this environment is running in the background. */
    has: (environmentId: string) => underWay.has(environmentId),
    size: () => underWay.size,
    /** Resolves when any background work ends. */
    oneOver: () => Promise.race(underWay.values()),

    /**
     * The result of `work`, or undefined when it takes longer than `ms`: it then goes on in the background.
     */
    async within<T>(ms: number, environmentId: string, work: Promise<T>): Promise<T | undefined> {
      let isLate = false;
      const late = Promise.withResolvers<undefined>();
      const cancel = clock.after(ms, () => {
        isLate = true;
        late.resolve(undefined);
      });
      const end = () => {
        // Other work of the environment may have become slow meanwhile.
        if (underWay.get(environmentId) === ended) underWay.delete(environmentId);
        onOver(environmentId);
      };
      let ended: Promise<void> | undefined;
      try {
        return await Promise.race([work, late.promise]);
      } finally {
        cancel();
        if (isLate) {
          ended = work.then(end, end);
          underWay.set(environmentId, ended);
        }
      }
    },

    /**
     * Begins the work of these environments, as many beside each other as there is room for, and waits `ms`
     * for each of them. After `ms` no more begin. The failure of one holds up no other, and is not told.
     */
    async each(
      ms: number,
      environmentIds: Iterable<string>,
      work: (environmentId: string) => Promise<unknown>,
    ) {
      const until = clock.elapsed() + ms;
      const left = [...environmentIds].filter((id) => !underWay.has(id));
      while (left.length > 0 && underWay.size < slowWorkMax) {
        const some = left.splice(0, slowWorkMax - underWay.size);
        await Promise.allSettled(some.map((id) => slowWork.within(ms, id, work(id))));
        if (clock.elapsed() >= until) return;
      }
    },
  };
  return slowWork;
}

/** Reads the logs for runs that wait for an event, and for runs that an event cancels. */
export type Matcher = ReturnType<typeof openMatcher>;

export interface MatcherDeps extends MatchPassDeps {
  /** Asks for a tick now. */
  wakeLoop: () => void;
}

/** Every environment with waits is looked at this often, woken or not: a wake of another node may be lost. */
const lookEveryMs = 1_000;
const catchUpPassesMax = 20;
/** A pass that lost a race waits this long. The node that won it holds the cursor until its commit. */
const lostPauseMs = 5;
/** Lost races after which a round leaves an environment to the node that wins them. */
const racesMax = 5;

/**
 * Expressions of one environment may take minutes. A round waits `patienceMs` for all slow passes together,
 * and at least `patienceMsMin` for each; then a slow pass continues in the background.
 */
const patienceMs = 500;
const patienceMsMin = 25;

export function openMatcher(deps: MatcherDeps) {
  const rounds = new MatcherRounds(deps);
  return {
    /** Whether runs of the environment wait for events, as this node knows it: at most a second old. */
    wanted: (environmentId: string) => rounds.wanted(environmentId),
    /**
     * Marks the environment as changed (an event was logged, a run began to wait) and asks the loop for a
     * tick.
     */
    wake: (environmentId: string) => rounds.wake(environmentId),
    /**
     * The tick of loop `runs.matcher`: reads woken environments up to the heads of their logs; all of them
     * once a second.
     */
    matchOnce: () => rounds.matchOnce(),
    /**
     * Reads on in the logs of these environments, beside the loop. Answers until when all that was logged has
     * been compared with waits that are not fresh; an environment of which this node does not know it is left
     * out. A read that takes longer than `catchUpMsMax` continues in the background, and the next look knows
     * what it compared. The loop repeats a read that failed.
     */
    catchUp: (environmentIds: Iterable<string>) => rounds.catchUp(environmentIds),
  };
}

class MatcherRounds {
  readonly #deps: MatcherDeps;
  readonly #pass: MatchPass;
  readonly #slowWork: ReturnType<typeof openSlowWork>;
  /** Environments with waits. */
  #known = new Set<string>();
  /** Environments that were woken since the last look. */
  readonly #woken = new Set<string>();
  #lookedAt = Number.NEGATIVE_INFINITY;
  #running: Promise<void> = Promise.resolve();

  constructor(deps: MatcherDeps) {
    this.#deps = deps;
    this.#pass = new MatchPass(deps);
    this.#slowWork = openSlowWork(deps.clock, (environmentId) => {
      // A slow pass may have left more of the log.
      this.#woken.add(environmentId);
      deps.wakeLoop();
    });
  }

  wanted(environmentId: string): boolean {
    return this.#known.has(environmentId);
  }

  wake(environmentId: string): void {
    this.#known.add(environmentId);
    this.#woken.add(environmentId);
    this.#deps.wakeLoop();
  }

  matchOnce(): Promise<void> {
    // Two rounds at once would race for the same cursors: a tick beside the loop's own comes after it.
    const turn = this.#running.then(() => this.#round());
    this.#running = turn.catch(() => {});
    return turn;
  }

  async catchUp(environmentIds: Iterable<string>): Promise<ReadonlyMap<string, Instant>> {
    const ids = [...environmentIds];
    // A failed environment must not hold up wakes of others; the loop meets and reports the same failure.
    await this.#slowWork.each(catchUpMsMax, ids, (environmentId) => this.#readOn(environmentId));
    return knownOf(ids, (id) => this.#pass.comparedUntil(id));
  }

  async #readOn(environmentId: string): Promise<void> {
    const { clock } = this.#deps;
    for (let passes = 0; passes < catchUpPassesMax; passes++) {
      const outcome = await this.#pass.run(environmentId);
      if (outcome === "done") return;
      if (outcome === "lost") await clock.sleep(lostPauseMs);
    }
  }

  async #round(): Promise<void> {
    const { clock } = this.#deps;
    let queue = await this.#nextEnvironments();
    const races = new Map<string, number>();
    let failure: { error: unknown } | undefined;
    let patience = patienceMs;
    // One pass of each environment in turn: a long log holds up no other.
    while (queue.length > 0) {
      const next: string[] = [];
      for (const environmentId of queue) {
        if (this.#slowWork.has(environmentId)) continue;
        if (this.#slowWork.size() >= slowWorkMax) await this.#slowWork.oneOver();
        const beganAt = clock.elapsed();
        // The failure of one environment is thrown once the others had their turn.
        const passing = this.#pass.run(environmentId).catch((error: unknown): PassOutcome => {
          failure ??= { error };
          return "done";
        });
        const outcome = await this.#slowWork.within(
          Math.max(patienceMsMin, patience),
          environmentId,
          passing,
        );
        if (outcome === undefined) patience -= clock.elapsed() - beganAt;
        const lost = (races.get(environmentId) ?? 0) + (outcome === "lost" ? 1 : 0);
        races.set(environmentId, lost);
        if (outcome === "more" || (outcome === "lost" && lost < racesMax)) next.push(environmentId);
      }
      // Environments that were woken meanwhile join now, and do not wait for the end of long logs.
      const isLookDue = clock.elapsed() - this.#lookedAt >= lookEveryMs;
      const more =
        next.length > 0 && (this.#woken.size > 0 || isLookDue) ? await this.#nextEnvironments() : [];
      queue = [...new Set([...next, ...more])];
    }
    if (failure) throw failure.error;
  }

  /**
   * The woken environments; all that have something to read when none was woken or the last look is a second
   * old.
   */
  async #nextEnvironments(): Promise<string[]> {
    const now = this.#deps.clock.elapsed();
    if (this.#woken.size === 0 || now - this.#lookedAt >= lookEveryMs) {
      this.#lookedAt = now;
      return this.#look();
    }
    const woken = [...this.#woken];
    this.#woken.clear();
    return woken;
  }

  /** Environments whose logs may hold an event that a run waits for. */
  async #look(): Promise<string[]> {
    this.#woken.clear();
    const waiting = await rows.environmentsWaiting(this.#deps.store);
    // Woken during the read: their waits may be younger than it.
    this.#known = new Set([...waiting.map(({ id }) => id), ...this.#woken]);
    this.#pass.keepOnly(this.#known);
    return waiting.flatMap(({ id, position, generation, head, fresh }) => {
      if (position === null || generation === null || head === null) return [];
      return fresh !== null || this.#pass.readTo(id, { position, generation }) < head ? id : [];
    });
  }
}
