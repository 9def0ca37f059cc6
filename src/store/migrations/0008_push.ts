import type { StoreEngine } from "../store.ts";

/** Secrets of environments, and what is known of endpoints that are called. */
export const push = {
  version: 8,
  name: "push",
  compatible: true,
  statements: (_engine: StoreEngine): string[] => [
    // Kept until deleted by their owners; `sealed` is bound to the row's id (keyring).
    `CREATE TABLE secrets (
      environment_id TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL, revision BIGINT NOT NULL, description TEXT,
      sealed TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
      PRIMARY KEY (environment_id, name))`,
    // Endpoints that failed lately; forgotten when a call succeeds, else limits.breakerForgottenMs after the last failure.
    `CREATE TABLE breakers (
      environment_id TEXT NOT NULL, function_id TEXT NOT NULL, endpoint_url TEXT NOT NULL, fails BIGINT NOT NULL,
      opened_at BIGINT, trial_until BIGINT, last_failure_at BIGINT NOT NULL,
      PRIMARY KEY (environment_id, function_id, endpoint_url))`,
    "CREATE INDEX functions_in_push ON functions (environment_id, id) WHERE mode = 'push'",
    "CREATE INDEX breakers_by_time ON breakers (last_failure_at)",
  ],
};
