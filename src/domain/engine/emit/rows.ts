import type { Instant } from "../../../kit/clock.ts";
import { columnsOf } from "../../../kit/columns.ts";
import { sql } from "../../../kit/sql.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { RowOf } from "../../../store/tables/row.ts";

export interface UsedEventKey
  extends RowOf<"idempotency_keys", "environment_id, key, kind, function_id, event_id, run_ids"> {
  position: number | null;
  entity_version: number | null;
}

/** What the first use of each key came to. */
export function findKeys(
  store: Pick<Store, "all" | "seams">,
  keys: readonly { environmentId: string; key: string }[],
): Promise<UsedEventKey[]> {
  return store.all(sql`SELECT k.environment_id, k.key, k.kind, k.function_id, k.event_id, k.run_ids, v.position,
      v.entity_version
    FROM ${store.seams.rowsFrom("i", {
      ...columnsOf(keys, { text: "environmentId key" }),
    })} JOIN idempotency_keys k ON k.environment_id = i.environment_id AND k.key = i.key
      LEFT JOIN events v ON v.id = k.event_id AND v.environment_id = k.environment_id`);
}

/** Those of the runs that there are. */
export async function findRuns(store: Pick<Store, "all">, ids: readonly string[]): Promise<string[]> {
  const rows = await store.all<{ id: string }>(sql`SELECT id FROM runs WHERE id IN ${sql.list(ids)}`);
  return rows.map(({ id }) => id);
}

/** Forgets keys older than they are kept for; a slice at a time. */
export function purgeKeys(session: Session, before: Instant, limit: number): Promise<number> {
  return session.run(sql`DELETE FROM idempotency_keys WHERE (environment_id, key) IN (
    SELECT environment_id, key FROM idempotency_keys WHERE created_at < ${before}
    ORDER BY created_at LIMIT ${limit})`);
}
