import type { Clock } from "../../kit/clock.ts";
import type { Ids } from "../../kit/ids.ts";
import { pollJobsMax } from "../../kit/limits.ts";
import type { Log } from "../../kit/log.ts";
import type { ClaimedRow, LaneDemand } from "../runs/claim.ts";
import type { NewLease, NewRun } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import { type Job, type JobEvent, jobOfBirth, jobOfClaim, leaseHashOf, newLeaseToken } from "./job.ts";

/** A worker that asks this node for jobs. */
export interface Asking {
  environmentId: string;
  workerId: string;
  functionIds: readonly string[];
  /** Free slots; never handed more. */
  available: number;
  /** How long to wait for a first job; 0 looks once. */
  holdMs: number;
  /** The worker went away. */
  signal: AbortSignal;
}

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
  reserve(environmentId: string, functionId: string): Reservation | undefined;
  /** Runs were queued, here or (by hint) on another node. */
  queued(lanes: readonly { environmentId: string; functionId: string }[]): void;
  /** The tick of loop `workers.dispatch`: looks everywhere, whatever hints were lost. */
  lookOnce(): Promise<void>;
  /** Answers all held polls with nothing, and every later one at once. */
  drain(): void;
  waiting(): number;
}

interface Waiter extends Asking {
  lanes: Lane[];
  jobs: Job[];
  /** Slots that are promised to a claim or a birth under way. */
  pending: number;
  /** Takes no further promise: it is being answered. */
  closed: boolean;
  answered: boolean;
  settle: () => void;
}

interface Lane {
  environmentId: string;
  functionId: string;
  /** May hold queued runs that nobody here has tried to claim. */
  dirty: boolean;
  /** Rows before this are taken; see LaneDemand.since. */
  since: number;
  /** When the lane was last looked at from its very start. */
  wholeAt: number;
  lookedAt: number;
  waiters: Set<Waiter>;
}

export interface DispatcherDeps {
  runs: Pick<Runs, "claim" | "completedSteps" | "release">;
  clock: Clock;
  ids: Ids;
  log: Log;
  leaseMs: number;
}

/** A claim looks from the lane's start at least this often, whatever its watermark says. */
const wholeEveryMs = 2_000;
/** Rows may become visible this much after their time: a watermark stays behind by it. */
const lateMsMax = 5_000;
/** A lane nobody has looked at for this long is looked at on the next poll. */
const lookEveryMs = 1_000;

