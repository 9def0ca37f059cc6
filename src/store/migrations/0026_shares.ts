import type { StoreEngine } from "../store.ts";

/** Due work is found by environment, so that each has its share; what functions an environment has is counted. */
export const shares = {
  version: 26,
  name: "shares",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    // Definitions hold whatever their owners wrote into them, also escapes of what is no text for Postgres (U+0000, half
    // surrogates): it is read without any, or one of them would keep all nodes of this version from starting.
    const plain = String.raw`regexp_replace(definition, '\\(u[0-9a-fA-F]{4}|.)', '', 'g')::json`;
    const counts =
      engine === "postgres"
        ? `definition_bytes = octet_length(definition), cron_count = (SELECT count(*)
            FROM json_array_elements(${plain} -> 'triggers') AS t(value) WHERE (t.value -> 'cron') IS NOT NULL)`
        : `definition_bytes = length(CAST(definition AS BLOB)), cron_count = (SELECT count(*)
            FROM json_each(definition, '$.triggers') t WHERE json_extract(t.value, '$.cron') IS NOT NULL)`;
    // What every row fulfils is said all the same: so these serve nobody but who asks for it. A plan that was made while a
    // table was empty takes any index with the environment in front.
    return [
      "CREATE INDEX schedules_due_by_environment ON schedules (environment_id, (next_at + 0)) WHERE next_at IS NOT NULL",
      "CREATE INDEX debounces_due_by_environment ON debounces (environment_id, (fires_at + 0)) WHERE fires_at >= 0",
      `CREATE INDEX executions_timeout_by_environment ON executions (environment_id, (timeout_at + 0))
        WHERE timeout_at IS NOT NULL`,
      `CREATE INDEX invocations_due_by_environment ON invocations
        (environment_id, (due_at + 0), parent_run_id, step_id) WHERE due_at >= 0`,
      `CREATE INDEX child_ends_by_environment ON child_ends (environment_id, (ended_at + 0), child_run_id)
        WHERE ended_at >= 0`,
      "CREATE INDEX outbox_due_by_environment ON outbox (kind, environment_id, (due_at + 0), id) WHERE dead_at IS NULL",
      // Of the definition; a node of before leaves them as they are.
      "ALTER TABLE functions ADD COLUMN cron_count BIGINT NOT NULL DEFAULT 0",
      "ALTER TABLE functions ADD COLUMN definition_bytes BIGINT NOT NULL DEFAULT 0",
      `UPDATE functions SET ${counts}`,
      `CREATE INDEX functions_counted ON functions (environment_id, cron_count, definition_bytes)
        WHERE definition_bytes >= 0`,
    ];
  },
};
