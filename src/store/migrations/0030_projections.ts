import type { StoreEngine } from "../store.ts";

/** Read models that are folded from the event log. */
export const projections = {
  version: 30,
  name: "projections",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const hot =
      engine === "postgres"
        ? " WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        : "";
    return [
      // `generation` is the one that is read. `stale_holder` is a runner whose memory may differ from the stored states, so it
      // is not streamed to; `refuses_save` is 1 until its first save after a rebuild was refused.
      `CREATE TABLE projections (
        environment_id TEXT NOT NULL, name TEXT NOT NULL, mode TEXT NOT NULL, status TEXT NOT NULL, events TEXT NOT NULL,
        partition_path TEXT NOT NULL, version BIGINT NOT NULL, generation BIGINT NOT NULL, stale_holder TEXT,
        refuses_save BIGINT NOT NULL, error_message TEXT, error_event_id TEXT, error_position BIGINT,
        error_partition TEXT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, name))`,
      // One fold of the log, by the code of one version of the definition. Everything up to `cursor` is folded or passed over;
      // `position` is the highest that the cursor has had; everything up to `delivered` was handed out since the lease began, up to
      // `offered` at any time. A dropped one is nobody's any more, and stays until its states are deleted. States are kept as
      // history from the time `recorded_since` on, NULL for none.
      `CREATE TABLE projection_generations (
        environment_id TEXT NOT NULL, name TEXT NOT NULL, generation BIGINT NOT NULL,
        definition_version BIGINT NOT NULL, cursor_position BIGINT NOT NULL, position BIGINT NOT NULL,
        delivered BIGINT NOT NULL, offered BIGINT NOT NULL, target BIGINT, return_to BIGINT,
        holder TEXT, stream_id TEXT, fence BIGINT NOT NULL, lease_until BIGINT NOT NULL, asked_at BIGINT NOT NULL,
        saved_at BIGINT NOT NULL, recorded_since BIGINT, dropped_at BIGINT,
        PRIMARY KEY (environment_id, name, generation))${hot}`,
      `CREATE INDEX projection_generations_dropped ON projection_generations (dropped_at)
        WHERE dropped_at IS NOT NULL`,
      // Partitions with delivered events that are not saved; they leave with the save, the lease or the projection.
      `CREATE TABLE projection_pending (
        environment_id TEXT NOT NULL, name TEXT NOT NULL, generation BIGINT NOT NULL, partition_key TEXT NOT NULL,
        first_position BIGINT NOT NULL, last_position BIGINT NOT NULL, event_count BIGINT NOT NULL,
        PRIMARY KEY (environment_id, name, generation, partition_key))${hot}`,
      // What was saved of recording generations, by the time of the last event in it.
      `CREATE TABLE projection_history (
        environment_id TEXT NOT NULL, name TEXT NOT NULL, generation BIGINT NOT NULL, partition_key TEXT NOT NULL,
        at BIGINT NOT NULL, position BIGINT NOT NULL, event_id TEXT, version BIGINT NOT NULL, saved_at BIGINT NOT NULL, state TEXT NOT NULL,
        PRIMARY KEY (environment_id, name, generation, partition_key, at, position))`,
      "CREATE INDEX projection_history_by_time ON projection_history (at)",
      // `state` is NULL where the first event of a partition failed.
      `CREATE TABLE projection_states (
        environment_id TEXT NOT NULL, name TEXT NOT NULL, generation BIGINT NOT NULL, partition_key TEXT NOT NULL,
        state TEXT, last_event_id TEXT, last_position BIGINT NOT NULL, last_event_at BIGINT, version BIGINT NOT NULL,
        error_message TEXT, error_event_id TEXT, error_position BIGINT, skipped_position BIGINT,
        updated_at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, name, generation, partition_key))`,
      `CREATE INDEX projection_states_stopped ON projection_states (environment_id, name, generation, error_position)
        WHERE error_position IS NOT NULL`,
      // The last rebuild of each projection.
      `CREATE TABLE projection_rebuilds (
        environment_id TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL, strategy TEXT NOT NULL, status TEXT NOT NULL,
        generation BIGINT NOT NULL, partition_key TEXT, from_event_id TEXT, to_event_id TEXT, start_position BIGINT NOT NULL,
        target BIGINT NOT NULL, processed_count BIGINT NOT NULL, total_count BIGINT NOT NULL, started_at BIGINT NOT NULL,
        ended_at BIGINT, error TEXT, PRIMARY KEY (environment_id, name))`,
    ];
  },
};
