import type { Instant } from "../../../kit/clock.ts";
import { integrityRowsMax, overdueMs } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";

export const debounceCheck = (store: Store, clock: { now(): Instant }): IntegrityCheck => ({
  name: "debounces.overdue",
  about: "Debounced starts whose time passed without anyone firing them.",
  run: async (environmentId) => {
    const late = clock.now() - overdueMs;
    return violationsOf(
      await store.all<{ id: string; at: Instant }>(sql`SELECT id, at FROM (
        SELECT environment_id, function_id || ':' || debounce_key AS id, fires_at AS at FROM debounces
        WHERE fires_at <= ${late} ORDER BY fires_at LIMIT ${integrityRowsMax}) due
      WHERE environment_id = ${environmentId}`),
    );
  },
});
