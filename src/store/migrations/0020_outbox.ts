import type { StoreEngine } from "../store.ts";

/** Promises to tell the world about facts, and how far the mirror has come. */
export const outbox = {
  version: 20,
  name: "outbox",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const hot =
      engine === "postgres"
        ? " WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        : "";
    return [
      // Leaves with its delivery. `dead_at`: a dead letter since then; it leaves when a person says so, or by age.
      // `metadata` is what the kind's sender needs besides the payload.
      `CREATE TABLE outbox (
        id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, event_id TEXT NOT NULL, entity_id TEXT, topic TEXT NOT NULL,
        kind TEXT NOT NULL, payload TEXT NOT NULL, metadata TEXT NOT NULL, created_at BIGINT NOT NULL,
        attempts BIGINT NOT NULL, due_at BIGINT NOT NULL, last_error TEXT, dead_at BIGINT)${hot}`,
      "CREATE INDEX outbox_due ON outbox (kind, due_at, id) WHERE dead_at IS NULL",
      "CREATE INDEX outbox_by_event ON outbox (environment_id, event_id)",
      "CREATE INDEX outbox_dead ON outbox (environment_id, dead_at, id) WHERE dead_at IS NOT NULL",
      "CREATE INDEX outbox_dead_by_time ON outbox (dead_at, id) WHERE dead_at IS NOT NULL",
      // How far each log has been handed to users of the bus outside; only while the mirror is on.
      `CREATE TABLE mirrors (environment_id TEXT PRIMARY KEY, position BIGINT NOT NULL)${hot}`,
    ];
  },
};