export function openDispatcher(deps: DispatcherDeps): Dispatcher {
  const { runs, clock, ids, log, leaseMs } = deps;
  const lanes = new Map<string, Lane>();
  let pumping: Promise<void> | undefined;
  let draining = false;
  let turn = 0;

  const laneOf = (environmentId: string, functionId: string): Lane => {
    const key = `${environmentId}\n${functionId}`;
    let lane = lanes.get(key);
    if (!lane) {
      lane = {
        environmentId,
        functionId,
        dirty: true,
        since: 0,
        wholeAt: 0,
        lookedAt: 0,
        waiters: new Set(),
      };
      lanes.set(key, lane);
    }
    return lane;
  };

  const creditOf = (waiter: Waiter) =>
    waiter.closed ? 0 : waiter.available - waiter.pending - waiter.jobs.length;

  /** Answers a waiter that has something, or has nothing to wait for, once no promise to it is open. */
  const finish = (waiter: Waiter, final: boolean) => {
    if (waiter.jobs.length > 0 || final) waiter.closed = true;
    if (!waiter.closed || waiter.pending > 0 || waiter.answered) return;
    waiter.answered = true;
    for (const lane of waiter.lanes) lane.waiters.delete(waiter);
    waiter.settle();
  };

  /** The worker has gone before it got these: they go back to the queue at once. Should that fail, their leases end. */
  const giveBack = (jobs: readonly Job[]) => {
    for (const job of jobs)
      runs
        .release({ ...job, leaseHash: leaseHashOf(job.leaseToken) })
        .then(() => queued([job]))
        .catch((error: unknown) =>
          log.warn("job could not be given back", { runId: job.runId, error: String(error) }),
        );
  };

  function queued(list: readonly { environmentId: string; functionId: string }[]): void {
    let wanted = false;
    for (const { environmentId, functionId } of list) {
      const lane = lanes.get(`${environmentId}\n${functionId}`);
      if (!lane) continue;
      lane.dirty = true;
      wanted ||= lane.waiters.size > 0;
    }
    if (wanted) void pump();
  }

  /** Shares each waiter's free slots out over its dirty lanes, so that a lane with a long queue does not starve the rest. */
  function plan(): { demands: (LaneDemand & { lane: Lane })[]; slots: Slot[][] } {
    const slotsOf = new Map<Lane, Slot[]>();
    const waiters = new Set<Waiter>();
    for (const lane of lanes.values()) if (lane.dirty) for (const waiter of lane.waiters) waiters.add(waiter);
    turn++;
    for (const waiter of waiters) {
      const dirty = waiter.lanes.filter((lane) => lane.dirty);
      let credit = creditOf(waiter);
      for (let place = 0; place < dirty.length && credit > 0; place++) {
        const lane = dirty[(place + turn) % dirty.length]!;
        const share = Math.ceil(credit / (dirty.length - place));
        credit -= share;
        const slots = slotsOf.get(lane) ?? [];
        for (let count = 0; count < share; count++) slots.push({ waiter, ...newLeaseToken(ids) });
        waiter.pending += share;
        slotsOf.set(lane, slots);
      }
    }
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
        slots: slots.map(({ hash, waiter }) => ({ leaseHash: hash, workerId: waiter.workerId })),
      };
    });
    return { demands, slots: [...slotsOf.values()] };
  }

  async function claimOnce(): Promise<boolean> {
    const { demands, slots } = plan();
    if (demands.length === 0) return false;
    const involved = new Set(slots.flat().map((slot) => slot.waiter));
    try {
      const now = clock.now();
      const leaseUntil = now + leaseMs;
      const rows = await runs.claim({ now, leaseUntil, lanes: demands });
      await hand(rows, demands, slots, leaseUntil);
    } catch (error) {
      for (const { lane } of demands) lane.dirty = true;
      throw error;
    } finally {
      for (const slot of slots.flat()) slot.waiter.pending--;
      for (const waiter of involved) finish(waiter, waiter.holdMs === 0);
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
    const steps = resumed.length > 0 ? await runs.completedSteps(resumed) : undefined;
    const taken = new Map<number, number>();
    for (const row of rows) {
      const { waiter, token } = slots[row.lane - 1]![row.rank - 1]!;
      waiter.jobs.push(jobOfClaim(row, token, leaseUntil, steps?.get(row.run_id) ?? []));
      taken.set(row.lane, (taken.get(row.lane) ?? 0) + 1);
      const { lane } = demands[row.lane - 1]!;
      lane.since = Math.max(lane.since, row.queued_at - lateMsMax);
    }
    for (const [at, { lane, slots: wanted }] of demands.entries())
      if (taken.get(at + 1) === wanted.length) lane.dirty = true;
  }

  /** Claims as long as there is a lane to look at and a slot to fill. One claim at a time: each takes all that wait. */
  function pump(): Promise<void> {
    pumping ??= (async () => {
      try {
        while (await claimOnce());
      } catch (error) {
        log.warn("claim failed", { error: String(error) });
      } finally {
        pumping = undefined;
      }
    })();
    return pumping;
  }

  return {
    take(asking) {
      return new Promise<Job[]>((resolve) => {
        const lanesAsked = asking.functionIds.map((id) => laneOf(asking.environmentId, id));
        const waiter: Waiter = {
          ...asking,
          available: Math.min(asking.available, pollJobsMax),
          lanes: lanesAsked,
          jobs: [],
          pending: 0,
          closed: false,
          answered: false,
          settle: () => {
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
        if (waiter.available <= 0 || draining || asking.signal.aborted) return finish(waiter, true);
        const now = clock.now();
        for (const lane of lanesAsked) {
          lane.waiters.add(waiter);
          if (now - lane.lookedAt >= lookEveryMs) lane.dirty = true;
        }
        if (lanesAsked.some((lane) => lane.dirty))
          void pump().then(() => asking.holdMs === 0 && finish(waiter, true));
        else if (asking.holdMs === 0) finish(waiter, true);
      });
    },

    reserve(environmentId, functionId) {
      const lane = lanes.get(`${environmentId}\n${functionId}`);
      if (!lane || lane.dirty || draining) return undefined;
      for (const waiter of lane.waiters) {
        if (creditOf(waiter) <= 0) continue;
        waiter.pending++;
        // The next birth asks another worker first.
        lane.waiters.delete(waiter);
        lane.waiters.add(waiter);
        const { token, hash } = newLeaseToken(ids);
        const end = () => {
          waiter.pending--;
          finish(waiter, false);
        };
        const expiresAt = clock.now() + leaseMs;
        return {
          lease: { hash, workerId: waiter.workerId, expiresAt },
          deliver: (run, event) => {
            waiter.jobs.push(jobOfBirth(run, { token, expiresAt }, event));
            // Births of one flush are delivered in one go: the answer leaves after the last of them.
            queueMicrotask(end);
          },
          drop: end,
        };
      }
      return undefined;
    },

    queued,

    async lookOnce() {
      const now = clock.now();
      for (const [key, lane] of lanes) {
        if (lane.waiters.size > 0) lane.dirty = true;
        else if (now - lane.lookedAt > 60 * lookEveryMs) lanes.delete(key);
      }
      await pump();
    },

    drain() {
      draining = true;
      for (const lane of lanes.values()) for (const waiter of [...lane.waiters]) finish(waiter, true);
    },

    waiting: () => new Set([...lanes.values()].flatMap((lane) => [...lane.waiters])).size,
  };
}

interface Slot {
  waiter: Waiter;
  token: string;
  hash: string;
}
