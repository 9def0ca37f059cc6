/** Events that wait to start one run together, and what an environment may use. */
export const batches = {
  version: 49,
  name: "batches",
  compatible: true,
  statements: (): string[] => [
    // What of a function and a key is still open: `count` events from `first_position` on.
    `CREATE TABLE batches (
      id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL, function_version BIGINT NOT NULL,
      size BIGINT NOT NULL, timeout_ms BIGINT NOT NULL, count BIGINT NOT NULL, bytes BIGINT NOT NULL,
      first_position BIGINT NOT NULL, closes_at BIGINT NOT NULL)`,
    "CREATE INDEX batches_due ON batches (closes_at)",
    "CREATE INDEX batches_due_by_environment ON batches (environment_id, (closes_at + 0)) WHERE closes_at >= 0",
    "CREATE INDEX batches_by_environment ON batches (environment_id, function_id)",
    // `run_id` is the run that the event was given to; NULL while its batch is open.
    `CREATE TABLE batch_events (
      environment_id TEXT NOT NULL, batch_id TEXT NOT NULL, position BIGINT NOT NULL, event_id TEXT NOT NULL,
      bytes BIGINT NOT NULL, at BIGINT NOT NULL, run_id TEXT, PRIMARY KEY (environment_id, batch_id, position))`,
    "CREATE INDEX batch_events_of_run ON batch_events (run_id, position) WHERE run_id IS NOT NULL",
    "CREATE INDEX batch_events_by_event ON batch_events (event_id)",
    // The limits are the lower of `platform` and `own`, which are JSON; what is not limited is NULL. `minute` is the one
    // that `minute_runs` began in, `active_runs` at least the runs that are not over, `bytes` those of the events kept.
    `CREATE TABLE quotas (
      environment_id TEXT PRIMARY KEY, platform TEXT NOT NULL, own TEXT NOT NULL, runs_per_minute BIGINT,
      stored_bytes BIGINT, concurrent_runs BIGINT, minute BIGINT NOT NULL, minute_runs BIGINT NOT NULL,
      active_runs BIGINT NOT NULL, bytes BIGINT NOT NULL, updated_at BIGINT NOT NULL)`,
  ],
};
