import type { StoreEngine } from "../store.ts";

/** One row an entity, its snapshots, and which runs appended to it or read it. */
export const streams = {
  version: 29,
  name: "streams",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const hot = engine === "postgres" ? " WITH (fillfactor = 70)" : "";
    const clustered = engine === "postgres" ? "" : " WITHOUT ROWID";
    return [
      // `version` counts its events. `deleted_at` is for good: nothing is appended after it. `purge_from` is the version from which
      // payloads are still to be overwritten.
      `CREATE TABLE streams (
        environment_id TEXT NOT NULL, entity_id TEXT NOT NULL, entity_type TEXT NOT NULL, version BIGINT NOT NULL,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, deleted_at BIGINT, purge_from BIGINT,
        PRIMARY KEY (environment_id, entity_id))${hot}`,
      "CREATE INDEX streams_by_type ON streams (environment_id, entity_type, entity_id)",
      "CREATE INDEX streams_to_purge ON streams (deleted_at) WHERE purge_from IS NOT NULL",
      `CREATE INDEX streams_to_purge_by_environment ON streams (environment_id, (deleted_at + 0))
        WHERE purge_from IS NOT NULL`,
      "ALTER TABLE events ADD COLUMN redacted_at BIGINT",
      `CREATE UNIQUE INDEX events_by_entity ON events (environment_id, entity_id, entity_version)
        WHERE entity_id IS NOT NULL`,
      `CREATE TABLE snapshots (
        environment_id TEXT NOT NULL, entity_id TEXT NOT NULL, entity_version BIGINT NOT NULL, id TEXT NOT NULL,
        state TEXT NOT NULL, created_at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, entity_id, entity_version))${clustered}`,
      `CREATE TABLE run_streams (
        run_id TEXT NOT NULL, entity_id TEXT NOT NULL, environment_id TEXT NOT NULL,
        PRIMARY KEY (run_id, entity_id))${clustered}`,
    ];
  },
};
