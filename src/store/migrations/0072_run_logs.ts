import type { StoreEngine } from "../store.ts";

/** Lines that handlers wrote: a row for each report that brought some. */
export const runLogs = {
  version: 72,
  name: "lines of runs",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const text = engine === "postgres" ? 'TEXT COLLATE "C"' : "TEXT";
    const ending =
      engine === "postgres"
        ? "WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02)"
        : "WITHOUT ROWID";
    return [
      `CREATE TABLE run_logs (run_id ${text} NOT NULL, execution_seq BIGINT NOT NULL, place BIGINT NOT NULL,
      environment_id ${text} NOT NULL, attempt BIGINT NOT NULL, worker_id ${text}, at BIGINT NOT NULL,
      line_count BIGINT NOT NULL, total BIGINT NOT NULL, seen BIGINT NOT NULL, bytes BIGINT NOT NULL, lines ${text} NOT NULL,
      PRIMARY KEY (run_id, execution_seq, place)) ${ending}`,
    ];
  },
};
