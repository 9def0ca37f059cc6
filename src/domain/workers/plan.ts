import type { Clock } from "../../kit/clock.ts";
import type { Ids } from "../../kit/ids.ts";
import type { LaneDemand } from "../runs/claim.ts";
import type { Desks } from "./desks.ts";
import { newLeaseToken } from "./job.ts";
import { expectedAt, type Lane, type Slot, type Waiter } from "./lanes.ts";
import { creditOf } from "./waiters.ts";

/** A claim looks from the lane's start at least this often, whatever its watermark says. */
const wholeEveryMs = 2_000;

export interface Plan {
  demands: (LaneDemand & { lane: Lane; places: readonly Slot[] })[];
  /** Who waits for one of the lanes, whether it had a slot left for it or not. */
  waiters: Set<Waiter>;
}

export interface PlanDeps {
  clock: Clock;
  ids: Ids;
  desks: Desks;
}

/** Shares each waiter's free slots out over its dirty lanes, so that a lane with a long queue does not starve the rest. */
export function planClaim(lanes: Iterable<Lane>, turn: number, { clock, ids, desks }: PlanDeps): Plan {
  const slotsOf = new Map<Lane, Slot[]>();
  const waiters = new Set<Waiter>();
  const dirtyLanes = Array.from(lanes).filter((lane) => lane.dirty);
  for (const lane of dirtyLanes) for (const waiter of lane.waiters) waiters.add(waiter);
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
  for (const lane of dirtyLanes) {
    if (slotsOf.has(lane)) continue;
    const slots = awaySlots(lane, { ids, desks });
    if (slots) slotsOf.set(lane, slots);
  }
  const now = clock.now();
  const demands = [...slotsOf].map(([lane, places]) => {
    const whole = now - lane.wholeAt >= wholeEveryMs;
    if (whole) lane.wholeAt = now;
    lane.dirty = false;
    lane.lookedAt = now;
    return {
      lane,
      places,
      environmentId: lane.environmentId,
      functionId: lane.functionId,
      since: whole ? 0 : lane.since,
      slots: places.map(({ hash, desk }) => ({ leaseHash: hash, workerId: desk.workerId })),
    };
  });
  return { demands, waiters };
}

/** Runs may wait for a worker that is on its way back. */
function awaySlots(lane: Lane, { ids, desks }: Pick<PlanDeps, "ids" | "desks">): Slot[] | undefined {
  const desk = expectedAt(lane, desks);
  if (!desk) return undefined;
  const share = Math.min(desks.creditOf(desk), lane.ask);
  desk.pending += share;
  return Array.from({ length: share }, () => ({ ...newLeaseToken(ids), desk, waiter: undefined }));
}
