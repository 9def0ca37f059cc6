import type { StoreEngine } from "../store.ts";

/** When and by whom values of runs, steps and events were overwritten; every change of a projection. */
export const redactions = {
  version: 75,
  name: "redactions, and changes of projections",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const text = engine === "postgres" ? 'TEXT COLLATE "C"' : "TEXT";
    return [
      "ALTER TABLE runs ADD COLUMN redacted_at BIGINT",
      `ALTER TABLE runs ADD COLUMN redacted_by ${text}`,
      "ALTER TABLE steps ADD COLUMN redacted_at BIGINT",
      `ALTER TABLE steps ADD COLUMN redacted_by ${text}`,
      `ALTER TABLE events ADD COLUMN redacted_by ${text}`,
      "CREATE INDEX webhook_deliveries_by_event ON webhook_deliveries (environment_id, event_id) WHERE event_id IS NOT NULL",
      `CREATE TABLE projection_changes (environment_id ${text} NOT NULL, name ${text} NOT NULL, entity_version BIGINT NOT NULL,
      event_id ${text} NOT NULL, change_type ${text} NOT NULL, snapshot ${text} NOT NULL, actor_id ${text} NOT NULL,
      recorded_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name, entity_version))${engine === "postgres" ? "" : " WITHOUT ROWID"}`,
    ];
  },
};
