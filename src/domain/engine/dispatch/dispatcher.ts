import type { Clock } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";
import { pollJobsMax } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import { noTracer, type Tracer } from "../../../kit/trace.ts";
import type { Job } from "../jobs/rules.ts";
import type { NewRun } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import type { Lane as LaneHint } from "../runs/wakes/wake.ts";
import { openBirths, type Reservation } from "./births.ts";
import { openClaims } from "./claims.ts";
import { type Desk, openDesks } from "./desks.ts";
import { type DispatchFacts, dispatchFacts } from "./facts.ts";
import type { GiveBack } from "./give-back.ts";
import { type Asking, doubt, isAwaited, type Lane, mayHaveWork, newLane, type Waiter } from "./lanes.ts";
import { heardOf, isUnheardOf, newLimited } from "./limited.ts";
import type { UnsentJob } from "./unsent.ts";
import { openWaiters } from "./waiters.ts";

export interface Dispatcher {
  take(asking: Asking): Promise<Job[]>;
  /**
   * A lease for a run born now, when a worker waits here and the lane has no older work. In a lane with a limit it is only
   * wished for: whether there is room is known under the lane's lock.
   */
  reserve(run: Pick<NewRun, "environmentId" | "functionId" | "laneId" | "actorId">): Reservation | undefined;
  /** Answers the workers that runs were delivered to: once, after the last birth of a flush. */
  handOut(): void;
  /** A worker let a lease end: its held polls are answered with nothing, and it gets no job before it asks again. */
  distrust(worker: { environmentId: string; workerId: string }): void;
  /** The environment is gone: its held polls are answered with nothing. */
  letGo(environmentId: string): void;
  /** Runs were queued or leases of limited functions ended, here or (by hint) on another node. */
  queued(lanes: readonly LaneHint[]): void;
  /** The tick of loop `workers.dispatch`: looks everywhere, whatever hints were lost. */
  lookOnce(): Promise<void>;
  /** Answers all held polls with nothing, and every later one at once; resolves once nothing is claimed or given back any more. */
  drain(): Promise<void>;
  waiting(): number;
  /** What only this node knows of its workers and lanes, as the capacity endpoints show it. */
  facts(): DispatchFacts;
}

export interface DispatcherDeps {
  back: GiveBack;
  runs: Pick<Runs, "claim" | "claimLimited" | "lookAtLanes" | "completedSteps" | "handOver">;
  clock: Clock;
  log: Log;
  ids: Ids;
  leaseMs: number;
  /** A claimed job that cannot be handed to anybody. */
  onUnsent?: (job: Job, error: UnsentJob) => void;
  /** False while this node is not sure of the time. */
  mayClaim: () => boolean;
  tracer?: Tracer;
}

/** A lane nobody has looked at for this long is looked at on the next poll. */
const lookEveryMs = 1_000;

