import type { StoreEngine } from "../store.ts";

/** Actions on many runs, and what became of each. */
export const repairs = {
  version: 45,
  name: "repairs",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const hot =
      engine === "postgres"
        ? " WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        : "";
    return [
      // `holder` works until `lease_until`; `fence` grows with each, and with each pause. `selected` runs down to
      // the place `cursor_at`, `cursor_id` are rows of `repair_items`. `counts` are of the end.
      `CREATE TABLE repairs (
        environment_id TEXT NOT NULL, id TEXT NOT NULL, action TEXT NOT NULL, status TEXT NOT NULL, phase TEXT NOT NULL,
        reason TEXT NOT NULL, request TEXT NOT NULL, starter TEXT NOT NULL, started_by TEXT NOT NULL, note TEXT NOT NULL,
        cursor_at BIGINT, cursor_id TEXT, selected BIGINT NOT NULL, counts TEXT,
        holder TEXT, fence BIGINT NOT NULL, lease_until BIGINT NOT NULL, due_at BIGINT NOT NULL,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, ended_at BIGINT, PRIMARY KEY (environment_id, id))${hot}`,
      "CREATE INDEX repairs_by_time ON repairs (environment_id, created_at, id)",
      "CREATE INDEX repairs_open ON repairs (due_at) WHERE ended_at IS NULL",
      "CREATE INDEX repairs_ended ON repairs (ended_at) WHERE ended_at IS NOT NULL",
      `CREATE TABLE repair_items (
        environment_id TEXT NOT NULL, repair_id TEXT NOT NULL, run_id TEXT NOT NULL, function_id TEXT NOT NULL,
        outcome TEXT NOT NULL, error TEXT, tries BIGINT NOT NULL, at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, repair_id, run_id))${hot}`,
      "CREATE INDEX repair_items_by_outcome ON repair_items (environment_id, repair_id, outcome, run_id)",
      `CREATE INDEX repair_items_pending ON repair_items (environment_id, repair_id, function_id, run_id)
        WHERE outcome = 'pending'`,
    ];
  },
};
