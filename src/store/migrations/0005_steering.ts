import type { StoreEngine } from "../store.ts";

/** Runs that people hold and resume, and the history of functions. */
export const steering = {
  version: 5,
  name: "steering",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const clustered = engine === "postgres" ? "" : " WITHOUT ROWID";
    return [
      // What a held execution was before, and since when and by whom it is held.
      "ALTER TABLE executions ADD COLUMN held_from TEXT",
      "ALTER TABLE executions ADD COLUMN held_wake_at BIGINT",
      "ALTER TABLE executions ADD COLUMN held_at BIGINT",
      "ALTER TABLE executions ADD COLUMN held_by TEXT",
      // The last resume of a run: refuses a second one for limits.resumeWindowMs, and says what is still to be done
      // (`plan`, until it is done) or undone. Forgotten after that time by the duty `retention`.
      `CREATE TABLE resumes (
        run_id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, resumed_at BIGINT NOT NULL, resumed_by TEXT NOT NULL,
        plan TEXT)`,
      "CREATE INDEX resumes_by_time ON resumes (resumed_at)",
      // Every change of a function as a snapshot, the stream `svc:fn:{function}`; outlives the function.
      `CREATE TABLE function_history (
        environment_id TEXT NOT NULL, function_id TEXT NOT NULL, entity_version BIGINT NOT NULL, event_id TEXT NOT NULL,
        change_type TEXT NOT NULL, snapshot TEXT NOT NULL, change_reason TEXT, actor_id TEXT NOT NULL,
        recorded_at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, function_id, entity_version))${clustered}`,
    ];
  },
};
