import type { StoreEngine } from "../store.ts";

/** What runs wait for besides the time: events of the log, and runs that they started. */
export const waits = {
  version: 4,
  name: "waits",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const hot =
      engine === "postgres"
        ? " WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        : "";
    return [
      // `seen_position`: events after it are news to the run. `watched_at`: the run has waits of kind `cancel`.
      "ALTER TABLE executions ADD COLUMN seen_position BIGINT NOT NULL DEFAULT 0",
      "ALTER TABLE executions ADD COLUMN watched_at BIGINT",
      "ALTER TABLE executions ADD COLUMN parent_run_id TEXT",
      "ALTER TABLE runs ADD COLUMN depth BIGINT NOT NULL DEFAULT 0",
      "ALTER TABLE steps ADD COLUMN input TEXT",
      "ALTER TABLE steps ADD COLUMN wait_event_name TEXT",
      "ALTER TABLE steps ADD COLUMN wait_timeout_at BIGINT",
      // The run that the step started; also after it was yielded again, so that it starts no second one.
      "ALTER TABLE steps ADD COLUMN child_run_id TEXT",
      // Set where the handler's worker understands failed steps among the completed ones.
      "ALTER TABLE steps ADD COLUMN failure_told_at BIGINT",

      // A run's interest in an event; of kind `cancel`: an event that ends it. Go with the match, the deadline or the run.
      // `match_path` is '' for any event of the name, 'cel' with `expression`, else a path whose value has `value_hash`.
      // `fresh_at` is set until the matcher has looked at what was logged between `from_position` and its own cursor.
      `CREATE TABLE waits (
        run_id TEXT NOT NULL, kind TEXT NOT NULL, step_id TEXT NOT NULL, environment_id TEXT NOT NULL,
        event_name TEXT NOT NULL, match_path TEXT NOT NULL, value_hash TEXT NOT NULL, expression TEXT,
        from_position BIGINT NOT NULL, fresh_at BIGINT,
        PRIMARY KEY (run_id, kind, step_id))${hot}`,
      "CREATE INDEX waits_by_event ON waits (environment_id, event_name, match_path, value_hash, run_id, step_id)",
      "CREATE INDEX waits_fresh ON waits (environment_id, fresh_at, run_id) WHERE fresh_at IS NOT NULL",
      // How far the matcher has come in each log that ever had a wait; deleted with the environment. `generation` grows
      // whenever waits cease to be fresh: who read the waits before may not move the position past what they wait for.
      `CREATE TABLE matchers (
        environment_id TEXT PRIMARY KEY, position BIGINT NOT NULL, generation BIGINT NOT NULL DEFAULT 0)${hot}`,

      // Children that are still to be started, and ends that parents are still to be told; leave within moments.
      `CREATE TABLE invocations (
        parent_run_id TEXT NOT NULL, step_id TEXT NOT NULL, environment_id TEXT NOT NULL, function_id TEXT NOT NULL,
        kind TEXT NOT NULL, due_at BIGINT NOT NULL, created_at BIGINT NOT NULL,
        PRIMARY KEY (parent_run_id, step_id))${hot}`,
      "CREATE INDEX invocations_by_time ON invocations (due_at, parent_run_id, step_id)",
      `CREATE TABLE child_ends (
        child_run_id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, ended_at BIGINT NOT NULL)${hot}`,
      "CREATE INDEX child_ends_by_time ON child_ends (ended_at, child_run_id)",
    ];
  },
};
