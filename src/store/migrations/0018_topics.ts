import type { StoreEngine } from "../store.ts";

/** Developer topics: a second log an environment, which starts no functions. */
export const topics = {
  version: 18,
  name: "topics",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const hot =
      engine === "postgres"
        ? " WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        : "";
    const clustered = engine === "postgres" ? "" : " WITHOUT ROWID";
    return [
      // The end of each environment's log of topics; made by the first publish, gone with the environment.
      `CREATE TABLE topic_heads (
        environment_id TEXT PRIMARY KEY, position BIGINT NOT NULL, last_at BIGINT NOT NULL,
        retention_floor BIGINT NOT NULL)${hot}`,
      // Kept for `SVC_TOPIC_RETENTION_HOURS`, and as long as a consumer group has not handled them.
      `CREATE TABLE topic_messages (
        environment_id TEXT NOT NULL, position BIGINT NOT NULL, id TEXT NOT NULL, topic TEXT NOT NULL,
        data TEXT NOT NULL, metadata TEXT, at BIGINT NOT NULL, idempotency_key TEXT,
        PRIMARY KEY (environment_id, position))${clustered}`,
      "CREATE INDEX topic_messages_by_topic ON topic_messages (environment_id, topic, position)",
      // For the answers to repeated keys; messages without one are not in it.
      `CREATE INDEX topic_messages_by_key ON topic_messages (environment_id, idempotency_key)
        WHERE idempotency_key IS NOT NULL`,
      // One row a topic that has messages, counted in the publish and in the expiry; leaves with its last message.
      `CREATE TABLE topics (
        environment_id TEXT NOT NULL, name TEXT NOT NULL, message_count BIGINT NOT NULL,
        last_position BIGINT NOT NULL, last_at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, name))${hot}`,
    ];
  },
};
