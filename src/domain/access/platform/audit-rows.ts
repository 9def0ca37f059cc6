import type { Instant } from "../../../kit/clock.ts";
import { countCap } from "../../../kit/limits.ts";
import type { Cursor } from "../../../kit/page.ts";
import { column, type Sql, sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";

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

interface PlatformEventColumns {
  id: string;
  event_type: string;
  platform_key_id: string;
  platform_user_id: string;
  impersonated_org_id: string;
  payload: string;
  created_at: number;
}

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
    id: column.text(events.map((event) => event.id)),
    type: column.text(events.map((event) => event.type)),
    key_id: column.text(events.map((event) => event.keyId)),
    user_id: column.text(events.map((event) => event.userId)),
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

function conditionsOf(filter: PlatformEventFilter): Sql[] {
  const { type, from, to, keyId, impersonatedOrgId } = filter;
  return [
    ...(type === undefined ? [] : [sql`event_type = ${type}`]),
    ...(keyId === undefined ? [] : [sql`platform_key_id = ${keyId}`]),
    ...(impersonatedOrgId === undefined ? [] : [sql`impersonated_org_id = ${impersonatedOrgId}`]),
    ...(from === undefined ? [] : [sql`created_at >= ${from}`]),
    ...(to === undefined ? [] : [sql`created_at <= ${to}`]),
  ];
}

/** Newest first, after the cursor. */
export async function eventsOf(
  store: Pick<Store, "all">,
  filter: PlatformEventFilter,
  page: { after: Cursor | undefined; limit: number },
): Promise<PlatformEvent[]> {
  const { after, limit } = page;
  const conditions = conditionsOf(filter);
  if (after) conditions.push(sql`(created_at, id) < (${sql.bigint(after.at)}, ${after.id})`);
  const rows = await store.all<PlatformEventColumns>(
    sql`SELECT ${fields} FROM platform_audit ${sql.where(conditions)}
        ORDER BY created_at DESC, id DESC LIMIT ${limit}`,
  );
  return rows.map(toEvent);
}

/** Counted up to `countCap`. */
export async function countEvents(store: Pick<Store, "one">, filter: PlatformEventFilter): Promise<number> {
  const row = await store.one<{ count: number }>(
    sql`SELECT count(*) AS count FROM (
          SELECT id FROM platform_audit ${sql.where(conditionsOf(filter))} LIMIT ${countCap}) AS counted`,
  );
  return row?.count ?? 0;
}

/** Answers how many went. */
export const forgetBefore = (session: Session, before: Instant, most: number): Promise<number> =>
  session.run(
    sql`DELETE FROM platform_audit WHERE id IN (
          SELECT id FROM platform_audit WHERE created_at < ${before} ORDER BY created_at, id LIMIT ${most})`,
  );
