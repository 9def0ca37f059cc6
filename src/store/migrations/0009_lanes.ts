import type { StoreEngine } from "../store.ts";

/**
 * Concurrency limits. `executions.lane_id` stays NULL for functions without a limit, and such rows are in none of the two
 * indexes: the queue of each lane, and the leases counted against its limit.
 */
export const lanes = {
  version: 9,
  name: "lanes",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const hot =
      engine === "postgres"
        ? " WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        : "";
    const limit =
      engine === "postgres"
        ? "CAST(CAST(definition AS json) #>> '{concurrency,limit}' AS BIGINT)"
        : "json_extract(definition, '$.concurrency.limit')";
    return [
      "ALTER TABLE functions ADD COLUMN lane_limit BIGINT",
      `UPDATE functions SET lane_limit = ${limit}`,
      "ALTER TABLE executions ADD COLUMN lane_id TEXT",
      `CREATE INDEX executions_queued_in_lane ON executions (lane_id, wake_at, run_id)
        WHERE state = 'queued' AND lane_id IS NOT NULL`,
      "CREATE INDEX executions_leased_in_lane ON executions (lane_id) WHERE state = 'leased' AND lane_id IS NOT NULL",
      // Forgotten after limits.laneIdleMsMax without a claim. `claims` rises with every claim: whoever locks the row and finds
      // it as it was in the statement's snapshot knows that the leases of that snapshot are all there are.
      `CREATE TABLE lanes (
        id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL, claims BIGINT NOT NULL,
        created_at BIGINT NOT NULL, last_used_at BIGINT NOT NULL)${hot}`,
      "CREATE INDEX lanes_by_function ON lanes (environment_id, function_id)",
    ];
  },
};
