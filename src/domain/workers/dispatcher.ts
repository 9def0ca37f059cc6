import type { Clock } from "../../kit/clock.ts";
import type { Ids } from "../../kit/ids.ts";
import { pollJobsMax } from "../../kit/limits.ts";
import { noTracer, type Tracer } from "../../kit/trace.ts";
import type { ClaimedRow } from "../runs/claim.ts";
import type { CompletedStep } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import { openBirths, type Reservation } from "./births.ts";
import { type Desk, openDesks } from "./desks.ts";
import { type GiveBackDeps, openGiveBack } from "./give-back.ts";
import { type Job, jobOfClaim } from "./job.ts";
import { type Asking, askMin, type Lane, newLane, type Waiter } from "./lanes.ts";
import { type Plan, planClaim } from "./plan.ts";
import { openWaiters } from "./waiters.ts";

export interface Dispatcher {
  take(asking: Asking): Promise<Job[]>;
  /** A lease for a run born now, when a worker waits here and the lane has no older work. */
  reserve(environmentId: string, functionId: string): Reservation | undefined;
  /** Answers the workers that runs were delivered to: once, after the last birth of a flush. */
  handOut(): void;
  /** A worker let a lease end: its held polls are answered with nothing, and it gets no job before it asks again. */
  distrust(worker: { environmentId: string; workerId: string }): void;
  /** Runs were queued, here or (by hint) on another node. */
  queued(lanes: readonly { environmentId: string; functionId: string }[]): void;
  /** The tick of loop `workers.dispatch`: looks everywhere, whatever hints were lost. */
  lookOnce(): Promise<void>;
  /** Answers all held polls with nothing, and every later one at once; resolves once nothing is claimed or given back any more. */
  drain(): Promise<void>;
  waiting(): number;
}

export interface DispatcherDeps extends GiveBackDeps {
  runs: Pick<Runs, "claim" | "completedSteps" | "release">;
  clock: Clock;
  ids: Ids;
  leaseMs: number;
  /** False while this node is not sure of the time. */
  mayClaim: () => boolean;
  tracer?: Tracer;
}

/** Rows may become visible this much after their time: a watermark stays behind by it. */
const lateMsMax = 5_000;
/** A lane nobody has looked at for this long is looked at on the next poll. */
const lookEveryMs = 1_000;

