import { integrityRowsMax } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";

/** The streams that moved last: their versions are compared with their events. */
export const streamsCheck = (store: Pick<Store, "one">): IntegrityCheck => ({
  name: "streams.heads",
  about:
    "Streams among those of the newest appends whose version is not that of their last event, or with a gap below it.",
  async run(environmentId) {
    const row = await store.one<{ count: number; id: string | null; at: number | null }>(
      sql`SELECT count(*) AS count, min(s.entity_id) AS id, min(s.updated_at) AS at
        FROM (SELECT DISTINCT v.entity_id FROM (
          SELECT entity_id FROM events WHERE environment_id = ${environmentId}
          ORDER BY position DESC LIMIT ${integrityRowsMax}) v WHERE v.entity_id IS NOT NULL) e
        LEFT JOIN streams s ON s.environment_id = ${environmentId} AND s.entity_id = e.entity_id
        WHERE s.entity_id IS NULL
          OR s.version <> (SELECT max(v.entity_version) FROM events v
            WHERE v.environment_id = ${environmentId} AND v.entity_id = e.entity_id)
          OR s.version <> (SELECT count(*) FROM events v
            WHERE v.environment_id = ${environmentId} AND v.entity_id = e.entity_id)`,
    );
    if (!row || row.count === 0) return { count: 0, oldest: null };
    return { count: row.count, oldest: { id: row.id ?? "stream", at: row.at ?? 0 } };
  },
});
