import type { Log } from "../../../kit/log.ts";
import type { Basics } from "../../../store/store.ts";
import { newLeaseToken } from "../jobs/rules.ts";
import type { ClaimedRow, FunctionDemand } from "../runs/execution/claim.ts";
import type { LimitedDemand } from "../runs/execution/claim-limited.ts";
import type { Handover } from "../runs/execution/leases.ts";
import type { Runs } from "../runs/service.ts";
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
const leaseOf = ({ hash, worker, poll, leaseUntil }: ClaimSlot) => ({
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

/** FNV-1a with a final mix: without it, ids that differ in their last letter only would score alike. */
function scoreOf(actorId: string, workerId: string): number {
  let hash = 0x811c9dc5;
  for (const text of [workerId, "\n", actorId])
    for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x7feb352d);
  return (hash ^ (hash >>> 15)) >>> 0;
}

/**
 * Rendezvous hashing: the same candidates always give the same worker, and when a worker comes or goes only
 * its own actors move. It keeps no state, so all nodes that know the same workers choose alike.
 */
export function nearest<Candidate extends { workerId: string }>(
  actorId: string,
  candidates: Iterable<Candidate>,
): Candidate | undefined {
  let best: Candidate | undefined;
  let bestScore = -1;
  for (const candidate of candidates) {
    const score = scoreOf(actorId, candidate.workerId);
    if (score > bestScore || (score === bestScore && candidate.workerId < best!.workerId)) {
      best = candidate;
      bestScore = score;
    }
  }
  return best;
}

/**
 * Polls and idle workers that may get a run that is about to be created, in order. An actor's run is offered
 * to one only: the nearest of those with a free slot.
 */
export function* offeredFirst(
  queue: FunctionQueue,
  actorId: string | null,
  { hasSlot, expects }: { hasSlot: (poll: HeldPoll) => boolean; expects: (worker: IdleWorker) => boolean },
): Iterable<HeldPoll | IdleWorker> {
  if (actorId === null) return yield* queue.polls;
  const chosen = nearest(actorId, [...[...queue.polls].filter(hasSlot), ...[...queue.idle].filter(expects)]);
  if (chosen) yield chosen;
}

/** The slots that one claim has for one worker. */
interface WorkerSlots {
  worker: IdleWorker;
  workerId: string;
  slots: ClaimSlot[];
}

/**
 * Assigns the rows of one queue. Actors go first, each to its nearest worker while that has a slot in this
 * claim. The other rows stay with the worker they were claimed for, or take what is left.
 */
function assignQueue(
  rows: readonly ClaimedRow[],
  slots: readonly ClaimSlot[],
  assigned: Map<ClaimedRow, ClaimSlot>,
): void {
  const free = new Map<IdleWorker, WorkerSlots>();
  for (const slot of slots) {
    const { worker } = slot;
    const candidate = free.get(worker) ?? { worker, workerId: worker.workerId, slots: [] };
    candidate.slots.push(slot);
    free.set(worker, candidate);
  }
  const assign = (row: ClaimedRow, candidate: WorkerSlots) => {
    assigned.set(row, candidate.slots.shift()!);
    if (candidate.slots.length === 0) free.delete(candidate.worker);
  };
  for (const row of rows) if (row.actor_id !== null) assign(row, nearest(row.actor_id, free.values())!);
  for (const row of rows)
    if (row.actor_id === null)
      assign(row, free.get(slots[row.rank - 1]!.worker) ?? free.values().next().value!);
}

/**
 * Sticky routing: runs of one actor go to the same worker while it can take them. A row keeps its fence. A
 * row that goes to another process than it was claimed for is first recorded as leased to that one in the
 * store, or its heartbeats would not renew the lease. Claims without actors cost nothing here.
 */
export async function assignToActors(
  rows: readonly ClaimedRow[],
  slotsOf: readonly (readonly ClaimSlot[])[],
  { runs, log }: { runs: Pick<Runs, "handOver">; log: Log },
): Promise<(row: ClaimedRow) => ClaimSlot> {
  const asClaimed = (row: ClaimedRow) => slotsOf[row.lane - 1]![row.rank - 1]!;
  const lanes = new Set(rows.filter((row) => row.actor_id !== null).map((row) => row.lane));
  if (lanes.size === 0) return asClaimed;
  const assigned = new Map<ClaimedRow, ClaimSlot>();
  for (const lane of lanes)
    assignQueue(
      rows.filter((row) => row.lane === lane),
      slotsOf[lane - 1]!,
      assigned,
    );
  const reassigned: Handover[] = [];
  for (const [row, slot] of assigned) {
    const claimed = asClaimed(row);
    if (slot.worker === claimed.worker) {
      const { token, hash, leaseUntil } = claimed;
      assigned.set(row, { ...slot, token, hash, leaseUntil });
      continue;
    }
    const { run_id: runId, execution_seq: executionSeq } = row;
    reassigned.push({ runId, executionSeq, leaseHash: claimed.hash, to: leaseOf(slot) });
  }
  try {
    if (reassigned.length > 0) await runs.handOver(reassigned);
  } catch (error) {
    // The jobs go where they were claimed for: late affinity is better than a lost lease.
    log.warn("dispatch.actors_not_assigned", { error });
    return asClaimed;
  }
  return (row) => assigned.get(row) ?? asClaimed(row);
}
