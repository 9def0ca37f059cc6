import type { Instant } from "../../../../kit/clock.ts";
import { integrityRowsMax, overdueMs } from "../../../../kit/limits.ts";
import { type Sql, sql } from "../../../../kit/sql.ts";
import type { Store } from "../../../../store/store.ts";
import { violationsOf } from "../../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../../record/integrity/service.ts";
import { runPlace, signalPlace, streamPlace } from "../../waits/rules.ts";

/** Of one place, or of all keys; those of runs that a person holds are left alone, and new ones. */
const waitsIn = (environmentId: string, place: Sql): Sql => sql`(SELECT w.* FROM waits w
    WHERE w.environment_id = ${environmentId} AND ${place} AND w.place IS NOT NULL AND w.met IS NULL
    ORDER BY w.place, w.subject, w.run_id, w.step_id LIMIT ${integrityRowsMax}) w
  JOIN executions e ON e.run_id = w.run_id AND e.state = 'waiting' AND w.due_at IS NULL`;

/** Waits whose state was there long ago, and those whose look is overdue. */
export const statesCheck = (store: Pick<Store, "all">, clock: { now(): Instant }): IntegrityCheck => ({
  name: "waits.unmet",
  about: "Runs that wait for an entity, a key or a child which has long been as they want it.",
  async run(environmentId) {
    const late = clock.now() - overdueMs;
    return violationsOf(
      await store.all<{
        id: string;
        at: Instant;
      }>(sql`SELECT w.run_id AS id, s.updated_at AS at, w.step_id AS step
          FROM ${waitsIn(environmentId, sql`w.place = ${streamPlace}`)}
          JOIN streams s ON s.environment_id = w.environment_id AND s.entity_id = w.subject
          WHERE s.version >= w.bound AND s.updated_at <= ${late}
        UNION ALL SELECT w.run_id, r.ended_at, w.step_id FROM ${waitsIn(environmentId, sql`w.place = ${runPlace}`)}
          JOIN runs r ON r.id = w.subject AND r.environment_id = w.environment_id
          WHERE r.status <> 'active' AND r.ended_at <= ${late}
        UNION ALL SELECT w.run_id, g.sent_at, w.step_id FROM ${waitsIn(environmentId, sql`w.place = ${signalPlace}`)}
          JOIN run_signals g ON g.run_id = w.run_id AND g.name = w.subject AND g.taken_at IS NULL
          WHERE g.sent_at <= ${late}
        UNION ALL SELECT w.run_id, k.created_at, w.step_id
          FROM ${waitsIn(environmentId, sql`w.place > 'key:' AND w.place < 'key;'`)}
          JOIN kv_buckets b ON b.environment_id = w.environment_id AND b.name = substr(w.place, 5) AND b.deleted_at IS NULL
          JOIN kv_keys k ON k.environment_id = b.environment_id AND k.bucket_id = b.id AND k.key = w.subject
          WHERE k.created_at <= ${late} AND ((w.test = 'changed' AND k.revision > w.bound)
            OR (w.test = 'absent' AND k.operation = 'delete') OR (k.operation = 'put' AND k.expires_at IS NULL
              AND (w.test = 'exists' OR (w.test = 'equals' AND k.value = w.wanted))))
        UNION ALL SELECT w.run_id, w.due_at, w.step_id FROM (SELECT d.run_id, d.due_at, d.step_id FROM waits d
          WHERE d.environment_id = ${environmentId} AND d.due_at IS NOT NULL AND d.due_at <= ${late}
          ORDER BY d.due_at, d.run_id, d.step_id LIMIT ${integrityRowsMax}) w WHERE w.due_at > 0`),
    );
  },
});
