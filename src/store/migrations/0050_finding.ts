import type { StoreEngine } from "../store.ts";

/** Attributes that runs are found by, and groups of their failures. */
export const finding = {
  version: 50,
  name: "finding",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const hot =
      engine === "postgres"
        ? " WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        : "";
    return [
      `CREATE TABLE run_attribute_names (
        environment_id TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, created_at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, name))`,
      // `value` is the first letter of its type and a text that sorts as the values do; `created_at` is the run's.
      `CREATE TABLE run_attributes (
        environment_id TEXT NOT NULL, run_id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
        created_at BIGINT NOT NULL, PRIMARY KEY (run_id, name))`,
      "CREATE INDEX run_attributes_by_value ON run_attributes (environment_id, name, value, created_at, run_id)",
      "ALTER TABLE runs ADD COLUMN error_group TEXT",
      `CREATE INDEX runs_by_error ON runs (environment_id, error_group, created_at, id)
        WHERE error_group IS NOT NULL`,
      `CREATE TABLE error_groups (
        environment_id TEXT NOT NULL, id TEXT NOT NULL, function_id TEXT NOT NULL, code TEXT NOT NULL,
        message TEXT NOT NULL, frame TEXT NOT NULL, count BIGINT NOT NULL, first_seen_at BIGINT NOT NULL,
        last_seen_at BIGINT NOT NULL, sample_run_id TEXT NOT NULL, PRIMARY KEY (environment_id, id))${hot}`,
      "CREATE INDEX error_groups_by_time ON error_groups (environment_id, last_seen_at)",
      `CREATE INDEX error_groups_by_function ON error_groups (environment_id, function_id, last_seen_at)`,
    ];
  },
};
