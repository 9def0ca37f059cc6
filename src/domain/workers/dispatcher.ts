import type { Clock } from "../../kit/clock.ts";
import type { Ids } from "../../kit/ids.ts";
import { pollJobsMax } from "../../kit/limits.ts";
import { noTracer, type Tracer } from "../../kit/trace.ts";
import type { ClaimedRow, LaneDemand } from "../runs/claim.ts";
import type { CompletedStep, NewLease, NewRun } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import { askedFirst, openSeating } from "./actors.ts";
import { type Desk, openDesks } from "./desks.ts";
import { type GiveBackDeps, openGiveBack } from "./give-back.ts";
import { type Job, type JobEvent, jobOfBirth, jobOfClaim, newLeaseToken } from "./job.ts";
import { type Asking, askMin, type Lane, newLane, type Slot, type Waiter } from "./lanes.ts";

/** A place at a waiting worker, kept for a run that is about to be created. */
export interface Reservation {
  lease: NewLease;
  /** The run is committed: hand it over with the event it was born of. */
  deliver(run: NewRun, event: JobEvent): void;
  /** It never came to be. */
  drop(): void;
}

export interface Dispatcher {
  take(asking: Asking): Promise<Job[]>;
  /** A lease for a run born now, when a worker waits here and the lane has no older work. */
  reserve(run: Pick<NewRun, "environmentId" | "functionId" | "actorId">): Reservation | undefined;
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
  runs: Pick<Runs, "claim" | "completedSteps" | "release" | "handOver">;
  clock: Clock;
  ids: Ids;
  leaseMs: number;
  /** False while this node is not sure of the time. */
  mayClaim: () => boolean;
  tracer?: Tracer;
}

/** A claim looks from the lane's start at least this often, whatever its watermark says. */
const wholeEveryMs = 2_000;
/** Rows may become visible this much after their time: a watermark stays behind by it. */
const lateMsMax = 5_000;
/** A lane nobody has looked at for this long is looked at on the next poll. */
const lookEveryMs = 1_000;

