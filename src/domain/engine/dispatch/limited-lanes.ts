import type { LaneFound } from "../runs/execution/claim-limited.ts";
import type { LaneLook } from "../runs/execution/lane-rows.ts";

/**
 * What a node knows of the lanes of one function with a limit. A lane that may have queued runs and room is ready; one
 * that was found full with runs behind is kept apart, and no claim asks for it until a lease there ends. What is lost of
 * all this, a look at the store brings back.
 */
export interface LimitedLanes {
  /** Nobody here knows which lanes have work: look at the store before the next claim. */
  stale: boolean;
  /** In the order of their turns. */
  readonly ready: Set<string>;
  readonly full: Set<string>;
  /** Asked for by the claim under way. */
  readonly claiming: Set<string>;
  /** Where the next look goes on; empty for the beginning. */
  after: string;
}

/** More full lanes than this are not worth remembering one by one: the look finds them again. */
const fullMax = 20_000;

export const newLimitedLanes = (): LimitedLanes => ({
  stale: true,
  ready: new Set(),
  full: new Set(),
  claiming: new Set(),
  after: "",
});

/** A run was queued in the lane, or a lease there ended, or both. Answers whether there may be something to claim now. */
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

/** Whether nothing is known to be queued in the lane. */
export const isUnknownLane = (limited: LimitedLanes | undefined, laneId: string): boolean =>
  limited !== undefined &&
  !limited.stale &&
  !limited.ready.has(laneId) &&
  !limited.full.has(laneId) &&
  !limited.claiming.has(laneId);

/** The next lanes in turn, `most` at once; they count as asked until `tell`. */
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

/** What the claim found; answers the lanes that another claim was at, to be tried again in a moment. */
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

/** A claim that failed: nothing is known of the lanes it asked for. */
export function noteClaimFailed(limited: LimitedLanes): void {
  for (const laneId of limited.claiming) limited.ready.add(laneId);
  limited.claiming.clear();
}

/** What a look at the store found, up to `most` lanes. */
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
