import type { Fault } from "../../../kit/fault.ts";
import type { Delivery } from "../pubsub/delivery.ts";
import { groupFreshMs, groupHoldShare } from "./limits.ts";
import type { MemberRow } from "./member-rows.ts";
import type { GroupRow } from "./rows.ts";

/** The consumer behind a member: a stream or a socket subscription. */
export interface GroupSubscriber {
  /**
   * A promise resolves once the delivery was written to the consumer, or dropped. The transport calls
   * `isStillHeld` right before it writes. After a no it drops the delivery, because another member may have
   * it by now.
   */
  deliver(delivery: Delivery, isStillHeld: () => boolean): void | Promise<void>;
  /**
   * Throws the fault of a consumer that may not read the pattern. Called before the member gets anything of
   * it.
   */
  permit(pattern: string): Promise<void>;
  /** The last call: nothing is delivered after it. */
  ended(fault: Fault): void;
}

/** A delivery that was claimed for a member and waits to be written. */
export interface QueuedDelivery {
  delivery: Delivery;
  position: number;
  /**
   * Monotonic, like every time in this file: neither a frozen process nor a corrected wall clock makes a hold
   * longer.
   */
  claimedAt: number;
  holdMs: number;
}

export interface GroupMember {
  row: MemberRow;
  subscriber: GroupSubscriber;
  queue: QueuedDelivery[];
  isDelivering: boolean;
  /** When the delivery that is being written was begun. */
  deliveringSince: number;
  isOver: boolean;
  /**
   * The pattern that its caller was permitted. While the group reads another one, nothing is claimed for the
   * member.
   */
  permitted: string;
  isCheckingPermission: boolean;
  /**
   * When the write of its last heartbeat began. Other nodes may remove a member whose heartbeat is not fresh.
   */
  heartbeatAt: number;
  /** Heartbeats have been continuous since then. Deliveries claimed earlier may have been reassigned. */
  unbrokenSince: number;
}

export const newGroupMember = (
  row: MemberRow,
  { subscriber, permitted, heartbeatAt }: Pick<GroupMember, "subscriber" | "permitted" | "heartbeatAt">,
): GroupMember => ({
  row,
  subscriber,
  permitted,
  isCheckingPermission: false,
  queue: [],
  isDelivering: false,
  deliveringSince: 0,
  isOver: false,
  heartbeatAt,
  unbrokenSince: heartbeatAt,
});

/** The member's heartbeat was written between these two moments. */
export function noteHeartbeat(member: GroupMember, { from, to }: { from: number; to: number }): void {
  if (to - member.heartbeatAt > groupFreshMs) member.unbrokenSince = to;
  member.heartbeatAt = from;
}

export const isFresh = ({ heartbeatAt }: GroupMember, now: number): boolean =>
  now - heartbeatAt <= groupFreshMs;

/** Whether the member's caller may read what the group reads now. */
export const isPermitted = ({ permitted }: GroupMember, { pattern }: Pick<GroupRow, "pattern">): boolean =>
  permitted === pattern;

/** Whether the member still holds the delivery, by this process' monotonic clock alone. */
export const holdsDelivery = (
  member: GroupMember,
  { claimedAt, holdMs }: QueuedDelivery,
  now: number,
): boolean =>
  !member.isOver &&
  isFresh(member, now) &&
  claimedAt >= member.unbrokenSince &&
  now - claimedAt <= holdMs * groupHoldShare;
