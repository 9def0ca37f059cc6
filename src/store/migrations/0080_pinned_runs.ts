import type { StoreEngine } from "../store.ts";

/** The deployment that a run belongs to from its first claim on; null of functions without `pin`. */
export const pinnedRuns = {
  version: 80,
  name: "runs pinned to deployments",
  compatible: true,
  statements: (engine: StoreEngine): string[] => [
    `ALTER TABLE executions ADD COLUMN pinned_to TEXT${engine === "postgres" ? ' COLLATE "C"' : ""}`,
    `CREATE INDEX executions_pinned ON executions (environment_id, function_id, pinned_to, state, run_id)
      WHERE pinned_to IS NOT NULL`,
  ],
};