export function openDispatcher(deps: DispatcherDeps): Dispatcher {
  const { runs, clock, ids, log, leaseMs, mayClaim, tracer = noTracer } = deps;
  const { giveBack, underWay } = deps.back;
  const lanes = new Map<string, Lane>();
  let pumping: Promise<void> | undefined;
  /** Asked to pump while pumping. */
  let again = false;
  let draining = false;

  const laneOf = (environmentId: string, functionId: string): Lane => {
    const key = `${environmentId}\n${functionId}`;
    let lane = lanes.get(key);
    if (!lane) {
      lane = newLane({ environmentId, functionId }, clock.now());
      lanes.set(key, lane);
    }
    return lane;
  };

  const desks = openDesks(clock, giveBack);
  const waiters = openWaiters(desks, () => draining);
  const { finish, handOut } = waiters;

  function queued(list: readonly LaneHint[]): void {
    let wanted = false;
    for (const { environmentId, functionId, laneId, freed = false, queued = true } of list) {
      const lane = lanes.get(`${environmentId}\n${functionId}`);
      if (!lane) continue;
      if (laneId !== undefined && queued) lane.limited ??= newLimited();
      if (laneId === undefined) doubt(lane);
      else if (!lane.limited || !heardOf(lane.limited, laneId, { queued, freed })) continue;
      wanted ||= isAwaited(lane);
    }
    if (wanted) void pump();
  }

  /** Claims as long as there is a lane to look at and a slot to fill. One claim at a time: each takes all that wait. */
  function pump(): Promise<void> {
    again = pumping !== undefined;
    // Cleared behind the assignment, always: a round that may not claim is over before it, and would look under way for ever.
    pumping ??= claimAll().finally(() => {
      pumping = undefined;
      // Asked for between the last look and here.
      if (again) void pump();
    });
    return pumping;
  }

  async function claimAll(): Promise<void> {
    try {
      while (mayClaim() && (await claims.claimOnce()));
    } catch (error) {
      again = false;
      log.warn("claim failed", { error: String(error) });
    }
  }

  /** For its worker to fetch; or handed over, when the worker has come back meanwhile. */
  function leaveAt(desk: Desk, lane: Lane, job: Job): void {
    for (const waiter of lane.waiters) {
      // Not creditOf: what is promised at the desk is this very job.
      if (waiter.desk !== desk || waiter.available - waiter.pending - waiter.jobs.length <= 0) continue;
      waiter.jobs.push(job);
      waiters.delivered(waiter);
      return;
    }
    if (draining) giveBack([job]);
    else desks.put(desk, job);
  }

  const parts = { clock, ids, leaseMs, desks, waiters, leaveAt };
  const births = openBirths(parts);
  const { onUnsent = (job: Job) => giveBack([job]) } = deps;
  const claims = openClaims({ ...parts, runs, log, tracer, lanes, onUnsent, pump: () => void pump() });

  return {
    take(asking) {
      return new Promise<Job[]>((resolve) => {
        const lanesAsked = asking.functionIds.map((id) => laneOf(asking.environmentId, id));
        const desk = desks.of(asking);
        desk.asking++;
        desk.askedAt = clock.now();
        desk.functionIds = asking.functionIds;
        const waiter: Waiter = {
          ...asking,
          desk,
          available: Math.min(asking.available, pollJobsMax),
          lanes: lanesAsked,
          jobs: [],
          pending: 0,
          looks: 0,
          closed: false,
          answered: false,
          settle: () => {
            desk.asking--;
            cancelHold();
            asking.signal.removeEventListener("abort", leave);
            if (asking.signal.aborted && waiter.jobs.length > 0) giveBack(waiter.jobs.splice(0));
            resolve(waiter.jobs);
          },
        };
        const leave = () => finish(waiter, true);
        asking.signal.addEventListener("abort", leave, { once: true });
        const cancelHold = clock.after(asking.holdMs, () => {
          // A poll that looks once is answered by its claim; should that fail, here.
          if (asking.holdMs > 0 || !pumping) finish(waiter, true);
        });
        if (waiter.available <= 0) desk.spare = 0;
        if (waiter.available <= 0 || draining || asking.signal.aborted) return finish(waiter, true);
        const now = clock.now();
        waiter.jobs = desks.fetch(desk, { most: waiter.available, functionIds: asking.functionIds });
        for (const lane of lanesAsked) {
          lane.waiters.add(waiter);
          lane.away.delete(desk);
          if (now - lane.lookedAt >= lookEveryMs) doubt(lane);
        }
        const dirty = lanesAsked.some(mayHaveWork);
        // What lay at its desk goes out at once; what else there is will lie there when it comes back.
        if (waiter.jobs.length > 0) {
          finish(waiter, true);
          if (dirty) void pump();
        } else if (dirty) void pump().then(() => asking.holdMs === 0 && finish(waiter, true));
        else if (asking.holdMs === 0) finish(waiter, true);
      });
    },

    reserve({ environmentId, functionId, laneId, actorId }) {
      const lane = lanes.get(`${environmentId}\n${functionId}`);
      if (!lane || draining || !mayClaim()) return undefined;
      const mayBeBorn = laneId === null ? !lane.limited && !lane.dirty : isUnheardOf(lane.limited, laneId);
      if (!mayBeBorn) return undefined;
      return births.reserve(lane, actorId);
    },

    handOut,

    distrust(worker) {
      const desk = desks.of(worker);
      for (const lane of lanes.values())
        for (const waiter of [...lane.waiters]) if (waiter.desk === desk) finish(waiter, true);
      desk.spare = 0;
    },

    letGo(environmentId) {
      for (const desk of desks.all()) if (desk.environmentId === environmentId) desk.spare = 0;
      for (const [key, lane] of lanes) {
        if (lane.environmentId !== environmentId) continue;
        for (const waiter of [...lane.waiters]) finish(waiter, true);
        lanes.delete(key);
      }
    },

    queued,

    async lookOnce() {
      const now = clock.now();
      desks.tidy(false);
      for (const [key, lane] of lanes) {
        if (lane.waiters.size > 0) doubt(lane);
        else if (now - lane.lookedAt > 60 * lookEveryMs) lanes.delete(key);
      }
      // Under load a pump goes on and on; the tick must not wait for its end.
      void pump();
    },

    async drain() {
      draining = true;
      desks.tidy(true);
      for (const lane of lanes.values()) for (const waiter of [...lane.waiters]) finish(waiter, true);
      while (pumping || underWay.size > 0) await Promise.all([pumping, ...underWay]);
    },

    waiting: () => new Set([...lanes.values()].flatMap((lane) => [...lane.waiters])).size,
    facts: () => dispatchFacts(lanes.values(), desks),
  };
}
