import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import type { Fault } from "../../../kit/fault.ts";
import {
  type DueRows,
  environmentsDue,
  type Slice,
  sliceOf,
  type WorkScope,
} from "../../../kit/round-robin.ts";
import { countOf, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import type { Delivery } from "../pubsub/delivery.ts";
import { groupFreshMs, groupHoldShare } from "./limits.ts";
import type { GroupRow } from "./rows.ts";

export type MemberRow = RowOf<"group_members">;

const names = "environment_id group_id id consumer_id client_id node_id joined_at seen_at".split(" ");
const columns = sql.raw(names.join(", "));

export const countMembers = (
  session: Pick<Session, "one">,
  environmentId: string,
  groupId: string,
): Promise<number> =>
  countOf(
    session,
    sql`FROM group_members
    WHERE environment_id = ${environmentId} AND group_id = ${groupId}`,
  );

const rowsOf = (session: Pick<Session, "seams">, members: readonly MemberRow[]): Sql =>
  session.seams.rowsFrom("i", {
    ...columnsOf(members, {
      text: "environment_id group_id id consumer_id client_id node_id",
      bigint: "joined_at seen_at",
    }),
  });

/**
 * Writes heartbeats in the order of the keys, so that two nodes lock rows in the same order. A member that
 * was removed as silent is inserted again; a member of a deleted group is not.
 */
export const heartbeatMembers = (session: Session, members: readonly MemberRow[]): Promise<number> =>
  session.run(sql`INSERT INTO group_members (${columns})
    SELECT i.environment_id, i.group_id, i.id, i.consumer_id, i.client_id, i.node_id, i.joined_at, i.seen_at
    FROM ${rowsOf(session, members)}
    WHERE EXISTS (SELECT 1 FROM consumer_groups g WHERE g.environment_id = i.environment_id AND g.id = i.group_id)
    ORDER BY i.environment_id, i.group_id, i.id
    ON CONFLICT (environment_id, group_id, id) DO UPDATE SET seen_at = excluded.seen_at`);

const silent = (since: Instant): DueRows => ({
  table: "group_members",
  columns: sql.raw(names.map((name) => `d.${name}`).join(", ")),
  dueAt: "seen_at",
  until: since - 1,
  // Heartbeats are too frequent for an index by environment and time.
  scopeOrder: { dueAt: "seen_at + 0", by: ["group_id", "id"] },
});

/** Members of all groups whose last heartbeat is older than `since`. */
export const silentMembers = (
  store: Pick<Store, "all" | "seams">,
  since: Instant,
  slice: Slice,
): Promise<(MemberRow & { turn: number })[]> => store.all(sliceOf(store.seams, silent(since), slice));

export const environmentsSilent = (
  store: Pick<Store, "all" | "seams">,
  since: Instant,
): Promise<WorkScope[]> => store.all(environmentsDue(silent(since)));

export interface MemberRemoval {
  member: Pick<MemberRow, "environment_id" | "group_id" | "id">;
  now: Instant;
  /** Removes the member only if its last heartbeat is older. */
  silentSince?: Instant;
  /** Positions that the member was never sent: they do not count as lost with it. */
  unsent: readonly number[];
}

/**
 * Removes the member; what it holds is due for the others. False when it sent a heartbeat, or another node
 * removed it.
 */
export async function removeMember(
  session: Session,
  { member, now, silentSince, unsent }: MemberRemoval,
): Promise<boolean> {
  const { environment_id, group_id, id } = member;
  const silent = silentSince === undefined ? sql.empty : sql`AND seen_at < ${silentSince}`;
  const gone = await session.run(sql`DELETE FROM group_members
    WHERE environment_id = ${environment_id} AND group_id = ${group_id} AND id = ${id} ${silent}`);
  if (gone === 0 && silentSince !== undefined) return false;
  const held = await session.all<{ position: number }>(sql`SELECT position FROM group_deliveries
    WHERE environment_id = ${environment_id} AND group_id = ${group_id} AND member_id = ${id}
    ORDER BY position ${session.seams.holdRow}`);
  if (held.length === 0) return true;
  const lost =
    unsent.length === 0 ? sql`1` : sql`CASE WHEN position IN ${sql.list(unsent)} THEN 0 ELSE 1 END`;
  await session.run(sql`UPDATE group_deliveries SET member_id = NULL, due_at = ${sql.bigint(now)},
      lost_count = lost_count + ${lost}
    WHERE environment_id = ${environment_id} AND group_id = ${group_id} AND member_id = ${id}`);
  return true;
}

/** Moves on `kept_until` of groups that subscriptions created, unless it lies after `unlessAfter` already. */
export const keepOn = (
  session: Session,
  groups: readonly { environment_id: string; id: string }[],
  { until, unlessAfter }: { until: Instant; unlessAfter: Instant },
): Promise<number> =>
  session.run(sql`UPDATE consumer_groups SET kept_until = ${sql.bigint(until)}
    WHERE kept_until < ${sql.bigint(unlessAfter)} AND (environment_id, id) IN (SELECT i.environment_id, i.id
      FROM ${session.seams.rowsFrom("i", {
        ...columnsOf(groups, { text: "environment_id id" }),
      })})`);

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
