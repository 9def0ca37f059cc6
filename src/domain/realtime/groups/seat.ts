import type { Fault } from "../../../kit/fault.ts";
import { groupFreshMs, groupHoldShare } from "../../../kit/limits.ts";
import type { Delivery } from "../pubsub/delivery.ts";
import type { MemberRow } from "./members.ts";

/** Who sits at a desk. */
export interface GroupReader {
  /**
   * A promise resolves once the delivery has left for the consumer, or was dropped. `stands` is asked right before it is
   * written: after a no it is dropped, as it may be another's by now, and acknowledged.
   */
  give(delivery: Delivery, stands: () => boolean): void | Promise<void>;
  /** Throws the fault of who may not have what the pattern stands for: asked before anything of it is given. */
  permit(pattern: string): Promise<void>;
  /** Nothing follows. */
  ended(fault: Fault): void;
}

/** What was taken for a member. */
export interface Waiting {
  delivery: Delivery;
  position: number;
  /** When the claim began: elapsed, as every time here, so that neither a freeze nor a corrected clock deceives. */
  takenAt: number;
  holdMs: number;
}

export interface Seat {
  row: MemberRow;
  reader: GroupReader;
  queue: Waiting[];
  giving: boolean;
  /** Of what it is being given now. */
  givingSince: number;
  over: boolean;
  /** The pattern that it was permitted. While the group reads another one, nothing is taken for it. */
  permitted: string;
  asking: boolean;
  /** When the writing of its last sign of life began. Without a fresh one it may have been taken for dead. */
  signedAt: number;
  /** Since then nobody can have taken it for dead; what was taken for it before may be others'. */
  unbrokenSince: number;
}

export const newSeat = (
  row: MemberRow,
  { reader, permitted, signedAt }: Pick<Seat, "reader" | "permitted" | "signedAt">,
): Seat => ({
  row,
  reader,
  permitted,
  asking: false,
  queue: [],
  giving: false,
  givingSince: 0,
  over: false,
  signedAt,
  unbrokenSince: signedAt,
});

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
