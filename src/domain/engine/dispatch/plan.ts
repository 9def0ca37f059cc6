import type { Basics } from "../../../store/store.ts";
import { newLeaseToken } from "../jobs/rules.ts";
import type { FunctionDemand } from "../runs/execution/claim.ts";
import type { LimitedDemand } from "../runs/execution/claim-limited.ts";
import type { IdleWorker, IdleWorkers } from "./idle-workers.ts";
import { type LimitedLanes, nextLanes } from "./limited-lanes.ts";
import { creditOf } from "./polls.ts";
import { type ClaimSlot, expectedWorker, type FunctionQueue, type HeldPoll, isClaimable } from "./queues.ts";

export interface PlannedQueue {
  queue: FunctionQueue;
  /** In the order of the slots that the claim asks for. */
  claimSlots: readonly ClaimSlot[];
}

export interface ClaimPlan {
  /** Functions without a concurrency limit. */
  demands: (FunctionDemand & PlannedQueue)[];
  /** Functions with one. */
  limited: (LimitedDemand & PlannedQueue & { state: LimitedLanes })[];
  /** Every poll that waits for one of the queues, with or without a slot in this claim. */
  polls: Set<HeldPoll>;
}

export interface PlanDeps extends Basics<"clock" | "ids"> {
  idleWorkers: IdleWorkers;
}

/**
 * Divides the free slots of each poll evenly among its queues that have work, the least served queue first.
 * Without that, one function with a long queue would take every slot and starve the others.
 */
export function planClaim(queues: Iterable<FunctionQueue>, deps: PlanDeps): ClaimPlan {
  const { clock, ids, idleWorkers } = deps;
  const now = clock.now();
  const slotOf = (worker: IdleWorker, poll: HeldPoll | undefined): ClaimSlot => ({
    ...newLeaseToken(ids, worker.holder),
    worker,
    poll,
    leaseUntil: now + worker.leaseMs,
  });
  const slotsOf = new Map<FunctionQueue, ClaimSlot[]>();
  const polls = new Set<HeldPoll>();
  const wanted: FunctionQueue[] = [];
  const fresh = new Set<FunctionQueue>();
  for (const queue of queues) {
    const hadWork = queue.hasWork;
    queue.hasWork = isClaimable(queue);
    if (!queue.hasWork) continue;
    wanted.push(queue);
    if (!hadWork) fresh.add(queue);
    for (const poll of queue.polls) polls.add(poll);
  }
  const served = (queue: FunctionQueue) => queue.served + (slotsOf.get(queue)?.length ?? 0);
  const shareOut = (own: FunctionQueue[], room: number, newSlot: () => ClaimSlot): number => {
    catchUpServed(own, fresh);
    own.sort((a, b) => served(a) - served(b));
    let credit = room;
    for (const [at, queue] of own.entries()) {
      if (credit <= 0) break;
      const slots = slotsOf.get(queue) ?? [];
      const share = Math.min(Math.ceil(credit / (own.length - at)), queue.claimSize - slots.length);
      if (share <= 0) continue;
      credit -= share;
      for (let count = 0; count < share; count++) slots.push(newSlot());
      slotsOf.set(queue, slots);
    }
    return room - credit;
  };
  for (const poll of polls) {
    poll.looks++;
    const own = poll.queues.filter((queue) => queue.hasWork);
    const { worker } = poll;
    poll.pending += shareOut(own, creditOf(poll), () => slotOf(worker, poll));
  }
  for (const [worker, own] of expectedWorkers(wanted, slotsOf, idleWorkers))
    worker.pending += shareOut(own, idleWorkers.creditOf(worker), () => slotOf(worker, undefined));
  return { ...demandsOf(slotsOf, deps), polls };
}

/**
 * A queue that has work again starts one run behind the least served queue beside it: it is served soon, but
 * does not catch up on the time when it was empty.
 */
function catchUpServed(own: readonly FunctionQueue[], fresh: ReadonlySet<FunctionQueue>): void {
  let least = Number.POSITIVE_INFINITY;
  for (const queue of own) if (!fresh.has(queue)) least = Math.min(least, queue.served);
  if (least === Number.POSITIVE_INFINITY) return;
  for (const queue of own) if (fresh.has(queue)) queue.served = Math.max(queue.served, least - 1);
}

/** What the store notes of the lease that goes to a slot. */
export const leaseOf = ({ hash, worker, poll, leaseUntil }: ClaimSlot) => ({
  leaseHash: hash,
  workerId: worker.workerId,
  deployment: poll ? poll.deployment : worker.deployment,
  leaseUntil,
});

function demandsOf(
  slotsOf: ReadonlyMap<FunctionQueue, ClaimSlot[]>,
  { clock }: PlanDeps,
): Pick<ClaimPlan, "demands" | "limited"> {
  const now = clock.now();
  const plan: Pick<ClaimPlan, "demands" | "limited"> = { demands: [], limited: [] };
  for (const [queue, claimSlots] of slotsOf) {
    const { environmentId, functionId } = queue;
    const slots = claimSlots.map(leaseOf);
    const demand = { queue, claimSlots, environmentId, functionId, slots };
    queue.lookedAt = now;
    if (queue.limited) {
      const laneIds = nextLanes(queue.limited, slots.length);
      const { limited: state, pin } = queue;
      plan.limited.push({ ...demand, state, laneIds, paced: state.paced, pin });
      continue;
    }
    queue.dirty = false;
    plan.demands.push({ ...demand, since: queue.wholeLooks.begins(now) ? 0 : queue.since });
  }
  return plan;
}

/** Idle workers for the queues that got no slot of a poll. The claimed jobs are kept for their next poll. */
function expectedWorkers(
  wanted: readonly FunctionQueue[],
  slotsOf: ReadonlyMap<FunctionQueue, ClaimSlot[]>,
  idleWorkers: IdleWorkers,
): Map<IdleWorker, FunctionQueue[]> {
  const queuesOf = new Map<IdleWorker, FunctionQueue[]>();
  for (const queue of wanted) {
    const worker = slotsOf.has(queue) ? undefined : expectedWorker(queue, idleWorkers);
    if (!worker) continue;
    const own = queuesOf.get(worker);
    if (own) own.push(queue);
    else queuesOf.set(worker, [queue]);
  }
  return queuesOf;
}
