import { eventNameBytesMax, idempotencyKeyBytesMax } from "../../kit/limits.ts";
import { changing, ours, restless, type Tables } from "./table.ts";

/** Topics and consumer groups. */
export const tablesOfRealtime = {
  topic_heads: {
    holds: "the end of each log of topics",
    endsWith: "the environment is deleted: one row each that was ever published in",
    columns: `environment_id TEXT PRIMARY KEY, position BIGINT NOT NULL, last_at BIGINT NOT NULL,
      retention_floor BIGINT NOT NULL`,
    room: changing,
    purge: { at: 20 },
    exported: "of topics",
  },
  topic_messages: {
    holds: "published messages",
    endsWith:
      "`SVC_TOPIC_RETENTION` or `SVC_TOPIC_RETENTION_HOURS`, below `topic_heads.retention_floor` and never past what a group still has to handle, loop `topics.expire`",
    // `run_id`: the run that published it. `topic_messages_by_key` is for the answers to repeated keys.
    columns: `environment_id TEXT NOT NULL, position BIGINT NOT NULL, id TEXT NOT NULL, topic TEXT NOT NULL,
      data TEXT NOT NULL, metadata TEXT, at BIGINT NOT NULL, idempotency_key TEXT, run_id TEXT,
      PRIMARY KEY (environment_id, position)`,
    indexes: [
      "topic_messages_by_topic (environment_id, topic, position)",
      "topic_messages_by_key (environment_id, idempotency_key) WHERE idempotency_key IS NOT NULL",
      "topic_messages_by_run (environment_id, run_id, position) WHERE run_id IS NOT NULL",
    ],
    isClustered: true,
    purge: { at: 270 },
    texts: { idempotency_key: idempotencyKeyBytesMax, topic: eventNameBytesMax },
    exported: "messages, which are kept for hours",
  },
  topics: {
    holds: "topics and their counts",
    endsWith: "their last message expires",
    // Counted in the publish and in the expiry.
    columns: `environment_id TEXT NOT NULL, name TEXT NOT NULL, message_count BIGINT NOT NULL,
      last_position BIGINT NOT NULL, last_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name)`,
    room: changing,
    purge: { at: 280 },
    texts: { name: eventNameBytesMax },
    exported: "of topics",
  },
  consumer_groups: {
    holds: "groups and their positions",
    endsWith:
      "their owner deletes them; those that a subscription made end a day after their last member, loop `groups.forget`",
    // `log` is `events` or `topics`. Everything up to `position` was handed out or is none of the group's.
    // `version` grows with every change of the settings. `kept_until`: when a group that a subscription
    // made ends, after its last member.
    columns: `environment_id TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL,
      log TEXT NOT NULL, pattern TEXT NOT NULL, filter_expr TEXT, ack_mode TEXT NOT NULL,
      backpressure TEXT NOT NULL, max_inflight BIGINT NOT NULL, max_redeliveries BIGINT NOT NULL,
      redeliver_delay_ms BIGINT NOT NULL, metadata TEXT, status TEXT NOT NULL, version BIGINT NOT NULL,
      position BIGINT NOT NULL, dropped_count BIGINT NOT NULL, given_up_count BIGINT NOT NULL,
      kept_until BIGINT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (environment_id,
      namespace, name)`,
    indexes: [
      "UNIQUE consumer_groups_by_id (environment_id, id)",
      "consumer_groups_kept (kept_until) WHERE kept_until IS NOT NULL",
    ],
    room: restless,
    purge: { at: 90 },
    texts: { id: ours, namespace: 128, name: 128 },
    exported: "places of readers that are connected here",
  },
  group_members: {
    holds: "members of groups and their heartbeats",
    endsWith: "they leave, else five seconds after the last heartbeat, loop `groups.look`",
    columns: `environment_id TEXT NOT NULL, group_id TEXT NOT NULL, id TEXT NOT NULL,
      consumer_id TEXT NOT NULL, client_id TEXT NOT NULL, node_id TEXT NOT NULL, joined_at BIGINT NOT NULL,
      seen_at BIGINT NOT NULL, PRIMARY KEY (environment_id, group_id, id)`,
    indexes: ["group_members_seen (seen_at)"],
    room: restless,
    purge: { at: 100, under: "consumer_groups" },
    texts: { id: ours },
    exported: "of consumer groups",
  },
  group_deliveries: {
    holds: "deliveries that are not acknowledged",
    endsWith: "they are acknowledged or given up, or their group is deleted; at most `max_inflight` a group",
    // At a member until `due_at`, or (`member_id` NULL) waiting for the next. `consumer_id` stays that of the
    // last holder.
    columns: `environment_id TEXT NOT NULL, group_id TEXT NOT NULL, position BIGINT NOT NULL,
      event_id TEXT NOT NULL, attempt BIGINT NOT NULL, spent_count BIGINT NOT NULL,
      lost_count BIGINT NOT NULL, member_id TEXT, consumer_id TEXT NOT NULL, due_at BIGINT NOT NULL,
      PRIMARY KEY (environment_id, group_id, position)`,
    indexes: ["UNIQUE group_deliveries_by_event (environment_id, group_id, event_id)"],
    room: restless,
    purge: { at: 110, under: "consumer_groups" },
    exported: "of consumer groups",
  },
} as const satisfies Tables;
