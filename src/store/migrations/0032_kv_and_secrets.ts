import type { StoreEngine } from "../store.ts";

/** The key-value store: buckets, the newest value of each key, and the values before it; revisions of secrets, without values. */
export const kvAndSecrets = {
  version: 32,
  name: "kv_and_secrets",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const hot =
      engine === "postgres"
        ? " WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        : "";
    const clustered = engine === "postgres" ? "" : " WITHOUT ROWID";
    return [
      // `revision`: of the last change in the bucket. `value_count` and `bytes` are of the rows of its keys, markers left out.
      // `forgotten_revision`: of the newest deletion that left no marker.
      `CREATE TABLE kv_buckets (
        environment_id TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, description TEXT, ttl_ms BIGINT,
        value_bytes_max BIGINT NOT NULL, bytes_max BIGINT, history_max BIGINT NOT NULL, revision BIGINT NOT NULL,
        value_count BIGINT NOT NULL, bytes BIGINT NOT NULL, forgotten_revision BIGINT NOT NULL DEFAULT 0, created_at BIGINT NOT NULL,
        deleted_at BIGINT,
        PRIMARY KEY (environment_id, id))${hot}`,
      "CREATE UNIQUE INDEX kv_buckets_by_name ON kv_buckets (environment_id, name) WHERE deleted_at IS NULL",
      "CREATE INDEX kv_buckets_deleted ON kv_buckets (deleted_at) WHERE deleted_at IS NOT NULL",
      // `operation`: `put`, or `delete` for a marker. The value is the last column: on libSQL, keys are listed without it.
      `CREATE TABLE kv_keys (
        environment_id TEXT NOT NULL, bucket_id TEXT NOT NULL, key TEXT NOT NULL, revision BIGINT NOT NULL,
        operation TEXT NOT NULL, bytes BIGINT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT, value TEXT,
        PRIMARY KEY (environment_id, bucket_id, key))${clustered}${hot}`,
      "CREATE INDEX kv_keys_by_expiry ON kv_keys (expires_at) WHERE expires_at IS NOT NULL",
      `CREATE INDEX kv_keys_expiring ON kv_keys (environment_id, bucket_id, expires_at)
        WHERE expires_at IS NOT NULL`,
      // Values that were replaced; at most one less than the bucket's `history_max` of each key.
      `CREATE TABLE kv_history (
        environment_id TEXT NOT NULL, bucket_id TEXT NOT NULL, key TEXT NOT NULL, revision BIGINT NOT NULL,
        bytes BIGINT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT, value TEXT NOT NULL,
        PRIMARY KEY (environment_id, bucket_id, key, revision))${clustered}`,
      `CREATE TABLE secret_revisions (
        environment_id TEXT NOT NULL, secret_id TEXT NOT NULL, revision BIGINT NOT NULL, name TEXT NOT NULL,
        description TEXT, created_at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, secret_id, revision))${clustered}`,
      // Watches read changes in their order.
      "CREATE INDEX kv_keys_by_revision ON kv_keys (environment_id, bucket_id, revision)",
      "CREATE INDEX kv_history_by_revision ON kv_history (environment_id, bucket_id, revision)",
    ];
  },
};
