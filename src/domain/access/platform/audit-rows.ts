import {
  type BoundedCount,
  type BoundedList,
  type BoundedPage,
  countLooked,
  lookThrough,
} from "../../../kit/bounded-look.ts";
import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import type { Cursor } from "../../../kit/page.ts";
import { column, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/index.ts";

/** One line of the platform's audit; ids are empty where there is none. */
export interface PlatformEvent {
  id: string;
  type: string;
  keyId: string;
  userId: string;
  impersonatedOrgId: string;
  payload: Record<string, unknown>;
  createdAt: Instant;
}

export interface PlatformEventFilter {
  type?: string;
  /** Both inclusive. */
  from?: Instant;
  to?: Instant;
  keyId?: string;
  impersonatedOrgId?: string;
}

type PlatformEventColumns = RowOf<"platform_audit">;

const fields = sql.raw(
  "id, event_type, platform_key_id, platform_user_id, impersonated_org_id, payload, created_at",
);

const toEvent = (row: PlatformEventColumns): PlatformEvent => ({
  id: row.id,
  type: row.event_type,
  keyId: row.platform_key_id,
  userId: row.platform_user_id,
  impersonatedOrgId: row.impersonated_org_id,
  payload: JSON.parse(row.payload) as Record<string, unknown>,
  createdAt: row.created_at,
});

export async function insertEvents(session: Session, events: readonly PlatformEvent[]): Promise<void> {
  const rows = session.seams.rowsFrom("event", {
    ...columnsOf(events, { text: "id type keyId userId" }),
    org_id: column.text(events.map((event) => event.impersonatedOrgId)),
    payload: column.text(events.map((event) => JSON.stringify(event.payload))),
    at: column.bigint(events.map((event) => event.createdAt)),
  });
  await session.run(
    sql`INSERT INTO platform_audit (${fields})
        SELECT event.id, event.type, event.key_id, event.user_id, event.org_id, event.payload, event.at FROM ${rows}
        WHERE TRUE ON CONFLICT (id) DO NOTHING`,
  );
}

/** By the index of the first of these that is asked for; the others are asked of each row. */
function listOf(
  { type, from, to, keyId, impersonatedOrgId }: PlatformEventFilter,
  after?: Cursor,
): BoundedList {
  const [first, ...asked] = [
    ...(keyId === undefined ? [] : [sql`platform_key_id = ${keyId}`]),
    ...(impersonatedOrgId === undefined ? [] : [sql`impersonated_org_id = ${impersonatedOrgId}`]),
    ...(type === undefined ? [] : [sql`event_type = ${type}`]),
  ];
  return {
    columns: fields,
    from: sql.raw("platform_audit"),
    served: [
      ...(first ? [first] : []),
      ...(from === undefined ? [] : [sql`created_at >= ${from}`]),
      ...(to === undefined ? [] : [sql`created_at <= ${to}`]),
      ...(after ? [sql`(created_at, id) < (${sql.bigint(after.at)}, ${after.id})`] : []),
    ],
    asked,
    order: sql.raw("created_at DESC, id DESC"),
  };
}

/** Newest first, after the cursor; of two conditions one is asked of so many rows only. */
export async function eventsOf(
  store: Pick<Store, "all" | "one">,
  filter: PlatformEventFilter,
  { after, limit }: { after: Cursor | undefined; limit: number },
): Promise<BoundedPage<PlatformEvent>> {
  const page = await lookThrough<PlatformEventColumns>(store, listOf(filter, after), { limit });
  return { ...page, found: page.found.map(toEvent), end: page.end && toEvent(page.end) };
}

export const countEvents = (store: Pick<Store, "one">, filter: PlatformEventFilter): Promise<BoundedCount> =>
  countLooked(store, listOf(filter));

/** Answers how many went. */
export const forgetBefore = (session: Session, before: Instant, most: number): Promise<number> =>
  session.run(
    sql`DELETE FROM platform_audit WHERE id IN (
          SELECT id FROM platform_audit WHERE created_at < ${before} ORDER BY created_at, id LIMIT ${most})`,
  );
