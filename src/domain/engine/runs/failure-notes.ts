import type { Instant } from "../../../kit/clock.ts";
import { type Sql, sql } from "../../../kit/sql.ts";

/** Of the rows `v` of ends, those of environments that are told of failures. */
export const noteFailedRuns = (source: Sql, now: Instant): Sql => sql`INSERT INTO failed_runs
    (run_id, failed_at, environment_id, due_at)
  SELECT v.run_id, ${sql.bigint(now)}, v.environment_id, ${sql.bigint(now)} FROM ${source}
  WHERE v.error_group IS NOT NULL
    AND (SELECT e.tells_failures FROM environments e WHERE e.id = v.environment_id) IS NOT NULL
  ON CONFLICT (run_id, failed_at) DO NOTHING`;

/** Counts them by function for alerts, in environments that have a rule about failed runs. */
export const countForAlerts = (source: Sql, now: Instant): Sql => sql`INSERT INTO failure_counts AS c
    (environment_id, function_id, count, last_at)
  SELECT v.environment_id, v.group_function, count(*), ${sql.bigint(now)} FROM ${source}
  WHERE v.error_group IS NOT NULL AND EXISTS (SELECT 1 FROM alert_rules a
    WHERE a.environment_id = v.environment_id AND a.condition = 'run_failed')
  GROUP BY v.environment_id, v.group_function ORDER BY v.environment_id, v.group_function
  ON CONFLICT (environment_id, function_id) DO UPDATE SET count = c.count + excluded.count,
    last_at = excluded.last_at`;
