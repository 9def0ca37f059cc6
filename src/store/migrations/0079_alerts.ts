import type { StoreEngine } from "../store.ts";

/** The event of failed runs for environments that ask for it, and alerts with their rules and deliveries. */
export const alerts = {
  version: 79,
  name: "alerts and the event of failed runs",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const text = engine === "postgres" ? 'TEXT COLLATE "C"' : "TEXT";
    const vacuumed = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000";
    const changing = engine === "postgres" ? ` WITH (fillfactor = 70, ${vacuumed})` : "";
    const restless = engine === "postgres" ? ` WITH (fillfactor = 50, ${vacuumed})` : "";
    return [
      "ALTER TABLE environments ADD COLUMN tells_failures BIGINT",
      `CREATE TABLE failed_runs (run_id ${text} NOT NULL, failed_at BIGINT NOT NULL, environment_id ${text} NOT NULL,
      due_at BIGINT NOT NULL, PRIMARY KEY (run_id, failed_at))${changing}`,
      "CREATE INDEX failed_runs_due ON failed_runs (due_at, run_id)",
      "CREATE INDEX failed_runs_due_by_environment ON failed_runs (environment_id, (due_at + 0), run_id) WHERE due_at >= 0",
      `CREATE TABLE failure_counts (environment_id ${text} NOT NULL, function_id ${text} NOT NULL, count BIGINT NOT NULL,
      last_at BIGINT NOT NULL, PRIMARY KEY (environment_id, function_id))${restless}`,
      `CREATE TABLE alert_rules (environment_id ${text} NOT NULL, name ${text} NOT NULL, condition ${text} NOT NULL,
      function_id ${text}, bounds ${text} NOT NULL, targets ${text} NOT NULL, sealed ${text} NOT NULL,
      repeat_after_ms BIGINT NOT NULL, resolve_after_ms BIGINT NOT NULL, silenced_until BIGINT, seen ${text},
      look_at BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name))${changing}`,
      "CREATE INDEX alert_rules_by_look ON alert_rules (look_at)",
      `CREATE TABLE alerts (environment_id ${text} NOT NULL, id ${text} NOT NULL, rule ${text} NOT NULL,
      condition ${text} NOT NULL, subject ${text} NOT NULL, detail ${text} NOT NULL, count BIGINT NOT NULL,
      opened_at BIGINT NOT NULL, seen_at BIGINT NOT NULL, told_at BIGINT, resolved_at BIGINT, resolved_by ${text},
      ended_at BIGINT, PRIMARY KEY (environment_id, id))${changing}`,
      "CREATE UNIQUE INDEX alerts_open ON alerts (environment_id, rule, subject) WHERE ended_at IS NULL",
      "CREATE INDEX alerts_ended ON alerts (ended_at) WHERE ended_at IS NOT NULL",
      `CREATE TABLE alert_deliveries (environment_id ${text} NOT NULL, alert_id ${text} NOT NULL, target ${text} NOT NULL,
      shown ${text} NOT NULL, kind ${text} NOT NULL, number BIGINT NOT NULL, state ${text} NOT NULL,
      attempts BIGINT NOT NULL, due_at BIGINT NOT NULL, last_error ${text}, sent_at BIGINT,
      PRIMARY KEY (environment_id, alert_id, target))${changing}`,
      "CREATE INDEX alert_deliveries_due ON alert_deliveries (due_at) WHERE state = 'waiting'",
    ];
  },
};
