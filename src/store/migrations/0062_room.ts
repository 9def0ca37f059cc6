import type { StoreEngine } from "../store.ts";

/**
 * Room and vacuum for tables that many rows go through. A run's history begins with the run and ends with it, behind the
 * beginnings of later runs: the index leaves room for that, or each of its full pages would split in halves. What changes
 * here is written by later inserts and vacuums: no row is touched.
 */
export const room = {
  version: 62,
  name: "room",
  compatible: true,
  statements: (engine: StoreEngine): string[] =>
    engine === "postgres"
      ? [
          "ALTER INDEX run_history_pkey SET (fillfactor = 60)",
          // It is small, and claims walk over what is dead in it: vacuum shall not rest between its pages.
          "ALTER TABLE executions SET (autovacuum_vacuum_cost_delay = 0)",
          // A fifth of a table that keeps a month of runs would be six days of expired ones.
          ...["events", "runs", "steps", "run_history"].map(
            (table) =>
              `ALTER TABLE ${table} SET (autovacuum_vacuum_scale_factor = 0.05,
                autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02)`,
          ),
        ]
      : [],
};
