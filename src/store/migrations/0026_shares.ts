import type { Engine } from "../store.ts";

/** Due work is found by environment, so that each has its share; what functions an environment has is counted. */
export const shares = {
  version: 26,
  name: "shares",
  compatible: true,
  statements: (engine: Engine): string[] => {
    const counts =
      engine === "postgres"
        ? `definition_bytes = octet_length(definition), cron_count = (SELECT count(*)
            FROM json_array_elements(definition::json -> 'triggers') AS t(value) WHERE (t.value -> 'cron') IS NOT NULL)`
        : `definition_bytes = length(CAST(definition AS BLOB)), cron_count = (SELECT count(*)
            FROM json_each(definition, '$.triggers') t WHERE json_extract(t.value, '$.cron') IS NOT NULL)`;
    return [
      "CREATE INDEX schedules_due_by_environment ON schedules (environment_id, next_at) WHERE next_at IS NOT NULL",
      "CREATE INDEX debounces_due_by_environment ON debounces (environment_id, fires_at)",
      `CREATE INDEX executions_timeout_by_environment ON executions (environment_id, timeout_at)
        WHERE timeout_at IS NOT NULL`,
      `CREATE INDEX invocations_due_by_environment ON invocations
        (environment_id, due_at, parent_run_id, step_id)`,
      "CREATE INDEX child_ends_by_environment ON child_ends (environment_id, ended_at, child_run_id)",
      "CREATE INDEX outbox_due_by_environment ON outbox (kind, environment_id, due_at, id) WHERE dead_at IS NULL",
      // Of the definition; a node of before leaves them as they are.
      "ALTER TABLE functions ADD COLUMN cron_count BIGINT NOT NULL DEFAULT 0",
      "ALTER TABLE functions ADD COLUMN definition_bytes BIGINT NOT NULL DEFAULT 0",
      `UPDATE functions SET ${counts}`,
      "CREATE INDEX functions_counted ON functions (environment_id, cron_count, definition_bytes)",
    ];
  },
};
