import type { StoreEngine } from "../store.ts";

/** Deletion of environments: what is left of them until all of their rows are gone. */
export const tenancy = {
  version: 13,
  name: "tenancy",
  compatible: true,
  statements: (_engine: StoreEngine): string[] => [
    "ALTER TABLE projects ADD COLUMN description TEXT",
    // The key that EnvironmentService makes and rotates; one that was deleted is made anew.
    "ALTER TABLE environments ADD COLUMN compat_key_id TEXT",
    "CREATE INDEX environments_by_project ON environments (project_id)",
    "CREATE INDEX api_keys_by_environment ON api_keys (environment_id)",
    // Tombstones: one row an environment that is no more, for ever. `purged_at` is set when no table has a row of it.
    `CREATE TABLE deleted_environments (
      id TEXT PRIMARY KEY, org_id TEXT NOT NULL, project_id TEXT, name TEXT NOT NULL,
      deleted_at BIGINT NOT NULL, purged_at BIGINT)`,
    "CREATE INDEX deleted_environments_by_time ON deleted_environments (deleted_at)",
    "CREATE INDEX deleted_environments_unpurged ON deleted_environments (deleted_at) WHERE purged_at IS NULL",
  ],
};
