/** What lets runs of a function begin, or skips them (`runs/gates.ts`), and what cancels them in time. */
export const gates = {
  version: 41,
  name: "gates",
  compatible: true,
  statements: (): string[] => [
    // `starts_at` and `starts` are lists `{1,2}` of one length: how many began, in slices of time that are not over.
    // `run_id` is the run that a singleton's key is held by, `replaced` the one before it.
    `CREATE TABLE start_gates (
      id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL, starts_at TEXT NOT NULL,
      starts TEXT NOT NULL, run_id TEXT, replaced TEXT, granted BIGINT NOT NULL, expires_at BIGINT NOT NULL)`,
    "CREATE INDEX start_gates_by_expiry ON start_gates (expires_at)",
    "CREATE INDEX start_gates_by_environment ON start_gates (environment_id)",
    // `cause` is why the run is cancelled at `due_at`: see `runs/deadlines.ts`.
    `CREATE TABLE run_deadlines (
      run_id TEXT NOT NULL, environment_id TEXT NOT NULL, cause TEXT NOT NULL, due_at BIGINT NOT NULL,
      PRIMARY KEY (run_id, cause))`,
    // Taken by a node until `wake_at`, which is `due_at` before that.
    `CREATE TABLE delayed_events (
      id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, data TEXT NOT NULL,
      metadata TEXT, idempotency_key TEXT, run_id TEXT, start_refused BIGINT NOT NULL, due_at BIGINT NOT NULL,
      wake_at BIGINT NOT NULL, created_at BIGINT NOT NULL)`,
    "CREATE INDEX delayed_events_by_wake ON delayed_events (wake_at)",
    "CREATE INDEX delayed_events_wake_by_environment ON delayed_events (environment_id, (wake_at + 0)) WHERE wake_at >= 0",
    "CREATE INDEX delayed_events_by_time ON delayed_events (environment_id, due_at, id)",
    "CREATE INDEX run_deadlines_by_time ON run_deadlines (due_at)",
    "CREATE INDEX run_deadlines_by_environment ON run_deadlines (environment_id, (due_at + 0)) WHERE due_at >= 0",
  ],
};
