import type { Log } from "../../../kit/log.ts";
import type { ClaimedRow } from "../runs/execution/claim.ts";
import type { Runs } from "../runs/service.ts";
import type { Desk } from "./desks.ts";
import type { Lane, Slot, Waiter } from "./lanes.ts";

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
  places: Iterable<Place>,
): Place | undefined {
  let best: Place | undefined;
  let bestScore = -1;
  for (const place of places) {
    const score = scoreOf(actorId, place.workerId);
    if (score > bestScore || (score === bestScore && place.workerId < best!.workerId)) {
      best = place;
      bestScore = score;
    }
  }
  return best;
}

/** Who is asked to take a run that is born now; an actor's goes to the nearest of those that have a slot, here or on the way back. */
export function* askedFirst(
  lane: Lane,
  actorId: string | null,
  { hasSlot, expects }: { hasSlot: (waiter: Waiter) => boolean; expects: (desk: Desk) => boolean },
): Iterable<Waiter | Desk> {
  if (actorId === null) return yield* lane.waiters;
  const chosen = nearest(actorId, [...[...lane.waiters].filter(hasSlot), ...[...lane.away].filter(expects)]);
  if (chosen) yield chosen;
}

/** Where the rows of one lane go: actors to their nearest worker while it has a slot in this claim, the others as claimed. */
function seatLane(rows: readonly ClaimedRow[], slots: readonly Slot[], seats: Map<ClaimedRow, Slot>): void {
  const free = new Map<string, { workerId: string; slots: Slot[] }>();
  for (const slot of slots) {
    const { workerId } = slot.desk;
    const place = free.get(workerId) ?? { workerId, slots: [] };
    place.slots.push(slot);
    free.set(workerId, place);
  }
  const sit = (row: ClaimedRow, place: { workerId: string; slots: Slot[] }) => {
    seats.set(row, place.slots.shift()!);
    if (place.slots.length === 0) free.delete(place.workerId);
  };
  for (const row of rows) if (row.actor_id !== null) sit(row, nearest(row.actor_id, free.values())!);
  for (const row of rows)
    if (row.actor_id === null)
      sit(row, free.get(slots[row.rank - 1]!.desk.workerId) ?? free.values().next().value!);
}

/**
 * Sticky routing of a claim's rows (contract.md 4.6 `actorKey`). A row keeps its token and fence; when it goes to another worker
 * than it was claimed for, its execution says so first. Claims without actors cost nothing.
 */
export function openSeating({ runs, log }: { runs: Pick<Runs, "handOver">; log: Log }) {
  return async (
    rows: readonly ClaimedRow[],
    slotsOf: readonly (readonly Slot[])[],
  ): Promise<(row: ClaimedRow) => Slot> => {
    const asClaimed = (row: ClaimedRow) => slotsOf[row.lane - 1]![row.rank - 1]!;
    const lanes = new Set(rows.filter((row) => row.actor_id !== null).map((row) => row.lane));
    if (lanes.size === 0) return asClaimed;
    const seats = new Map<ClaimedRow, Slot>();
    for (const lane of lanes)
      seatLane(
        rows.filter((row) => row.lane === lane),
        slotsOf[lane - 1]!,
        seats,
      );
    const moved = [...seats].flatMap(([row, { desk }]) => {
      const { hash, desk: claimedFor } = asClaimed(row);
      if (desk.workerId === claimedFor.workerId) return [];
      const { run_id: runId, execution_seq: executionSeq } = row;
      return { runId, executionSeq, leaseHash: hash, workerId: desk.workerId };
    });
    try {
      if (moved.length > 0) await runs.handOver(moved);
    } catch (error) {
      log.warn("actors could not be seated", { error: String(error) });
      return asClaimed;
    }
    return (row) => seats.get(row) ?? asClaimed(row);
  };
}
