import type { StoreEngine } from "../store.ts";

/** Attempts to log in, counted for all nodes together. */
export const loginAttempts = {
  version: 27,
  name: "login_attempts",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const hot =
      engine === "postgres"
        ? " WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        : "";
    return [
      // `key`: a hash of what is counted, so that no address and no mistyped password stands here. Leaves at `ends_at`.
      `CREATE TABLE login_attempts (key TEXT PRIMARY KEY, count BIGINT NOT NULL, ends_at BIGINT NOT NULL)${hot}`,
      "CREATE INDEX login_attempts_by_end ON login_attempts (ends_at)",
    ];
  },
};
