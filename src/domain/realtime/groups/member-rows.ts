import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { countOf } from "../../../kit/count-of.ts";
import {
  type DueRows,
  environmentsDue,
  type Slice,
  sliceOf,
  type WorkScope,
} from "../../../kit/round-robin.ts";
import { type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/row.ts";

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
