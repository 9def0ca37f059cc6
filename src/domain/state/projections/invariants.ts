import type { Instant } from "../../../kit/clock.ts";
import { integrityRowsMax } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";

/** A cursor beyond the end of its log would skip the events that are logged next. */
export const projectionCheck = (store: Pick<Store, "all">): IntegrityCheck => ({
  name: "projections.cursor",
  about:
    "Projections whose cursor is beyond the end of the log or beyond what was delivered, or that have no generation to read.",
  run: async (environmentId) =>
    violationsOf(
      await store.all<{ id: string; at: Instant }>(sql`SELECT name AS id, updated_at AS at FROM (
          SELECT p.name, p.updated_at, g.cursor_position, g.position, g.delivered,
            (SELECT h.position FROM heads h WHERE h.environment_id = ${environmentId}) AS last
          FROM projections p LEFT JOIN projection_generations g ON g.environment_id = p.environment_id
            AND g.name = p.name AND g.generation = p.generation AND g.dropped_at IS NULL
          WHERE p.environment_id = ${environmentId} ORDER BY p.name LIMIT ${integrityRowsMax}) looked
        WHERE cursor_position IS NULL OR position > COALESCE(last, 0) OR cursor_position > position
          OR cursor_position > delivered`),
    ),
});
