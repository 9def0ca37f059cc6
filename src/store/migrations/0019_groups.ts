import type { StoreEngine } from "../store.ts";

/** Consumer groups: members that share the messages of one pattern among them. */
export const groups = {
  version: 19,
  name: "groups",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const hot =
      engine === "postgres"
        ? " WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        : "";
    return [
      // `log` is `events` or `topics`. Everything up to `position` was handed out or is none of the group's. `version` grows
      // with every change of the settings. `kept_until`: made by a subscription, gone so long after its last member.
      `CREATE TABLE consumer_groups (
        environment_id TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL, log TEXT NOT NULL,
        pattern TEXT NOT NULL, filter_expr TEXT, ack_mode TEXT NOT NULL, backpressure TEXT NOT NULL,
        max_inflight BIGINT NOT NULL, max_redeliveries BIGINT NOT NULL, redeliver_delay_ms BIGINT NOT NULL, metadata TEXT,
        status TEXT NOT NULL, version BIGINT NOT NULL, position BIGINT NOT NULL, dropped_count BIGINT NOT NULL,
        given_up_count BIGINT NOT NULL, kept_until BIGINT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, namespace, name))${hot}`,
      "CREATE UNIQUE INDEX consumer_groups_by_id ON consumer_groups (environment_id, id)",
      "CREATE INDEX consumer_groups_kept ON consumer_groups (kept_until) WHERE kept_until IS NOT NULL",
      // Who is there now; forgotten after limits.groupSilenceMs without a sign of life.
      `CREATE TABLE group_members (
        environment_id TEXT NOT NULL, group_id TEXT NOT NULL, id TEXT NOT NULL, consumer_id TEXT NOT NULL,
        client_id TEXT NOT NULL, node_id TEXT NOT NULL, joined_at BIGINT NOT NULL, seen_at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, group_id, id))${hot}`,
      "CREATE INDEX group_members_seen ON group_members (seen_at)",
      // What was handed out and not acknowledged: at a member until `due_at`, or (`member_id` NULL) waiting for the next.
      // `consumer_id` stays that of the last holder. Leave when they are acknowledged or given up, and with their group.
      `CREATE TABLE group_deliveries (
        environment_id TEXT NOT NULL, group_id TEXT NOT NULL, position BIGINT NOT NULL, event_id TEXT NOT NULL,
        attempt BIGINT NOT NULL, spent_count BIGINT NOT NULL, lost_count BIGINT NOT NULL, member_id TEXT,
        consumer_id TEXT NOT NULL, due_at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, group_id, position))${hot}`,
      "CREATE UNIQUE INDEX group_deliveries_by_event ON group_deliveries (environment_id, group_id, event_id)",
    ];
  },
};
