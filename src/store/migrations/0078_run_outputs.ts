import type { StoreEngine } from "../store.ts";

/** What handlers wrote to outputs: a row a write, whose place another try may take. */
export const runOutputs = {
  version: 78,
  name: "outputs of runs",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const text = engine === "postgres" ? 'TEXT COLLATE "C"' : "TEXT";
    const ending =
      engine === "postgres"
        ? "WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02)"
        : "WITHOUT ROWID";
    return [
      `CREATE TABLE run_outputs (run_id ${text} NOT NULL, name ${text} NOT NULL, first BIGINT NOT NULL,
      environment_id ${text} NOT NULL, attempt BIGINT NOT NULL, step_id ${text}, source ${text} NOT NULL,
      source_first BIGINT NOT NULL, count BIGINT NOT NULL, total BIGINT NOT NULL, chunks ${text} NOT NULL,
      at BIGINT NOT NULL, superseded_by BIGINT, PRIMARY KEY (run_id, name, first)) ${ending}`,
      "CREATE UNIQUE INDEX run_outputs_by_source ON run_outputs (run_id, name, source, source_first)",
    ];
  },
};
