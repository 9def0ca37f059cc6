import type { Instant } from "../../../kit/clock.ts";
import { integrityRowsMax } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";

/** A group whose position is beyond the end of its log would skip the entries that are logged next. */
export const groupCheck = (store: Pick<Store, "all">): IntegrityCheck => ({
  name: "groups.position",
  about:
    "Consumer groups whose position is beyond the end of their log, or that hold deliveries beyond their position.",
  run: async (environmentId) =>
    violationsOf(
      await store.all<{
        id: string;
        at: Instant;
      }>(sql`SELECT namespace || '/' || name AS id, updated_at AS at, position, last, held
        FROM (SELECT g.namespace, g.name, g.updated_at, g.position,
            (CASE WHEN g.log = 'events'
              THEN (SELECT h.position FROM heads h WHERE h.environment_id = ${environmentId})
              ELSE (SELECT t.position FROM topic_heads t WHERE t.environment_id = ${environmentId}) END) AS last,
            (SELECT max(d.position) FROM group_deliveries d WHERE d.environment_id = ${environmentId}
              AND d.group_id = g.id) AS held
          FROM consumer_groups g WHERE g.environment_id = ${environmentId}
          ORDER BY g.namespace, g.name LIMIT ${integrityRowsMax}) looked
        WHERE position > COALESCE(last, 0) OR held > position`),
    ),
});
