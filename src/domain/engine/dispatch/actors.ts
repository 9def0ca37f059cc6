import type { Log } from "../../../kit/log.ts";
import type { ClaimedRow } from "../runs/execution/claim.ts";
import type { Handover } from "../runs/execution/leases.ts";
import type { Runs } from "../runs/service.ts";
import type { IdleWorker } from "./idle-workers.ts";
import { leaseOf } from "./plan.ts";
import type { ClaimSlot, FunctionQueue, HeldPoll } from "./queues.ts";

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
