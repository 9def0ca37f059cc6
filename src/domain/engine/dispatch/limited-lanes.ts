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

/** Records what the claim found. Returns the lanes that another claim had locked, to be tried again soon. */
export function noteClaimed(limited: LimitedLanes, found: readonly LaneFound[]): string[] {
  limited.claiming.clear();
  const busy: string[] = [];
  for (const { lane_id, free, taken, more } of found) {
    if (free === null) busy.push(lane_id);
    else if (more === 0 || limited.ready.has(lane_id)) continue;
    else if (free > taken) limited.ready.add(lane_id);
    else limited.full.add(lane_id);
  }
  if (limited.full.size > fullMax) limited.full.clear();
  return busy;
}

/** The claim failed: its lanes are ready again. */
export function noteClaimFailed(limited: LimitedLanes): void {
  for (const laneId of limited.claiming) limited.ready.add(laneId);
  limited.claiming.clear();
}

/** Records what a look at the store found; `most` is how many lanes it read at most. */
export function noteLook(limited: LimitedLanes, { limit = 0, lanes }: LaneLook, most: number): void {
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
