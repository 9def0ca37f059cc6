import type { Clock, Instant } from "../../../../kit/clock.ts";
import type { Log } from "../../../../kit/log.ts";
import type { SharedWork, Slice } from "../../../../kit/turns.ts";
import type { Store } from "../../../../store/store.ts";
import { timeOutPending } from "../children/invokes.ts";
import type { Matcher } from "../waits/matcher.ts";
import { endTimedOut, type Lane, timeoutPlaces, wakeDue } from "./wake.ts";
import { type WakePlace, wakePlaces } from "./wake-places.ts";

export interface WakesDeps {
  store: Store;
  clock: Clock;
  log: Log;
  matcher: Pick<Matcher, "catchUp">;
  onQueued: (lanes: readonly Lane[]) => void;
  onFailed: (runs: readonly { runId: string; environmentId: string }[]) => void;
  onSilent: (worker: { environmentId: string; workerId: string }) => void;
}

const isPending = ({ state }: WakePlace): boolean => state === "waiting" || state === "invoking";

/** What the loop `runs.wake` moves: executions at their wakes, and runs at their ends in time. */
export function openWakes(deps: WakesDeps): { wakes: SharedWork<WakePlace>; timeouts: SharedWork } {
  const { store, clock, log, matcher, onQueued, onFailed, onSilent } = deps;

  async function wake(now: Instant, slice: Slice<WakePlace>) {
    const woken = await store.write((session) => wakeDue(session, now, slice));
    for (const run of woken.lost) log.warn("run.workers_lost", run);
    for (const run of woken.refused) log.warn("run.report_refused", run);
    onFailed([...woken.lost, ...woken.refused]);
    for (const worker of woken.silent) onSilent(worker);
    if (woken.lanes.length > 0) onQueued(woken.lanes);
    return woken;
  }

  /** An event of before the deadline counts, also when nobody has come to look at it yet. */
  async function timeOut(now: Instant, waitedIn: Iterable<string>, slice: Slice<WakePlace>) {
    const behind = await matcher.catchUp(waitedIn);
    const moved = await store.write((session) => timeOutPending(session, now, slice, behind));
    for (const run of moved.failed) log.debug("run.wait_timed_out", run);
    onFailed(moved.failed);
    if (moved.lanes.length > 0) onQueued(moved.lanes);
    return moved.counts;
  }

  const wakes: SharedWork<WakePlace> = {
    async oldest(limit) {
      const now = clock.now();
      const woken = await wake(now, { oldest: limit });
      if (woken.isPendingDue) await timeOut(now, woken.waitedIn, { oldest: limit });
      return { found: woken.found, taken: woken.found };
    },
    places: () => wakePlaces(store, clock.now()),
    async take(turns) {
      const now = clock.now();
      const pending = turns.filter(({ place }) => isPending(place));
      const others = turns.filter(({ place }) => !isPending(place));
      const woken = others.length === 0 ? [] : (await wake(now, { turns: others })).counts;
      const waits = pending.filter(({ place }) => place.state === "waiting");
      const waitedIn = new Set(waits.map(({ place }) => place.environmentId));
      const moved = pending.length === 0 ? [] : await timeOut(now, waitedIn, { turns: pending });
      return turns.map((turn) => (isPending(turn.place) ? moved : woken).shift() ?? 0);
    },
  };

  async function endLate(slice: Slice): Promise<number[]> {
    const { ended, counts } = await store.write((session) => endTimedOut(session, clock.now(), slice));
    for (const { runId, environmentId } of ended) log.debug("run.timed_out", { runId, environmentId });
    const freed = ended.flatMap((run) => run.freed ?? []);
    if (freed.length > 0) onQueued(freed);
    onFailed(ended);
    return "turns" in slice ? counts : [ended.length];
  }

  const timeouts: SharedWork = {
    async oldest(limit) {
      const [count = 0] = await endLate({ oldest: limit });
      return { found: count, taken: count };
    },
    places: () => timeoutPlaces(store, clock.now()),
    take: (turns) => endLate({ turns }),
  };

  return { wakes, timeouts };
}