export function openDispatcher(deps: DispatcherDeps): Dispatcher {
  const { runs, clock, ids, log, leaseMs, mayClaim, tracer = noTracer } = deps;
  const { giveBack, underWay } = openGiveBack(deps);
  const seat = openSeating(deps);
  const lanes = new Map<string, Lane>();
  let pumping: Promise<void> | undefined;
  /** Asked to pump while pumping. */
  let again = false;
  let draining = false;
  let turn = 0;
  /** Workers that births were delivered to and that are not answered yet. */
  const born = new Set<Waiter>();

  const laneOf = (environmentId: string, functionId: string): Lane => {
    const key = `${environmentId}\n${functionId}`;
    let lane = lanes.get(key);
    if (!lane) {
      lane = newLane(environmentId, functionId);
      lanes.set(key, lane);
    }
    return lane;
  };

  const creditOf = (waiter: Waiter) =>
    waiter.closed ? 0 : waiter.available - waiter.pending - waiter.jobs.length - waiter.desk.pending;

  const hasSlot = (waiter: Waiter) => creditOf(waiter) > 0;
  const desks = openDesks(clock, giveBack);

  /** From now on the waiter is being answered: its worker counts as on its way back. */
  const shut = (waiter: Waiter) => {
    waiter.closed = true;
    // After an empty answer workers pause for a second (contract.md 1.6).
    const asksAgain = waiter.reports || waiter.jobs.length + waiter.pending > 0;
    const comesBack = asksAgain && waiter.available > 0 && !draining && !waiter.signal.aborted;
    if (comesBack) desks.leave(waiter.desk, waiter.available - waiter.jobs.length - waiter.pending);
    for (const lane of waiter.lanes) {
      lane.waiters.delete(waiter);
      if (comesBack) lane.away.add(waiter.desk);
    }
  };

  /** Answers a waiter that has something, or has nothing to wait for, once no promise to it is open. */
  const finish = (waiter: Waiter, final: boolean) => {
    if (!waiter.closed && (waiter.jobs.length > 0 || final)) shut(waiter);
    if (!waiter.closed || waiter.pending > 0 || waiter.answered) return;
    waiter.answered = true;
    waiter.settle();
  };

  const handOut = () => {
    for (const waiter of born) finish(waiter, false);
    born.clear();
  };

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

  /** Shares each waiter's free slots out over its dirty lanes, so that a lane with a long queue does not starve the rest. */
  function plan(): { demands: (LaneDemand & { lane: Lane })[]; slots: Slot[][]; waiters: Set<Waiter> } {
    const slotsOf = new Map<Lane, Slot[]>();
    const waiters = new Set<Waiter>();
    for (const lane of lanes.values()) if (lane.dirty) for (const waiter of lane.waiters) waiters.add(waiter);
    turn++;
    for (const waiter of waiters) {
      waiter.looks++;
      const dirty = waiter.lanes.filter((lane) => lane.dirty);
      let credit = creditOf(waiter);
      for (let place = 0; place < dirty.length && credit > 0; place++) {
        const lane = dirty[(place + turn) % dirty.length]!;
        const slots = slotsOf.get(lane) ?? [];
        const share = Math.min(Math.ceil(credit / (dirty.length - place)), lane.ask - slots.length);
        if (share <= 0) continue;
        credit -= share;
        for (let count = 0; count < share; count++)
          slots.push({ ...newLeaseToken(ids), waiter, desk: waiter.desk });
        waiter.pending += share;
        slotsOf.set(lane, slots);
      }
    }
    for (const lane of lanes.values())
      if (lane.dirty && !slotsOf.has(lane)) planAway(lane, (slots) => slotsOf.set(lane, slots));
    const now = clock.now();
    const demands = [...slotsOf].map(([lane, slots]) => {
      const whole = now - lane.wholeAt >= wholeEveryMs;
      if (whole) lane.wholeAt = now;
      lane.dirty = false;
      lane.lookedAt = now;
      return {
        lane,
        environmentId: lane.environmentId,
        functionId: lane.functionId,
        since: whole ? 0 : lane.since,
        slots: slots.map(({ hash, desk }) => ({ leaseHash: hash, workerId: desk.workerId })),
      };
    });
    return { demands, slots: [...slotsOf.values()], waiters };
  }

  async function claimOnce(): Promise<boolean> {
    if (!mayClaim()) return false;
    const { demands, slots, waiters } = plan();
    if (demands.length === 0) return false;
    const asked = new Set(slots.flat().flatMap((slot) => slot.waiter ?? []));
    const span = tracer.start("claim", "client");
    span.set("svc.claim.lanes", demands.length);
    let failed: string | undefined;
    try {
      const now = clock.now();
      const leaseUntil = now + leaseMs;
      const rows = await runs.claim({ now, leaseUntil, lanes: demands });
      span.set("svc.claim.runs", rows.length);
      await hand(rows, demands, slots, leaseUntil);
    } catch (error) {
      failed = "failed";
      for (const { lane } of demands) lane.dirty = true;
      throw error;
    } finally {
      span.end(failed);
      for (const slot of slots.flat()) (slot.waiter ?? slot.desk).pending--;
      // Who does not hold is answered by the claim that asked for it, or by the second that had no slot left for it.
      for (const waiter of waiters)
        finish(waiter, waiter.holdMs === 0 && (asked.has(waiter) || waiter.looks > 1));
      handOut();
    }
    return true;
  }

  async function hand(
    rows: readonly ClaimedRow[],
    demands: readonly { lane: Lane; slots: readonly unknown[] }[],
    slots: readonly Slot[][],
    leaseUntil: number,
  ): Promise<void> {
    const resumed = rows.filter((row) => row.step_count > 0).map((row) => row.run_id);
    const unread = (error: unknown): undefined => {
      log.warn("steps could not be read", { runIds: resumed, error: String(error) });
    };
    const steps = resumed.length === 0 ? noSteps : await runs.completedSteps(resumed).catch(unread);
    const seatOf = await seat(rows, slots);
    const taken = new Map<number, number>();
    for (const row of rows) {
      const { token } = slots[row.lane - 1]![row.rank - 1]!;
      const { waiter, desk } = seatOf(row);
      const job = jobOfClaim(row, token, leaseUntil, steps?.get(row.run_id) ?? []);
      // Without knowing what is done already nobody may begin: it goes back.
      if (row.step_count > 0 && !steps) giveBack([job]);
      else if (waiter) waiter.jobs.push(job);
      else leaveAt(desk, demands[row.lane - 1]!.lane, job);
      taken.set(row.lane, (taken.get(row.lane) ?? 0) + 1);
      const { lane } = demands[row.lane - 1]!;
      lane.since = Math.max(lane.since, row.queued_at - lateMsMax);
    }
    for (const [at, { lane, slots: wanted }] of demands.entries()) {
      const count = taken.get(at + 1) ?? 0;
      if (count === wanted.length) lane.dirty = true;
      lane.ask = count === wanted.length ? Math.min(pollJobsMax, lane.ask * 2) : Math.max(askMin, 2 * count);
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

  /** Workers that were answered a moment ago will ask again: runs may wait for them at their desks. */
  const expected = (lane: Lane): Desk | undefined => {
    for (const desk of lane.away) {
      if (desks.expects(desk)) return desk;
      lane.away.delete(desk);
    }
    return undefined;
  };

  function planAway(lane: Lane, use: (slots: Slot[]) => void): void {
    const desk = expected(lane);
    if (!desk) return;
    const share = Math.min(desks.creditOf(desk), lane.ask);
    desk.pending += share;
    use(Array.from({ length: share }, () => ({ ...newLeaseToken(ids), desk, waiter: undefined })));
  }

  /** For its worker to fetch; or handed over, when the worker has come back meanwhile. */
  function leaveAt(desk: Desk, lane: Lane, job: Job): void {
    for (const waiter of lane.waiters) {
      // Not creditOf: what is promised at the desk is this very job.
      if (waiter.desk !== desk || waiter.available - waiter.pending - waiter.jobs.length <= 0) continue;
      waiter.jobs.push(job);
      born.add(waiter);
      return;
    }
    if (draining) giveBack([job]);
    else desks.put(desk, job);
  }

  function reserveAway(lane: Lane, desk = expected(lane)): Reservation | undefined {
    if (!desk) return undefined;
    desk.pending++;
    const { token, hash } = newLeaseToken(ids);
    const expiresAt = clock.now() + leaseMs;
    return {
      lease: { hash, workerId: desk.workerId, expiresAt },
      deliver: (run, event) => {
        desk.pending--;
        leaveAt(desk, lane, jobOfBirth(run, { token, expiresAt }, event));
      },
      drop: () => {
        desk.pending--;
      },
    };
  }

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

    reserve({ environmentId, functionId, actorId }) {
      const lane = lanes.get(`${environmentId}\n${functionId}`);
      if (!lane || lane.dirty || draining || !mayClaim()) return undefined;
      for (const waiter of askedFirst(lane, actorId, { hasSlot, expects: desks.expects })) {
        if (!("lanes" in waiter)) return reserveAway(lane, waiter);
        if (!hasSlot(waiter)) continue;
        waiter.pending++;
        // The next birth asks another worker first.
        lane.waiters.delete(waiter);
        lane.waiters.add(waiter);
        const { token, hash } = newLeaseToken(ids);
        const expiresAt = clock.now() + leaseMs;
        return {
          lease: { hash, workerId: waiter.workerId, expiresAt },
          deliver: (run, event) => {
            waiter.pending--;
            waiter.jobs.push(jobOfBirth(run, { token, expiresAt }, event));
            born.add(waiter);
          },
          drop: () => {
            waiter.pending--;
            finish(waiter, false);
          },
        };
      }
      return reserveAway(lane);
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
