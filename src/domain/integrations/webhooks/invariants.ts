import type { Instant } from "../../../kit/clock.ts";
import { integrityRowsMax } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
import { deliveriesCheckedMax } from "./limits.ts";

/**
 * An event is logged after its delivery came: one whose delivery is younger than the oldest event of the log
 * has not expired. A repeat names the event of its first, which may have.
 */
export const deliveriesCheck = (store: Pick<Store, "all">): IntegrityCheck => ({
  name: "webhooks.deliveries",
  about: `Accepted deliveries without their event, among the newest ${deliveriesCheckedMax} deliveries.`,
  run: async (environmentId) =>
    violationsOf(
      await store.all<{
        id: string;
        at: Instant;
      }>(sql`SELECT d.id, d.created_at AS at, d.event_id AS event FROM (
          SELECT id, created_at, event_id, status, is_repeat FROM webhook_deliveries
          WHERE environment_id = ${environmentId} ORDER BY created_at DESC, id DESC LIMIT ${deliveriesCheckedMax}) d
        WHERE d.status = 'accepted' AND d.is_repeat = 0
          AND d.created_at > (SELECT v.at FROM events v WHERE v.environment_id = ${environmentId}
            ORDER BY v.position LIMIT 1)
          AND NOT EXISTS (SELECT 1 FROM events e WHERE e.id = d.event_id AND e.environment_id = ${environmentId})
        LIMIT ${integrityRowsMax}`),
    ),
});