export function openDispatcher(deps: DispatcherDeps): Dispatcher {
  const { runs, clock, ids, log, leaseMs, mayClaim, tracer = noTracer } = deps;
  const { giveBack, underWay } = openGiveBack(deps);
  const lanes = new Map<string, Lane>();
  let pumping: Promise<void> | undefined;
  /** Asked to pump while pumping. */
  let again = false;
  let draining = false;
  let turn = 0;

  const laneOf = (environmentId: string, functionId: string): Lane => {
    const key = `${environmentId}\n${functionId}`;
    let lane = lanes.get(key);
    if (!lane) {
      lane = newLane(environmentId, functionId);
      lanes.set(key, lane);
    }
    return lane;
  };

  const desks = openDesks(clock, giveBack);
  const waiters = openWaiters(desks, () => draining);
  const { finish, handOut } = waiters;

  function queued(list: readonly { environmentId: string; functionId: string }[]): void {
    let wanted = false;
    for (const { environmentId, functionId } of list) {
      const lane = lanes.get(`${environmentId}\n${functionId}`);
      if (!lane) continue;
      lane.dirty = true;
      wanted ||= lane.waiters.size + lane.away.size > 0;
    }
    if (wanted) void pump();
  }

  async function claimOnce(): Promise<boolean> {
    if (!mayClaim()) return false;
    const { demands, waiters: asking } = planClaim(lanes.values(), ++turn, { clock, ids, desks });
    if (demands.length === 0) return false;
    const slots = demands.flatMap(({ places }) => places);
    const asked = new Set(slots.flatMap((slot) => slot.waiter ?? []));
    const span = tracer.start("claim", "client");
    span.set("svc.claim.lanes", demands.length);
    let failed: string | undefined;
    try {
      const now = clock.now();
      const leaseUntil = now + leaseMs;
      const rows = await runs.claim({ now, leaseUntil, lanes: demands });
      span.set("svc.claim.runs", rows.length);
      await hand(rows, demands, leaseUntil);
    } catch (error) {
      failed = "failed";
      for (const { lane } of demands) lane.dirty = true;
      throw error;
    } finally {
      span.end(failed);
      for (const slot of slots) (slot.waiter ?? slot.desk).pending--;
      // Who does not hold is answered by the claim that asked for it, or by the second that had no slot left for it.
      for (const waiter of asking)
        finish(waiter, waiter.holdMs === 0 && (asked.has(waiter) || waiter.looks > 1));
      handOut();
    }
    return true;
  }

  async function hand(
    rows: readonly ClaimedRow[],
    demands: Plan["demands"],
    leaseUntil: number,
  ): Promise<void> {
    const resumed = rows.filter((row) => row.step_count > 0).map((row) => row.run_id);
    const unread = (error: unknown): undefined => {
      log.warn("steps could not be read", { runIds: resumed, error: String(error) });
    };
    const steps = resumed.length === 0 ? noSteps : await runs.completedSteps(resumed).catch(unread);
    const taken = new Map<number, number>();
    for (const row of rows) {
      const { waiter, desk, token } = demands[row.lane - 1]!.places[row.rank - 1]!;
      const job = jobOfClaim(row, token, leaseUntil, steps?.get(row.run_id) ?? []);
      // Without knowing what is done already nobody may begin: it goes back.
      if (row.step_count > 0 && !steps) giveBack([job]);
      else if (waiter) waiter.jobs.push(job);
      else leaveAt(desk, demands[row.lane - 1]!.lane, job);
      taken.set(row.lane, (taken.get(row.lane) ?? 0) + 1);
      const { lane } = demands[row.lane - 1]!;
      lane.since = Math.max(lane.since, row.queued_at - lateMsMax);
    }
    for (const [at, { lane, places }] of demands.entries()) {
      const count = taken.get(at + 1) ?? 0;
      if (count === places.length) lane.dirty = true;
      lane.ask = count === places.length ? Math.min(pollJobsMax, lane.ask * 2) : Math.max(askMin, 2 * count);
    }
  }

  /** Claims as long as there is a lane to look at and a slot to fill. One claim at a time: each takes all that wait. */
  function pump(): Promise<void> {
    again = pumping !== undefined;
    pumping ??= (async () => {
      try {
        while (await claimOnce());
      } catch (error) {
        again = false;
        log.warn("claim failed", { error: String(error) });
      } finally {
        pumping = undefined;
        // Asked for between the last look and here.
        if (again) void pump();
      }
    })();
    return pumping;
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

  const births = openBirths({ clock, ids, leaseMs, desks, waiters, leaveAt });

  return {
    take(asking) {
      return new Promise<Job[]>((resolve) => {
        const lanesAsked = asking.functionIds.map((id) => laneOf(asking.environmentId, id));
        const desk = desks.of(asking);
        desk.asking++;
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
          if (now - lane.lookedAt >= lookEveryMs) lane.dirty = true;
        }
        const dirty = lanesAsked.some((lane) => lane.dirty);
        // What lay at its desk goes out at once; what else there is will lie there when it comes back.
        if (waiter.jobs.length > 0) {
          finish(waiter, true);
          if (dirty) void pump();
        } else if (dirty) void pump().then(() => asking.holdMs === 0 && finish(waiter, true));
        else if (asking.holdMs === 0) finish(waiter, true);
      });
    },

    reserve(environmentId, functionId) {
      const lane = lanes.get(`${environmentId}\n${functionId}`);
      if (!lane || lane.dirty || draining || !mayClaim()) return undefined;
      return births.reserve(lane);
    },

    handOut,

    distrust(worker) {
      const desk = desks.of(worker);
      for (const lane of lanes.values())
        for (const waiter of [...lane.waiters]) if (waiter.desk === desk) finish(waiter, true);
      desk.spare = 0;
    },

    queued,

    async lookOnce() {
      const now = clock.now();
      desks.tidy(false);
      for (const [key, lane] of lanes) {
        if (lane.waiters.size > 0) lane.dirty = true;
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
  };
}

const noSteps = new Map<string, CompletedStep[]>();
