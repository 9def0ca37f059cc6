import type { Log } from "../../../kit/log.ts";
import type { ClaimedRow } from "../runs/execution/claim.ts";
import type { Runs } from "../runs/service.ts";
import type { IdleWorker } from "./idle-workers.ts";
import type { ClaimSlot, FunctionQueue, HeldPoll } from "./queues.ts";

/** FNV-1a with a last mixing, so that ids which differ in their last letter are far apart. */
function scoreOf(actorId: string, workerId: string): number {
  let hash = 0x811c9dc5;
  for (const text of [workerId, "\n", actorId])
    for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x7feb352d);
  return (hash ^ (hash >>> 15)) >>> 0;
}

/**
 * Rendezvous hashing: of those who could take an actor's run now, always the same one; when a worker comes or goes, only
 * its own actors move. Nothing is remembered, so every node that knows the same workers chooses alike.
 */
export function nearest<Place extends { workerId: string }>(
  actorId: string,
  candidates: Iterable<Place>,
): Place | undefined {
  let best: Place | undefined;
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

/** Who is asked to take a run that is born now; an actor's goes to the nearest of those that have a slot, here or on the way back. */
export function* offeredFirst(
  queue: FunctionQueue,
  actorId: string | null,
  { hasSlot, expects }: { hasSlot: (poll: HeldPoll) => boolean; expects: (worker: IdleWorker) => boolean },
): Iterable<HeldPoll | IdleWorker> {
  if (actorId === null) return yield* queue.polls;
  const chosen = nearest(actorId, [...[...queue.polls].filter(hasSlot), ...[...queue.away].filter(expects)]);
  if (chosen) yield chosen;
}

/** Where the rows of one lane go: actors to their nearest worker while it has a slot in this claim, the others as claimed. */
function assignQueue(
  rows: readonly ClaimedRow[],
  slots: readonly ClaimSlot[],
  assigned: Map<ClaimedRow, ClaimSlot>,
): void {
  const free = new Map<string, { workerId: string; slots: ClaimSlot[] }>();
  for (const slot of slots) {
    const { workerId } = slot.worker;
    const candidate = free.get(workerId) ?? { workerId, slots: [] };
    candidate.slots.push(slot);
    free.set(workerId, candidate);
  }
  const assign = (row: ClaimedRow, candidate: { workerId: string; slots: ClaimSlot[] }) => {
    assigned.set(row, candidate.slots.shift()!);
    if (candidate.slots.length === 0) free.delete(candidate.workerId);
  };
  for (const row of rows) if (row.actor_id !== null) assign(row, nearest(row.actor_id, free.values())!);
  for (const row of rows)
    if (row.actor_id === null)
      assign(row, free.get(slots[row.rank - 1]!.worker.workerId) ?? free.values().next().value!);
}

/**
 * Sticky routing of a claim's rows (proto/README.md 'Flow control'). A row keeps its token and fence; when it
 * goes to another worker than it was claimed for, its execution says so first. Claims without actors cost
 * nothing.
 */
export function openActorAssignment({ runs, log }: { runs: Pick<Runs, "handOver">; log: Log }) {
  return async (
    rows: readonly ClaimedRow[],
    slotsOf: readonly (readonly ClaimSlot[])[],
  ): Promise<(row: ClaimedRow) => ClaimSlot> => {
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
    const reassigned = [...assigned].flatMap(([row, { worker }]) => {
      const { hash, worker: claimedFor } = asClaimed(row);
      if (worker.workerId === claimedFor.workerId) return [];
      const { run_id: runId, execution_seq: executionSeq } = row;
      return { runId, executionSeq, leaseHash: hash, workerId: worker.workerId };
    });
    try {
      if (reassigned.length > 0) await runs.handOver(reassigned);
    } catch (error) {
      log.warn("actors could not be seated", { error: String(error) });
      return asClaimed;
    }
    return (row) => assigned.get(row) ?? asClaimed(row);
  };
}
