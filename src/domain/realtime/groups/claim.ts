import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";
import type { GivenUpDelivery } from "./given-up.ts";
import { groupLossesMax } from "./limits.ts";
import { type GroupKey, type GroupRow, holdGroup, whereGroup } from "./rows.ts";

/** Who gets a delivery. */
export interface MemberSlot {
  memberId: string;
  consumerId: string;
}

/** A member that could have so many deliveries now. */
export interface MemberSeat extends MemberSlot {
  room: number;
}

export interface GroupClaimInput {
  key: GroupKey;
  groupId: string;
  /** Version of the settings whose pattern and filter chose the candidates. */
  version: number;
  /** Entries that match, in order, from the group's position as it was up to `reached`. */
  candidates: readonly { position: number; eventId: string }[];
  reached: number;
  /** In the order of their turns: the one that got a delivery longest ago is first. */
  seats: readonly MemberSeat[];
  now: Instant;
  heldUntil: Instant;
  /**
   * Members with a heartbeat since then are alive. If a live member lets its hold expire, that counts against
   * `max_redeliveries`.
   */
  freshSince: Instant;
  /** Lists what is given up, in this transaction. */
  list: (session: Session, group: GroupRow, givenUp: readonly GivenUpDelivery[]) => Promise<() => void>;
}

export interface ClaimedDelivery {
  position: number;
  eventId: string;
  attempt: number;
  slot: MemberSlot;
}

export type ClaimResult =
  | { state: "gone" }
  | { state: "stale" }
  | { state: "paused" }
  | {
      state: "taken";
      /** The group's position after the claim. */
      position: number;
      claimed: ClaimedDelivery[];
      givenUp: GivenUpDelivery[];
      /** Call it after the commit. */
      listed: () => void;
      droppedCount: number;
      /** When the next delivery of the group is due; null when the group holds none. */
      nextDueAt: Instant | null;
    };

type DueDeliveryRow = RowOf<
  "group_deliveries",
  "position, event_id, attempt, spent_count, lost_count, member_id"
>;

/**
 * One claim of a group, under the lock of its row: first deliveries that are due again, then new entries, at
 * most what the seats have room for and at most `max_inflight` in all. It skips deliveries that another
 * transaction has locked: those are being acknowledged.
 */
export async function claimDeliveries(session: Session, input: GroupClaimInput): Promise<ClaimResult> {
  const { key, seats, reached } = input;
  const group = await holdGroup(session, key);
  if (!group || group.id !== input.groupId) return { state: "gone" };
  if (group.status === "paused") return { state: "paused" };
  if (group.version !== input.version) return { state: "stale" };

  let held = await heldNow(session, group);
  const isDue = held.due_at !== null && held.due_at <= input.now;
  const turns = turnsOf(seats, held.byMember);
  const room = Math.min(
    group.max_inflight,
    seats.reduce((sum, seat) => sum + seat.room, 0),
  );
  const { given, givenUp } =
    isDue && room > 0
      ? await claimDue(session, { ...input, room, turns }, group)
      : { given: [], givenUp: [] };
  if (given.length + givenUp.length > 0) held = await heldNow(session, group);
  const free = group.max_inflight - held.count;
  const news = input.candidates.filter(({ position }) => position > group.position);
  const count = Math.max(0, Math.min(room - given.length, free, news.length));
  const fresh = news
    .slice(0, count)
    .map((one): ClaimedDelivery => ({ ...one, attempt: 1, slot: turns.next().value! }));
  if (fresh.length > 0) await insert(session, group, fresh, input.heldUntil);
  const next = news[count];
  const drops = group.backpressure === "drop" && next !== undefined;
  const position = Math.max(group.position, next === undefined || drops ? reached : next.position - 1);
  const droppedCount = drops ? news.length - count : 0;
  if (position > group.position || givenUp.length > 0)
    await session.run(sql`UPDATE consumer_groups SET position = ${sql.bigint(position)},
        dropped_count = dropped_count + ${sql.bigint(droppedCount)},
        given_up_count = given_up_count + ${sql.bigint(givenUp.length)}
      WHERE ${whereGroup(key)}`);
  const listed = givenUp.length > 0 ? await input.list(session, group, givenUp) : () => {};
  const nextDueAt =
    fresh.length > 0 ? Math.min(held.due_at ?? input.heldUntil, input.heldUntil) : held.due_at;
  return {
    state: "taken",
    position,
    claimed: [...given, ...fresh],
    givenUp,
    listed,
    droppedCount,
    nextDueAt,
  };
}

async function heldNow(session: Session, { environment_id, id }: GroupRow) {
  const rows = await session.all<{ member_id: string | null; count: number; due_at: Instant }>(
    sql`SELECT member_id, count(*) AS count, min(due_at) AS due_at FROM group_deliveries
      WHERE environment_id = ${environment_id} AND group_id = ${id} GROUP BY member_id`,
  );
  const byMember = new Map(rows.map((row) => [row.member_id, row.count]));
  const due_at = rows.length === 0 ? null : Math.min(...rows.map((row) => row.due_at));
  return { byMember, count: rows.reduce((sum, row) => sum + row.count, 0), due_at };
}

