import type { Instant } from "../../../kit/clock.ts";
import { integrityRowsMax } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";

/** A place beyond the end of the log would skip the events that are logged next. */
export const endpointsCheck = (store: Pick<Store, "all">): IntegrityCheck => ({
  name: "webhooks.position",
  about: "Endpoints of outbound webhooks whose position is beyond the end of the log.",
  run: async (environmentId) =>
    violationsOf(
      await store.all<{
        id: string;
        at: Instant;
      }>(sql`SELECT id, updated_at AS at, position FROM webhook_endpoints
        WHERE environment_id = ${environmentId} AND position >
          (SELECT COALESCE(max(h.position), 0) FROM heads h WHERE h.environment_id = ${environmentId})
        LIMIT ${integrityRowsMax}`),
    ),
});
