import type { Clock, Instant } from "../../../../kit/clock.ts";
import { roundRobin, type SharedWork, type Slice } from "../../../../kit/round-robin.ts";
import { WholeLooks } from "../../../../kit/whole-looks.ts";
import type { Basics, Store } from "../../../../store/store.ts";
import type { States } from "../awaited/states.ts";
import { timeOutPending } from "../children/invokes.ts";
import type { Silence } from "../execution/leases.ts";
import { wakeSliceMax } from "../limits.ts";
import type { RunObservers } from "../observer.ts";
import { nextWakeAt } from "../rows.ts";
import type { Matcher } from "../waits/matcher.ts";
import { endSilent, endTimedOut, timeoutEnvironments, type WakeOutcome, wakeDue } from "./due.ts";
import { type WakeQueue, wakeQueues } from "./wake-queues.ts";

export interface WakesDeps extends Basics<"store" | "clock" | "log"> {
  matcher: Pick<Matcher, "catchUp">;
  states: Pick<States, "catchUp">;
  observers: Pick<RunObservers, "queued" | "silent">;
  onFailed: (runs: readonly { runId: string; environmentId: string }[]) => void;
}

const isPending = ({ state }: WakeQueue): boolean => state === "waiting" || state === "invoking";

/**
 * Leases from before this node began last at least so long from then on: while no node was there, their
 * workers could not renew them.
 */
const leasePardonMs = 3_000;
/** What is still due then is moved by the next look: the sweeper does other work behind it. */
const moveMsMax = 5_000;

export type Wakes = ReturnType<typeof openWakes>;

/** What the loop `runs.wake` moves: executions at their wakes, and runs at their ends in time. */
export function openWakes(deps: WakesDeps) {
  const { store, clock, log, matcher, states, observers, onFailed } = deps;
  const startedAt = clock.now();
  const isPardoning = () => clock.now() < startedAt + leasePardonMs;

  function tell({ lost, refused, lanes }: Pick<WakeOutcome, "lost" | "refused" | "lanes">): void {
    for (const run of lost) log.warn("run.workers_lost", run);
    for (const run of refused) log.warn("run.report_refused", run);
    onFailed([...lost, ...refused]);
    if (lanes.length > 0) observers.queued(lanes);
  }

  async function wake(now: Instant, slice: Slice<WakeQueue>) {
    const pardon = isPardoning() ? startedAt : undefined;
    const woken = await store.write((session) => wakeDue(session, now, slice, pardon));
    for (const worker of woken.silent) observers.silent(worker);
    tell(woken);
    return woken;
  }

  /**
   * These environments are looked at first: what was logged, or stood, before the deadline still resolves its
   * wait.
   */
  async function timeOut(now: Instant, waitedIn: ReadonlySet<string>, slice: Slice<WakeQueue>) {
    const [events, changes] = await Promise.all([matcher.catchUp(waitedIn), states.catchUp(waitedIn)]);
    const compared = { asked: waitedIn, events, changes };
    const moved = await store.write((session) => {
      // A wait that was stored after the look is due by now, and not compared.
      const knownAt = clock.now();
      return timeOutPending(session, now, slice, { ...compared, knownAt });
    });
    for (const run of moved.failed) log.debug("run.wait_timed_out", run);
    onFailed(moved.failed);
    if (moved.lanes.length > 0) observers.queued(moved.lanes);
    return moved.counts;
  }

  const wakesFrom = (from: Instant | undefined): SharedWork<WakeQueue> => ({
    async oldest(limit) {
      const now = clock.now();
      const woken = await wake(now, { oldest: limit, from });
      if (woken.isPendingDue) await timeOut(now, woken.waitedIn, { oldest: limit, from });
      return { found: woken.found, taken: woken.found };
    },
    async scopes() {
      const queues = await wakeQueues(store, clock.now());
      return isPardoning() ? queues.filter(({ state }) => state !== "leased") : queues;
    },
    async claim(turns) {
      const now = clock.now();
      const pending = turns.filter(({ scope: place }) => isPending(place));
      const others = turns.filter(({ scope: place }) => !isPending(place));
      const woken = others.length === 0 ? [] : (await wake(now, { turns: others })).counts;
      const waits = pending.filter(({ scope: place }) => place.state === "waiting");
      const waitedIn = new Set(waits.map(({ scope: place }) => place.environmentId));
      const moved = pending.length === 0 ? [] : await timeOut(now, waitedIn, { turns: pending });
      return turns.map((turn) => (isPending(turn.scope) ? moved : woken).shift() ?? 0);
    },
  });

  async function endLate(slice: Slice): Promise<number[]> {
    const { ended, counts } = await store.write((session) => endTimedOut(session, clock.now(), slice));
    for (const { runId, environmentId } of ended) log.debug("run.timed_out", { runId, environmentId });
    const hints = ended.flatMap((run) => run.hint ?? []);
    if (hints.length > 0) observers.queued(hints);
    onFailed(ended.filter((run) => !run.isUndone));
    return "turns" in slice ? counts : [ended.length];
  }

  const timeoutsFrom = (from: Instant | undefined): SharedWork => ({
    async oldest(limit) {
      const [count = 0] = await endLate({ oldest: limit, from });
      return { found: count, taken: count };
    },
    scopes: () => timeoutEnvironments(store, clock.now()),
    claim: (turns) => endLate({ turns }),
  });

  return {
    /** Moves what is due, at `from` or later, for `moveMsMax` at most. */
    moveDue: (from: Instant | undefined): Promise<unknown> =>
      roundRobin([wakesFrom(from), timeoutsFrom(from)], { clock, limit: wakeSliceMax, msMax: moveMsMax }),
    isPardoning,
    /** Ends leases that were not renewed; answers how many. */
    async endSilent(silence: Silence): Promise<number> {
      let count = 0;
      for (;;) {
        const ended = await store.write((session) => endSilent(session, silence, clock.now()));
        tell(ended);
        count += ended.found;
        if (ended.found < wakeSliceMax) return count;
      }
    },
  };
}

