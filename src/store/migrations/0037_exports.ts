import type { StoreEngine } from "../store.ts";

/** Exports of orgs under way, and imports that are not finished. */
export const exports = {
  version: 37,
  name: "exports",
  compatible: true,
  statements: (_engine: StoreEngine): string[] => [
    // Who exports the org, and until when it is believed to.
    `CREATE TABLE exports (
      org_id TEXT PRIMARY KEY, holder TEXT NOT NULL, lease_until BIGINT NOT NULL)`,
    // `sum` is the file's, `line_count` how many of its lines are in the store. `environment_ids` are JSON: rows of them are there
    // before the environments are.
    `CREATE TABLE imports (
      org_id TEXT PRIMARY KEY, sum TEXT NOT NULL, line_count BIGINT NOT NULL, environment_ids TEXT NOT NULL,
      started_at BIGINT NOT NULL)`,
  ],
};
