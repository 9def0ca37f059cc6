import type { LaneFound } from "../runs/execution/claim-limited.ts";
import type { LaneLook } from "../runs/execution/lane-rows.ts";

/**
 * What this node knows of the lanes (one for each concurrency key) of a function with a limit. A `ready` lane
 * may have queued runs and room for them. A `full` lane has queued runs and no room: no claim asks for it
 * until a lease there ends. A look at the store restores whatever lost hints made wrong.
 */
export interface LimitedLanes {
  /** It is unknown which lanes have work: the store is looked at before the next claim. */
  stale: boolean;
  /** Claims follow a priority or a throttle, as the last look found. */
  paced: boolean;
  /** The next claim asks for the first of them. */
  readonly ready: Set<string>;
  readonly full: Set<string>;
  /** Lanes that the claim under way asks for. */
  readonly claiming: Set<string>;
  /** The id after which the next look continues; empty for the start. */
  after: string;
}

/** Bounds the memory of `full`. Beyond it the set is emptied, and looks find the full lanes again. */
const fullMax = 20_000;

export const newLimitedLanes = (): LimitedLanes => ({
  stale: true,
  paced: false,
  ready: new Set(),
  full: new Set(),
  claiming: new Set(),
  after: "",
});

/** A run was queued in the lane, or a lease there ended. Returns whether the lane may have a run to claim. */
export function noteHint(
  limited: LimitedLanes,
  laneId: string,
  { queued, freed }: { queued: boolean; freed: boolean },
): boolean {
  if (freed) {
    const waited = limited.full.delete(laneId);
    if (queued || waited || limited.claiming.has(laneId)) limited.ready.add(laneId);
  } else if (queued && !limited.full.has(laneId)) limited.ready.add(laneId);
  return limited.ready.has(laneId);
}

/** Whether this node knows of no queued run in the lane, so that a new run may skip the queue. */
export const isUnknownLane = (limited: LimitedLanes | undefined, laneId: string): boolean =>
  limited !== undefined &&
  !limited.stale &&
  !limited.ready.has(laneId) &&
  !limited.full.has(laneId) &&
  !limited.claiming.has(laneId);

/** At most `most` ready lanes, moved to `claiming` until `noteClaimed` or `noteClaimFailed`. */
export function nextLanes(limited: LimitedLanes, most: number): string[] {
  const lanes: string[] = [];
  for (const laneId of limited.ready) {
    if (lanes.length === most) break;
    lanes.push(laneId);
  }
  for (const laneId of lanes) {
    limited.ready.delete(laneId);
    limited.claiming.add(laneId);
  }
  return lanes;
}

/** How long to wait for another claim that holds a lane's lock. */
const busyMs = 10;

/**
 * Records what the claim found. Returns the lanes to be tried again, and when: those that another claim had
 * locked, and those whose throttle lets the next run begin before a look finds them.
 */
export function noteClaimed(
  limited: LimitedLanes,
  found: readonly LaneFound[],
  lookEveryMs: number,
): { laneId: string; afterMs: number }[] {
  limited.claiming.clear();
  const later: { laneId: string; afterMs: number }[] = [];
  for (const { lane_id, free, taken, more, wait_us } of found) {
    const waitMs = Math.ceil((wait_us ?? 0) / 1000);
    if (free === null) later.push({ laneId: lane_id, afterMs: busyMs });
    else if (more === 0 || limited.ready.has(lane_id)) continue;
    else if (waitMs > 0) {
      limited.full.add(lane_id);
      if (waitMs < lookEveryMs) later.push({ laneId: lane_id, afterMs: waitMs });
    } else if (free > taken) limited.ready.add(lane_id);
    else limited.full.add(lane_id);
  }
  if (limited.full.size > fullMax) limited.full.clear();
  return later;
}

/** The claim failed: its lanes are ready again. */
export function noteClaimFailed(limited: LimitedLanes): void {
  for (const laneId of limited.claiming) limited.ready.add(laneId);
  limited.claiming.clear();
}

/** Records what a look at the store found; `most` is how many lanes it read at most. */
export function noteLook(
  limited: LimitedLanes,
  { limit = 0, paced = false, lanes }: LaneLook,
  most: number,
): void {
  limited.paced = paced;
  for (const { id, leased } of lanes) {
    if (limited.claiming.has(id)) continue;
    if (leased < limit) {
      limited.full.delete(id);
      limited.ready.add(id);
    } else limited.full.add(id);
  }
  const last = lanes.at(-1);
  limited.after = lanes.length === most && last ? last.id : "";
}
