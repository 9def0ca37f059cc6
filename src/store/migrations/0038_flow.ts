import type { StoreEngine } from "../store.ts";

/** What led to what in an environment, an hour a row, and how much happened in it, a minute a row. */
export const flow = {
  version: 38,
  name: "flow",
  compatible: true,
  statements: (_engine: StoreEngine): string[] => [
    // The row with neither source nor target counts what found no room.
    `CREATE TABLE flow_edges (
      environment_id TEXT NOT NULL, kind TEXT NOT NULL, hour BIGINT NOT NULL, source TEXT NOT NULL,
      target TEXT NOT NULL, count BIGINT NOT NULL, PRIMARY KEY (environment_id, kind, hour, source, target))`,
    // `+ 0` keeps a map's query off it, which would read the hour of every environment.
    "CREATE INDEX flow_edges_age ON flow_edges ((hour + 0))",
    `CREATE TABLE flow_minutes (
      environment_id TEXT NOT NULL, minute BIGINT NOT NULL, events BIGINT NOT NULL, started BIGINT NOT NULL,
      completed BIGINT NOT NULL, failed BIGINT NOT NULL, cancelled BIGINT NOT NULL,
      PRIMARY KEY (environment_id, minute))`,
    "CREATE INDEX flow_minutes_age ON flow_minutes ((minute + 0))",
  ],
};
