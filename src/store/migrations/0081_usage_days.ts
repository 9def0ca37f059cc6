import type { StoreEngine } from "../store.ts";

/** What each function used on a day, the last slot that each schedule fired, and sign-out at providers. */
export const usageDays = {
  version: 81,
  name: "usage by day, last slots of schedules, sign-out at providers",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const text = engine === "postgres" ? 'TEXT COLLATE "C"' : "TEXT";
    return [
      `CREATE TABLE usage_days (environment_id ${text} NOT NULL, day BIGINT NOT NULL, function_id ${text} NOT NULL,
      started BIGINT NOT NULL, completed BIGINT NOT NULL, failed BIGINT NOT NULL, cancelled BIGINT NOT NULL,
      steps BIGINT NOT NULL, worker_ms BIGINT NOT NULL, events BIGINT NOT NULL, event_bytes BIGINT NOT NULL,
      PRIMARY KEY (environment_id, day, function_id))${engine === "libsql" ? " WITHOUT ROWID" : ""}`,
      "CREATE INDEX usage_days_age ON usage_days ((day + 0))",
      "ALTER TABLE schedules ADD COLUMN last_at BIGINT",
      `ALTER TABLE schedules ADD COLUMN last_event_id ${text}`,
      "ALTER TABLE issuers ADD COLUMN ends_at_provider BIGINT NOT NULL DEFAULT 0",
    ];
  },
};
