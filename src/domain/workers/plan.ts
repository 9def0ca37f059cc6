import type { Clock } from "../../kit/clock.ts";
import type { Ids } from "../../kit/ids.ts";
import type { LaneDemand } from "../runs/claim.ts";
import type { LimitedDemand } from "../runs/claim-limited.ts";
import type { Desks } from "./desks.ts";
import { newLeaseToken } from "./job.ts";
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
  for (const waiter of waiters) {
    waiter.looks++;
    const own = waiter.lanes.filter((lane) => lane.hasWork);
    welcome(own, fresh);
    own.sort((a, b) => served(a) - served(b));
    let credit = creditOf(waiter);
    for (let place = 0; place < own.length && credit > 0; place++) {
      const lane = own[place]!;
      const slots = slotsOf.get(lane) ?? [];
      const share = Math.min(Math.ceil(credit / (own.length - place)), lane.ask - slots.length);
      if (share <= 0) continue;
      credit -= share;
      for (let count = 0; count < share; count++)
        slots.push({ ...newLeaseToken(ids), waiter, desk: waiter.desk });
      waiter.pending += share;
      slotsOf.set(lane, slots);
    }
  }
  for (const lane of wanted) {
    if (slotsOf.has(lane)) continue;
    const slots = awaySlots(lane, { ids, desks });
    if (slots) slotsOf.set(lane, slots);
  }
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

/** Runs may wait for a worker that is on its way back. */
function awaySlots(lane: Lane, { ids, desks }: Pick<PlanDeps, "ids" | "desks">): Slot[] | undefined {
  const desk = expectedAt(lane, desks);
  if (!desk) return undefined;
  const share = Math.min(desks.creditOf(desk), lane.ask);
  desk.pending += share;
  return Array.from({ length: share }, () => ({ ...newLeaseToken(ids), desk, waiter: undefined }));
}
