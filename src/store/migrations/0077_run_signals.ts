import type { StoreEngine } from "../store.ts";

/** What was sent to runs by name: a row a signal, written once and changed when a step takes it. */
export const runSignals = {
  version: 77,
  name: "signals of runs",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const text = engine === "postgres" ? 'TEXT COLLATE "C"' : "TEXT";
    const ending =
      engine === "postgres"
        ? "WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        : "WITHOUT ROWID";
    return [
      `CREATE TABLE run_signals (run_id ${text} NOT NULL, sequence BIGINT NOT NULL, environment_id ${text} NOT NULL,
      name ${text} NOT NULL, data ${text}, idempotency_key ${text}, sent_by ${text} NOT NULL, sent_at BIGINT NOT NULL,
      taken_at BIGINT, taken_by ${text}, PRIMARY KEY (run_id, sequence)) ${ending}`,
      "CREATE INDEX run_signals_kept ON run_signals (run_id, name, sequence) WHERE taken_at IS NULL",
      "CREATE UNIQUE INDEX run_signals_by_key ON run_signals (run_id, idempotency_key) WHERE idempotency_key IS NOT NULL",
    ];
  },
};
