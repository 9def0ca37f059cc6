import type { Instant } from "../../../kit/clock.ts";
import { integrityRowsMax, overdueMs } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";

export const batchesCheck = (store: Store, clock: { now(): Instant }): IntegrityCheck => ({
  name: "batches.overdue",
  about: "Batches of events whose time passed without anyone closing them.",
  run: async (environmentId) => {
    const late = clock.now() - overdueMs;
    return violationsOf(
      await store.all<{ id: string; at: Instant }>(sql`SELECT id, at, events FROM (
        SELECT environment_id, function_id || ':' || id AS id, closes_at AS at, count AS events FROM batches
        WHERE closes_at <= ${late} ORDER BY closes_at LIMIT ${integrityRowsMax}) due
      WHERE environment_id = ${environmentId}`),
    );
  },
});
