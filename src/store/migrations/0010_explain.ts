import type { StoreEngine } from "../store.ts";

/** What the sweeper did, and how long each environment keeps its past. */
export const explain = {
  version: 10,
  name: "explain",
  compatible: true,
  statements: (_engine: StoreEngine): string[] => [
    // One row an environment and check that ever had to be healed; gone with nothing: it is the count of a lifetime.
    `CREATE TABLE healings (
      environment_id TEXT NOT NULL, name TEXT NOT NULL, healed BIGINT NOT NULL, last_at BIGINT NOT NULL,
      PRIMARY KEY (environment_id, name))`,
    // Days that events and runs are kept; null takes the installation's settings, 0 keeps them for ever.
    "ALTER TABLE environments ADD COLUMN retention_days BIGINT",
  ],
};
