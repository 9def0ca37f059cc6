import type { Clock } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";
import { newLeaseToken } from "../jobs/rules.ts";
import type { LaneDemand } from "../runs/execution/claim.ts";
import type { LimitedDemand } from "../runs/execution/claim-limited.ts";
import type { Desk, Desks } from "./desks.ts";
import { expectedAt, isClaimable, type Lane, type Slot, type Waiter } from "./lanes.ts";
import { type Limited, nextLanes } from "./limited.ts";
import { creditOf } from "./waiters.ts";

/** A claim looks from the lane's start at least this often, whatever its watermark says. */
const wholeEveryMs = 2_000;

export interface Planned {
  lane: Lane;
  /** Where each slot's run goes. */
  places: readonly Slot[];
}

export interface Plan {
  demands: (LaneDemand & Planned)[];
  /** Of functions with a limit. */
  limited: (LimitedDemand & Planned & { state: Limited })[];
  /** Who waits for one of the lanes, whether it had a slot left for it or not. */
  waiters: Set<Waiter>;
}

export interface PlanDeps {
  clock: Clock;
  ids: Ids;
  desks: Desks;
}

/**
 * Shares each waiter's free slots out over its lanes that have work, so that a lane with a long queue does not starve the
 * rest: who was served least is first, and nobody gets more than its part while others want theirs.
 */
export function planClaim(lanes: Iterable<Lane>, deps: PlanDeps): Plan {
  const { ids, desks } = deps;
  const slotsOf = new Map<Lane, Slot[]>();
  const waiters = new Set<Waiter>();
  const wanted: Lane[] = [];
  const fresh = new Set<Lane>();
  for (const lane of lanes) {
    const hadWork = lane.hasWork;
    lane.hasWork = isClaimable(lane);
    if (!lane.hasWork) continue;
    wanted.push(lane);
    if (!hadWork) fresh.add(lane);
    for (const waiter of lane.waiters) waiters.add(waiter);
  }
  const served = (lane: Lane) => lane.served + (slotsOf.get(lane)?.length ?? 0);
  const shareOut = (own: Lane[], room: number, place: () => Slot): number => {
    welcome(own, fresh);
    own.sort((a, b) => served(a) - served(b));
    let credit = room;
    for (const [at, lane] of own.entries()) {
      if (credit <= 0) break;
      const slots = slotsOf.get(lane) ?? [];
      const share = Math.min(Math.ceil(credit / (own.length - at)), lane.ask - slots.length);
      if (share <= 0) continue;
      credit -= share;
      for (let count = 0; count < share; count++) slots.push(place());
      slotsOf.set(lane, slots);
    }
    return room - credit;
  };
  for (const waiter of waiters) {
    waiter.looks++;
    const own = waiter.lanes.filter((lane) => lane.hasWork);
    const { desk } = waiter;
    waiter.pending += shareOut(own, creditOf(waiter), () => ({ ...newLeaseToken(ids), waiter, desk }));
  }
  for (const [desk, own] of expectedDesks(wanted, slotsOf, desks))
    desk.pending += shareOut(own, desks.creditOf(desk), () => ({
      ...newLeaseToken(ids),
      desk,
      waiter: undefined,
    }));
  return { ...demandsOf(slotsOf, deps), waiters };
}

/**
 * Lanes that have work again stand where the least served of their neighbours stands, or a turn before it: they are soon
 * served, and get nothing for the time when they wanted nothing.
 */
function welcome(own: readonly Lane[], fresh: ReadonlySet<Lane>): void {
  let least = Number.POSITIVE_INFINITY;
  for (const lane of own) if (!fresh.has(lane)) least = Math.min(least, lane.served);
  if (least === Number.POSITIVE_INFINITY) return;
  for (const lane of own) if (fresh.has(lane)) lane.served = Math.max(lane.served, least - 1);
}

function demandsOf(
  slotsOf: ReadonlyMap<Lane, Slot[]>,
  { clock }: PlanDeps,
): Pick<Plan, "demands" | "limited"> {
  const now = clock.now();
  const plan: Pick<Plan, "demands" | "limited"> = { demands: [], limited: [] };
  for (const [lane, places] of slotsOf) {
    const { environmentId, functionId } = lane;
    const slots = places.map(({ hash, desk }) => ({ leaseHash: hash, workerId: desk.workerId }));
    const demand = { lane, places, environmentId, functionId, slots };
    lane.lookedAt = now;
    if (lane.limited) {
      plan.limited.push({ ...demand, state: lane.limited, laneIds: nextLanes(lane.limited, slots.length) });
      continue;
    }
    const whole = now - lane.wholeAt >= wholeEveryMs;
    if (whole) lane.wholeAt = now;
    lane.dirty = false;
    plan.demands.push({ ...demand, since: whole ? 0 : lane.since });
  }
  return plan;
}

/** Lanes that got no slot of a waiter, by a worker on its way back: runs may wait for it. */
function expectedDesks(
  wanted: readonly Lane[],
  slotsOf: ReadonlyMap<Lane, Slot[]>,
  desks: Desks,
): Map<Desk, Lane[]> {
  const lanesOf = new Map<Desk, Lane[]>();
  for (const lane of wanted) {
    const desk = slotsOf.has(lane) ? undefined : expectedAt(lane, desks);
    if (!desk) continue;
    const own = lanesOf.get(desk);
    if (own) own.push(lane);
    else lanesOf.set(desk, [lane]);
  }
  return lanesOf;
}
