import type { StoreEngine } from "../store.ts";

/**
 * A run is found by the primary key alone. Where an index by something else had the run's id as a key column, too, PostgreSQL took
 * it for finding runs by id once a table had been counted while it was empty, as `executions` is between bursts: it then read the
 * whole index for each flush. An expression keeps the order and answers to no comparison of ids.
 */
export const oneWay = {
  version: 58,
  name: "one way",
  compatible: true,
  statements: (engine: StoreEngine): string[] =>
    engine === "postgres"
      ? [
          "DROP INDEX executions_by_lane",
          `CREATE INDEX executions_by_lane
            ON executions (environment_id, function_id, state, wake_at, (run_id || ''))`,
        ]
      : [],
};
