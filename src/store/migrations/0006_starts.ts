import type { StoreEngine } from "../store.ts";

/** Starts that wait: for repetitions to cease, or for their hour. */
export const starts = {
  version: 6,
  name: "starts",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const hot =
      engine === "postgres"
        ? " WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        : "";
    return [
      // Armed debounce entries; `id` is the hash of environment, function and key. Leave when they fire or are cancelled,
      // and with their function. Retention keeps the events from the least `event_position` of an environment on.
      `CREATE TABLE debounces (
        id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL, function_version BIGINT NOT NULL,
        debounce_key TEXT NOT NULL, event_id TEXT NOT NULL, event_position BIGINT NOT NULL, period_ms BIGINT NOT NULL,
        max_wait_ms BIGINT NOT NULL, first_at BIGINT NOT NULL, armed_at BIGINT NOT NULL, fires_at BIGINT NOT NULL)${hot}`,
      // No index but the key holds the id: a plan made while the table was empty has no other way to it.
      "CREATE INDEX debounces_due ON debounces (fires_at)",
      "CREATE INDEX debounces_by_environment ON debounces (environment_id, function_id)",

      // Cron triggers and their next slots; `expected_count` = `fired_count` + `missed_count`. Go with their trigger.
      `CREATE TABLE schedules (
        environment_id TEXT NOT NULL, function_id TEXT NOT NULL, place BIGINT NOT NULL, expression TEXT NOT NULL,
        event_name TEXT NOT NULL, next_at BIGINT, expected_count BIGINT NOT NULL, fired_count BIGINT NOT NULL,
        missed_count BIGINT NOT NULL, moved_by TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, function_id, place))${hot}`,
      "CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL",
      // The definitions that an environment's schedules were last made from.
      "ALTER TABLE heads ADD COLUMN schedules_version BIGINT NOT NULL DEFAULT -1",
      "CREATE INDEX heads_unscheduled ON heads (environment_id) WHERE schedules_version <> definitions_version",
    ];
  },
};