/** A due row that is locked stays due: the loop comes back after this, and does not spin. */
const wakeEveryMsMin = 20;
/** The share of the time for whole looks. Without a held snapshot nearly every look is a whole one. */
const wholeShareMax = 0.01;
const wholeEveryMsMax = 5_000;
/**
 * Every look begins at least this far before now, because a transaction may commit a wake that is due
 * already. The next look at all wakes finds what is committed even later.
 */
const writtenLateMsMax = 10_000;

/**
 * The tick of loop `runs.wake`, which answers in how many milliseconds the next is due; one that is asked for
 * looks at all. Moves what is due. A whole look begins at the front of the index. The looks between two whole
 * ones begin at the first wake that the last whole look found: before it lie only entries of runs that are
 * over, which PostgreSQL keeps while a snapshot is held.
 */
export function openWakeLooks(
  { store, clock }: { store: Store; clock: Clock },
  wakes: Pick<Wakes, "moveDue" | "isPardoning">,
): (isAsked?: boolean) => Promise<{ againInMs?: number }> {
  const whole = new WholeLooks({ everyMs: 0, everyMsMax: wholeEveryMsMax, shareMax: wholeShareMax });
  let floor: Instant | undefined;

  return async (isAsked = false) => {
    const now = clock.now();
    const isWhole = whole.begins(clock.elapsed()) || isAsked;
    const from = isWhole ? undefined : floor;
    await wakes.moveDue(from);
    // A lease that is pardoned is due all the while.
    if (wakes.isPardoning()) return {};
    const askedAt = clock.elapsed();
    const next = await nextWakeAt(store, from);
    if (from === undefined) {
      whole.took(clock.elapsed() - askedAt);
      floor = Math.min(next ?? now, now - writtenLateMsMax);
    }
    return next === undefined ? {} : { againInMs: Math.max(wakeEveryMsMin, next - clock.now()) };
  };
}
