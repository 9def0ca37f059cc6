import type { Fault } from "../../../kit/fault.ts";
import { groupFreshMs, groupHoldShare } from "../../../kit/limits.ts";
import type { Delivery } from "../pubsub/delivery.ts";
import type { MemberRow } from "./member-rows.ts";

/** Who sits at a desk. */
export interface GroupSubscriber {
  /**
   * A promise resolves once the delivery has left for the consumer, or was dropped. `stands` is asked right before it is
   * written: after a no it is dropped, as it may be another's by now, and acknowledged.
   */
  deliver(delivery: Delivery, isStillHeld: () => boolean): void | Promise<void>;
  /** Throws the fault of who may not have what the pattern stands for: asked before anything of it is given. */
  permit(pattern: string): Promise<void>;
  /** Nothing follows. */
  ended(fault: Fault): void;
}

/** What was taken for a member. */
export interface QueuedDelivery {
  delivery: Delivery;
  position: number;
  /** When the claim began: elapsed, as every time here, so that neither a freeze nor a corrected clock deceives. */
  claimedAt: number;
  holdMs: number;
}

export interface GroupMember {
  row: MemberRow;
  reader: GroupSubscriber;
  queue: QueuedDelivery[];
  delivering: boolean;
  /** Of what it is being given now. */
  deliveringSince: number;
  over: boolean;
  /** The pattern that it was permitted. While the group reads another one, nothing is taken for it. */
  permitted: string;
  checkingPermission: boolean;
  /** When the writing of its last sign of life began. Without a fresh one it may have been taken for dead. */
  heartbeatAt: number;
  /** Since then nobody can have taken it for dead; what was taken for it before may be others'. */
  unbrokenSince: number;
}

export const newGroupMember = (
  row: MemberRow,
  { reader, permitted, heartbeatAt }: Pick<GroupMember, "reader" | "permitted" | "heartbeatAt">,
): GroupMember => ({
  row,
  reader,
  permitted,
  checkingPermission: false,
  queue: [],
  delivering: false,
  deliveringSince: 0,
  over: false,
  heartbeatAt,
  unbrokenSince: heartbeatAt,
});

/** Its sign of life was written between these two moments. */
export function noteHeartbeat(member: GroupMember, { from, to }: { from: number; to: number }): void {
  if (to - member.heartbeatAt > groupFreshMs) member.unbrokenSince = to;
  member.heartbeatAt = from;
}

export const isFresh = ({ heartbeatAt }: GroupMember, now: number): boolean =>
  now - heartbeatAt <= groupFreshMs;

/** Whether it is the member's still, by no other clock than this process' own. */
export const holdsDelivery = (
  member: GroupMember,
  { claimedAt, holdMs }: QueuedDelivery,
  now: number,
): boolean =>
  !member.over &&
  isFresh(member, now) &&
  claimedAt >= member.unbrokenSince &&
  now - claimedAt <= holdMs * groupHoldShare;
