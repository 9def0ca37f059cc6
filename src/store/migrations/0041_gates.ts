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
    "CREATE INDEX run_deadlines_by_time ON run_deadlines (due_at)",
    "CREATE INDEX run_deadlines_by_environment ON run_deadlines (environment_id, (due_at + 0)) WHERE due_at >= 0",
  ],
};