/**
 * Of the members with room, the one that holds the fewest deliveries is next; of equals, the one that got one
 * longest ago.
 */
function* turnsOf(
  seats: readonly MemberSeat[],
  held: ReadonlyMap<string | null, number>,
): Generator<MemberSlot, undefined> {
  const waiting = seats.map((seat) => ({ ...seat, holds: held.get(seat.memberId) ?? 0 }));
  for (;;) {
    let next: (typeof waiting)[number] | undefined;
    for (const one of waiting) if (one.room > 0 && one.holds < (next?.holds ?? Infinity)) next = one;
    if (!next) return undefined;
    next.room--;
    next.holds++;
    waiting.push(...waiting.splice(waiting.indexOf(next), 1));
    yield { memberId: next.memberId, consumerId: next.consumerId };
  }
}

async function claimDue(
  session: Session,
  {
    room,
    turns,
    now,
    heldUntil,
    freshSince,
  }: GroupClaimInput & { room: number; turns: Iterator<MemberSlot, undefined> },
  group: GroupRow,
) {
  const given: ClaimedDelivery[] = [];
  const givenUp: GivenUpDelivery[] = [];
  const { environment_id, id } = group;
  const due =
    await session.all<DueDeliveryRow>(sql`SELECT position, event_id, attempt, spent_count, lost_count, member_id
    FROM group_deliveries WHERE environment_id = ${environment_id} AND group_id = ${id} AND due_at <= ${now}
    ORDER BY position LIMIT ${room} ${session.seams.skipLocked}`);
  if (due.length === 0) return { given, givenUp };
  const present = due.some((row) => row.member_id !== null)
    ? await session.all<{ id: string }>(sql`SELECT id FROM group_members
        WHERE environment_id = ${environment_id} AND group_id = ${id} AND seen_at >= ${freshSince}`)
    : [];
  const isPresent = new Set(present.map((member) => member.id));
  const moved: (DueDeliveryRow & { slot: MemberSlot })[] = [];
  for (const row of due) {
    // A live member used up its hold. A hold that ended with its member counts apart: nobody refused the
    // delivery.
    const isSpent = row.member_id !== null && isPresent.has(row.member_id);
    const isLost = row.member_id !== null && !isSpent;
    const spent_count = row.spent_count + (isSpent ? 1 : 0);
    const lost_count = row.lost_count + (isLost ? 1 : 0);
    if (spent_count > group.max_redeliveries || lost_count >= groupLossesMax)
      givenUp.push({ position: row.position, eventId: row.event_id, attempt: row.attempt, lost_count });
    else moved.push({ ...row, spent_count, lost_count, slot: turns.next().value! });
  }
  if (givenUp.length > 0)
    await session.run(sql`DELETE FROM group_deliveries WHERE environment_id = ${environment_id} AND group_id = ${id}
      AND position IN ${sql.list(givenUp.map((one) => one.position))}`);
  if (moved.length > 0)
    await session.run(sql`UPDATE group_deliveries SET member_id = v.member_id, consumer_id = v.consumer_id,
        attempt = v.attempt, spent_count = v.spent_count, lost_count = v.lost_count, due_at = ${sql.bigint(heldUntil)}
      FROM ${session.seams.rowsFrom("v", {
        ...columnsOf(moved, { bigint: "position spent_count lost_count" }),
        member_id: column.text(moved.map((row) => row.slot.memberId)),
        consumer_id: column.text(moved.map((row) => row.slot.consumerId)),
        attempt: column.bigint(moved.map((row) => row.attempt + 1)),
      })} WHERE group_deliveries.environment_id = ${environment_id} AND group_deliveries.group_id = ${id}
        AND group_deliveries.position = v.position`);
  for (const row of moved)
    given.push({
      position: row.position,
      eventId: row.event_id,
      attempt: row.attempt + 1,
      slot: row.slot,
    });
  return { given, givenUp };
}

const insert = (session: Session, group: GroupRow, fresh: readonly ClaimedDelivery[], heldUntil: Instant) =>
  session.run(sql`INSERT INTO group_deliveries (environment_id, group_id, position, event_id, attempt, spent_count,
      lost_count, member_id, consumer_id, due_at)
    SELECT ${group.environment_id}, ${group.id}, v.position, v.event_id, 1, 0, 0, v.member_id, v.consumer_id,
      ${sql.bigint(heldUntil)}
    FROM ${session.seams.rowsFrom("v", {
      ...columnsOf(fresh, { text: "eventId", bigint: "position" }),
      member_id: column.text(fresh.map((one) => one.slot.memberId)),
      consumer_id: column.text(fresh.map((one) => one.slot.consumerId)),
    })}`);
