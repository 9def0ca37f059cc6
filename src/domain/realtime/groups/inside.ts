import type { Instant } from "../../../kit/clock.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/row.ts";
import { groupShownMax } from "./limits.ts";
import type { GroupRow } from "./rows.ts";

export interface ShownMember {
  id: string;
  consumer_id: string;
  client_id: string;
  joined_at: Instant;
}

export interface ShownDelivery
  extends RowOf<"group_deliveries", "event_id, position, attempt, consumer_id, due_at"> {
  /** Null while the delivery waits for its next attempt. */
  member_id: string | null;
}

/** What a group is about to do, for those who look after it. */
export interface GroupInside {
  /** Positions from the group's to the end of its log, of whatever pattern. */
  behind: number;
  members: ShownMember[];
  deliveries: ShownDelivery[];
}

export async function insideOf(store: Pick<Store, "all" | "one">, group: GroupRow): Promise<GroupInside> {
  const environment = sql`environment_id = ${group.environment_id}`;
  const own = sql`${environment} AND group_id = ${group.id}`;
  const heads = sql.raw(group.log === "events" ? "heads" : "topic_heads");
  const [head, members, deliveries] = await Promise.all([
    store.one<{ position: number }>(sql`SELECT position FROM ${heads} WHERE ${environment}`),
    store.all<ShownMember>(sql`SELECT id, consumer_id, client_id, joined_at FROM group_members WHERE ${own}
      ORDER BY joined_at, id LIMIT ${groupShownMax}`),
    store.all<ShownDelivery>(sql`SELECT event_id, position, attempt, member_id, consumer_id, due_at
      FROM group_deliveries WHERE ${own} ORDER BY position LIMIT ${groupShownMax}`),
  ]);
  return { behind: Math.max(0, (head?.position ?? 0) - group.position), members, deliveries };
}
