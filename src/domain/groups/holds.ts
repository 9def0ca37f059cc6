import { groupFreshMs, groupHoldShare } from "../../kit/limits.ts";
import type { Seat, Waiting } from "./seats.ts";

/** Its sign of life was written between these two moments. */
export function noteSign(seat: Seat, { from, to }: { from: number; to: number }): void {
  if (to - seat.signedAt > groupFreshMs) seat.unbrokenSince = to;
  seat.signedAt = from;
}

export const isFresh = ({ signedAt }: Seat, now: number): boolean => now - signedAt <= groupFreshMs;

/** Whether it is the member's still, by no other clock than this process' own. */
export const isItsOwn = (seat: Seat, { takenAt, holdMs }: Waiting, now: number): boolean =>
  !seat.over &&
  isFresh(seat, now) &&
  takenAt >= seat.unbrokenSince &&
  now - takenAt <= holdMs * groupHoldShare;
