import { changing, ours, restless, type Tables } from "./table.ts";

/** Projections, their databases, and the key-value store. */
export const tablesOfState = {
  projections: {
    holds: "registered projections",
    endsWith: "their owner deletes them; at most 1,000 an environment",
    // `generation` is the one that is read. `stale_holder` is a runner whose memory may differ from the
    // stored states, so it is not streamed to; `refuses_save` is 1 until its first save after a rebuild was
    // refused.
    columns: `environment_id TEXT NOT NULL, name TEXT NOT NULL, mode TEXT NOT NULL, status TEXT NOT NULL,
      events TEXT NOT NULL, partition_path TEXT NOT NULL, version BIGINT NOT NULL, generation BIGINT NOT NULL,
      stale_holder TEXT, refuses_save BIGINT NOT NULL, error_message TEXT, error_event_id TEXT,
      error_position BIGINT, error_partition TEXT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
      PRIMARY KEY (environment_id, name)`,
    purge: { at: 112 },
    texts: { name: 128 },
    exported: {
      in: "projections",
      ids: "error_event_id",
      leaves:
        "name mode status partition_path error_message error_event_id error_partition version generation error_position created_at updated_at",
      json: "events",
      stays: "stale_holder refuses_save",
    },
  },
  projection_changes: {
    holds: "each change of a projection",
    endsWith: "1,000 newer ones of its name, or the environment is deleted: it outlives its projection",
    columns: `environment_id TEXT NOT NULL, name TEXT NOT NULL, entity_version BIGINT NOT NULL,
      event_id TEXT NOT NULL, change_type TEXT NOT NULL, snapshot TEXT NOT NULL, actor_id TEXT NOT NULL,
      recorded_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name, entity_version)`,
    isClustered: true,
    purge: { at: 121, under: "projections" },
    texts: { name: 128 },
    exported: {
      in: "projections",
      ids: "event_id",
      leaves: "name event_id change_type actor_id entity_version recorded_at",
      json: "snapshot",
    },
  },
  projection_generations: {
    holds: "how far each fold of a projection is, and its runner's lease",
    endsWith: "the projection is deleted, or a rebuild puts another generation in its place",
    // One fold of the log, by the code of one version of the definition. Everything up to `cursor_position`
    // is folded or passed over; `position` is the highest that the cursor has had; everything up to
    // `delivered` was handed out since the lease began, up to `offered` at any time. A dropped one has no
    // runner any more, and stays until its states are deleted. States are kept as history from the time
    // `recorded_since` on, NULL for none.
    columns: `environment_id TEXT NOT NULL, name TEXT NOT NULL, generation BIGINT NOT NULL,
      definition_version BIGINT NOT NULL, cursor_position BIGINT NOT NULL, position BIGINT NOT NULL,
      delivered BIGINT NOT NULL, offered BIGINT NOT NULL, target BIGINT, return_to BIGINT, holder TEXT,
      stream_id TEXT, fence BIGINT NOT NULL, lease_until BIGINT NOT NULL, asked_at BIGINT NOT NULL,
      saved_at BIGINT NOT NULL, recorded_since BIGINT, dropped_at BIGINT, PRIMARY KEY (environment_id, name,
      generation)`,
    indexes: ["projection_generations_dropped (dropped_at) WHERE dropped_at IS NOT NULL"],
    room: restless,
    purge: { at: 114, under: "projections" },
    texts: { name: 128 },
    exported: {
      in: "projections",
      leaves: "name generation definition_version cursor_position saved_at recorded_since",
      stays:
        "position delivered offered target return_to holder stream_id fence lease_until asked_at dropped_at",
    },
  },
  sql_projections: {
    holds: "what projections of mode `sql` were made from",
    endsWith: "the projection is deleted",
    // `admitted`: what the projection was admitted as.
    columns: `environment_id TEXT NOT NULL, name TEXT NOT NULL, table_name TEXT NOT NULL,
      table_sql TEXT NOT NULL, event_handlers TEXT NOT NULL, description TEXT NOT NULL,
      admitted TEXT NOT NULL, PRIMARY KEY (environment_id, name)`,
    indexes: ["UNIQUE sql_projections_by_table (environment_id, table_name)"],
    purge: { at: 113, under: "projections" },
    texts: { name: 128, table_name: ours },
    exported: {
      in: "projections",
      leaves: "name table_name table_sql description",
      json: "event_handlers admitted",
    },
  },
  projection_pending: {
    holds: "partitions with delivered events that are not saved",
    endsWith: "the save, the next delivery from the cursor, or with their generation",
    columns: `environment_id TEXT NOT NULL, name TEXT NOT NULL, generation BIGINT NOT NULL,
      partition_key TEXT NOT NULL, first_position BIGINT NOT NULL, last_position BIGINT NOT NULL,
      event_count BIGINT NOT NULL, PRIMARY KEY (environment_id, name, generation, partition_key)`,
    room: restless,
    purge: { at: 115, under: "projections" },
    texts: { name: 128, partition_key: 512 },
    exported: "delivered again from the cursor",
  },
  projection_rebuilds: {
    holds: "the last rebuild of each projection",
    endsWith: "the projection is deleted",
    columns: `environment_id TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL, strategy TEXT NOT NULL,
      status TEXT NOT NULL, generation BIGINT NOT NULL, partition_key TEXT, from_event_id TEXT,
      to_event_id TEXT, start_position BIGINT NOT NULL, target BIGINT NOT NULL,
      processed_count BIGINT NOT NULL, total_count BIGINT NOT NULL, started_at BIGINT NOT NULL,
      ended_at BIGINT, error TEXT, PRIMARY KEY (environment_id, name)`,
    purge: { at: 116, under: "projections" },
    texts: { name: 128 },
    exported: "what was",
  },
  projection_states: {
    holds: "the state of each partition of a managed projection",
    endsWith: "their generation is gone, loop `projections.sweep`",
    // `state` is NULL where the first event of a partition failed.
    columns: `environment_id TEXT NOT NULL, name TEXT NOT NULL, generation BIGINT NOT NULL,
      partition_key TEXT NOT NULL, state TEXT, last_event_id TEXT, last_position BIGINT NOT NULL,
      last_event_at BIGINT, version BIGINT NOT NULL, error_message TEXT, error_event_id TEXT,
      error_position BIGINT, skipped_position BIGINT, updated_at BIGINT NOT NULL, PRIMARY KEY (environment_id,
      name, generation, partition_key)`,
    indexes: [
      "projection_states_stopped (environment_id, name, generation, error_position) WHERE error_position IS NOT NULL",
    ],
    purge: { at: 117, under: "projections" },
    texts: { name: 128, partition_key: 512 },
    exported: {
      in: "projections",
      ids: "last_event_id error_event_id",
      leaves:
        "name partition_key last_event_id error_message error_event_id generation last_position last_event_at version error_position skipped_position updated_at",
      json: "state",
    },
  },
  projection_history: {
    holds: "states of recording projections as they were",
    endsWith:
      "their generation is gone, or a later one was as old as 30 days already, loop `projections.sweep`",
    // What was saved of recording generations, by the time of the last event in it.
    columns: `environment_id TEXT NOT NULL, name TEXT NOT NULL, generation BIGINT NOT NULL,
      partition_key TEXT NOT NULL, at BIGINT NOT NULL, position BIGINT NOT NULL, event_id TEXT,
      version BIGINT NOT NULL, saved_at BIGINT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (environment_id,
      name, generation, partition_key, at, position)`,
    indexes: ["projection_history_by_time (at)"],
    purge: { at: 118, under: "projections" },
    texts: { name: 128, partition_key: 512 },
    exported: {
      in: "projections",
      ids: "event_id",
      leaves: "name partition_key event_id generation at position version saved_at",
      json: "state",
    },
  },
  environment_databases: {
    holds: "what the SQL of each environment runs in: a schema with two roles, or a file",
    endsWith: "the environment is deleted; loop `query.sweep` drops what it named",
    // `name` is the schema and the prefix of the roles on PostgreSQL, and the file on libSQL. `made_of` says
    // which views it has. The passwords are empty on libSQL.
    columns: `environment_id TEXT PRIMARY KEY, name TEXT NOT NULL, reader_sealed TEXT NOT NULL,
      writer_sealed TEXT NOT NULL, made_of TEXT NOT NULL`,
    purge: { at: 320 },
    exported: "folded from events, with credentials",
  },
  kv_buckets: {
    holds: "buckets of the key-value store",
    endsWith: "their owner deletes them, and loop `kv.expire` what they held",
    // `revision`: of the last change in the bucket. `value_count` and `bytes` are of the rows of its keys,
    // markers left out. `forgotten_revision`: of the newest deletion that left no marker.
    columns: `environment_id TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, description TEXT,
      ttl_ms BIGINT, value_bytes_max BIGINT NOT NULL, bytes_max BIGINT, history_max BIGINT NOT NULL,
      revision BIGINT NOT NULL, value_count BIGINT NOT NULL, bytes BIGINT NOT NULL,
      forgotten_revision BIGINT NOT NULL DEFAULT 0, created_at BIGINT NOT NULL, deleted_at BIGINT,
      PRIMARY KEY (environment_id, id)`,
    indexes: [
      "UNIQUE kv_buckets_by_name (environment_id, name) WHERE deleted_at IS NULL",
      "kv_buckets_deleted (deleted_at) WHERE deleted_at IS NOT NULL",
    ],
    room: changing,
    purge: { at: 124 },
    texts: { id: ours, name: 64 },
    exported: {
      in: ["kv", "config"],
      leaves:
        "id name description ttl_ms value_bytes_max bytes_max history_max revision value_count bytes forgotten_revision created_at",
      stays: "deleted_at",
    },
  },
  kv_keys: {
    holds: "the newest value of each key, and markers of deleted keys",
    endsWith:
      "the time to live of the key or its bucket, a day after the deletion of the key, or their bucket is deleted; loop `kv.expire`",
    // `operation`: `put`, or `delete` for a marker. The value is the last column: on libSQL, keys are listed
    // without it. Watches read changes in their order, by an expression that no query for a single key has: a
    // plan that was made while the table was small took the index for single keys, and read the whole bucket
    // for each.
    columns: `environment_id TEXT NOT NULL, bucket_id TEXT NOT NULL, key TEXT NOT NULL,
      revision BIGINT NOT NULL, operation TEXT NOT NULL, bytes BIGINT NOT NULL, created_at BIGINT NOT NULL,
      expires_at BIGINT, value TEXT, PRIMARY KEY (environment_id, bucket_id, key)`,
    indexes: [
      "kv_keys_by_expiry (expires_at) WHERE expires_at IS NOT NULL",
      "kv_keys_expiring (environment_id, bucket_id, expires_at) WHERE expires_at IS NOT NULL",
      "kv_keys_by_revision ((bucket_id || ''), revision)",
    ],
    isClustered: true,
    room: changing,
    purge: { at: 122, under: "kv_buckets" },
    texts: { bucket_id: ours, key: 512, expr: ours },
    exported: {
      in: ["kv", "config"],
      leaves: "bucket_id key operation value revision bytes created_at expires_at",
    },
  },
  kv_history: {
    holds: "values of keys that were replaced",
    endsWith: "`history` newer values, a `purge`, or the end of the key's row",
    // At most one less than the bucket's `history_max` of each key.
    columns: `environment_id TEXT NOT NULL, bucket_id TEXT NOT NULL, key TEXT NOT NULL,
      revision BIGINT NOT NULL, bytes BIGINT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT,
      value TEXT NOT NULL, PRIMARY KEY (environment_id, bucket_id, key, revision)`,
    indexes: ["kv_history_by_revision ((bucket_id || ''), revision)"],
    isClustered: true,
    purge: { at: 123, under: "kv_buckets" },
    texts: { bucket_id: ours, key: 512, expr: ours },
    exported: {
      in: ["kv", "config"],
      leaves: "bucket_id key value revision bytes created_at expires_at",
    },
  },
} as const satisfies Tables;
