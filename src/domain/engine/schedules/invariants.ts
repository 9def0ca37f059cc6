import type { Instant } from "../../../kit/clock.ts";
import { integrityRowsMax, overdueMs } from "../../../kit/limits.ts";
import { sql } from "../../../kit/sql.ts";
import type { Store } from "../../../store/store.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";

/** The ledger of each schedule adds up, and no slot passes unseen. */
export const scheduleChecks = (store: Store, clock: { now(): Instant }): IntegrityCheck[] => [
  {
    name: "cron.ledger",
    about: "Schedules whose slots are not all either fired or missed.",
    run: async (environmentId) =>
      violationsOf(
        await store.all<{
          id: string;
          at: Instant;
        }>(sql`SELECT function_id || ':' || place AS id, updated_at AS at,
            expected_count AS expected, fired_count AS fired, missed_count AS missed
          FROM (SELECT * FROM schedules WHERE environment_id = ${environmentId} LIMIT ${integrityRowsMax}) s
          WHERE expected_count <> fired_count + missed_count`),
      ),
  },
  {
    name: "cron.overdue",
    about: "Schedules whose next slot passed without anyone firing or missing it.",
    run: async (environmentId) => {
      const late = clock.now() - overdueMs;
      return violationsOf(
        await store.all<{
          id: string;
          at: Instant;
        }>(sql`SELECT function_id || ':' || place AS id, next_at AS at
          FROM (SELECT * FROM schedules WHERE environment_id = ${environmentId} LIMIT ${integrityRowsMax}) s
          WHERE next_at <= ${late}`),
      );
    },
  },
];
