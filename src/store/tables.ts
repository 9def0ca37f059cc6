import { eventNameBytesMax, functionIdBytesMax, idempotencyKeyBytesMax } from "../kit/limits.ts";
import { eventNameBytes, laneIdBytes, ours, type TableAbout, utf8 } from "./table.ts";
import { tablesOfFinding } from "./tables-of-finding.ts";
import { tablesOfFlow } from "./tables-of-flow.ts";
import { tablesOfOrgs } from "./tables-of-orgs.ts";
import { tablesOfRepairs } from "./tables-of-repairs.ts";

const tablesOfEnvironments: Record<string, TableAbout> = {
  agent_tools: {
    holds: "tools of agents, with the schemas of their inputs",
    scope: "environment",
    endsWith: "their agent registers again or is unregistered; at most 1,000 an environment",
    purge: { at: 136, key: ["environment_id", "qualified_name"], under: "agents" },
    texts: { qualified_name: 201, agent_name: 100 },
  },
  agents: {
    holds: "agents whose tools are called, with their URLs and sealed secrets",
    scope: "environment",
    endsWith: "they are unregistered; at most 100 an environment",
    purge: { at: 135, key: ["environment_id", "name"] },
    texts: { name: 100 },
  },
  breakers: {
    holds: "endpoints in trouble",
    scope: "environment",
    endsWith: "a call that succeeds, else a day after the last failure, loop `breakers.forget`",
    purge: { at: 130, key: ["environment_id", "function_id", "endpoint_url"] },
    texts: { endpoint_url: 1_024 },
  },
  child_ends: {
    holds: "children that ended and whose parents are still to be told",
    scope: "environment",
    endsWith: "the parent is told, loop `runs.children`",
    purge: { at: 210, key: ["child_run_id"], ofRun: "child_run_id" },
    texts: { child_run_id: ours },
  },
  consumer_groups: {
    holds: "groups and their positions",
    scope: "environment",
    endsWith:
      "their owner deletes them; those that a subscription made end a day after their last member, loop `groups.forget`",
    purge: { at: 90, key: ["environment_id", "namespace", "name"] },
    texts: { id: ours, namespace: 128, name: 128 },
  },
  debounces: {
    holds: "starts that wait for repetitions to cease",
    scope: "environment",
    endsWith: "they fire, are cancelled, or their function is deleted",
    purge: { at: 70, key: ["id"] },
    texts: { id: ours },
  },
  environment_databases: {
    holds: "what the SQL of each environment runs in: a schema with two roles, or a file",
    scope: "environment",
    endsWith: "the environment is deleted; loop `query.sweep` drops what it named",
    purge: { at: 320, key: ["environment_id"] },
  },
  event_schemas: {
    holds: "schemas of events, by name and version",
    scope: "environment",
    endsWith: "their owner deletes them",
    purge: { at: 125, key: ["environment_id", "event_name", "version"] },
    texts: { event_name: eventNameBytes },
  },
  events: {
    holds: "the log of each environment; events of entities are kept with their stream",
    scope: "environment",
    endsWith:
      "`SVC_EVENT_RETENTION` or `SVC_EVENT_RETENTION_DAYS`, or the environment's own days, below `heads.retention_floor`, loop `events.expire`",
    purge: { at: 260, key: ["environment_id", "position"] },
    texts: { id: ours, name: eventNameBytes },
  },
  executions: {
    holds: "runs that are not over, with their next wake",
    scope: "environment",
    endsWith: "the run ends",
    purge: { at: 50, key: ["run_id"], under: "runs" },
    texts: { state: ours, expr: ours },
  },
  flow_edges: {
    holds: "what led to what, and how often: an hour a row",
    scope: "environment",
    endsWith: "seven days after its hour, loop `flow.forget`",
    purge: { at: 286, key: ["environment_id", "kind", "hour", "source", "target"] },
    texts: { kind: ours, source: eventNameBytes, target: eventNameBytes },
  },
  flow_minutes: {
    holds: "how many events were logged, and runs started and ended: a minute a row",
    scope: "environment",
    endsWith: "25 hours after its minute, loop `flow.forget`",
    purge: { at: 288, key: ["environment_id", "minute"] },
  },
  function_history: {
    holds: "each change of a function",
    scope: "environment",
    endsWith: "the environment is deleted: it outlives its functions",
    purge: { at: 310, key: ["environment_id", "function_id", "entity_version"] },
  },
  function_versions: {
    holds: "definitions",
    scope: "environment",
    endsWith: "the function is deleted",
    purge: { at: 300, key: ["environment_id", "function_id", "version"] },
  },
  functions: {
    holds: "registered functions",
    scope: "environment",
    endsWith: "their owner deletes them",
    purge: { at: 40, key: ["environment_id", "id"] },
    texts: { id: functionIdBytesMax, slug: functionIdBytesMax },
  },
  group_deliveries: {
    holds: "deliveries that are not acknowledged",
    scope: "environment",
    endsWith: "they are acknowledged or given up, or their group is deleted; at most `max_inflight` a group",
    purge: { at: 110, key: ["environment_id", "group_id", "position"], under: "consumer_groups" },
  },
  group_members: {
    holds: "members of groups and their heartbeats",
    scope: "environment",
    endsWith: "they leave, else five seconds after the last heartbeat, loop `groups.look`",
    purge: { at: 100, key: ["environment_id", "group_id", "id"], under: "consumer_groups" },
    texts: { id: ours },
  },
  heads: {
    holds: "the end of each log, its epoch and its floor",
    scope: "environment",
    endsWith: "the environment is deleted, in the same commit",
    purge: { at: 10, key: ["environment_id"] },
  },
  healings: {
    holds: "how often the sweeper healed",
    scope: "environment",
    endsWith: "the environment is deleted: one row a check",
    purge: { at: 290, key: ["environment_id", "name"] },
    texts: { name: ours },
  },
  idempotency_keys: {
    holds: "keys of emits, invokes and publishes",
    scope: "environment",
    endsWith: "24 hours after use, of a webhook 72, loop `events.keys`",
    purge: { at: 190, key: ["environment_id", "key"] },
    texts: { key: 1 + idempotencyKeyBytesMax },
  },
  invocations: {
    holds: "children that are still to be started",
    scope: "environment",
    endsWith: "the child is started, loop `runs.children`",
    purge: { at: 200, key: ["parent_run_id", "step_id"], ofRun: "parent_run_id" },
    texts: { parent_run_id: ours },
  },
  kv_buckets: {
    holds: "buckets of the key-value store",
    scope: "environment",
    endsWith: "their owner deletes them, and loop `kv.expire` what they held",
    purge: { at: 124, key: ["environment_id", "id"] },
    texts: { id: ours, name: 64 },
  },
  kv_history: {
    holds: "values of keys that were replaced",
    scope: "environment",
    endsWith: "`history` newer values, a `purge`, or the end of the key's row",
    purge: { at: 123, key: ["environment_id", "bucket_id", "key", "revision"], under: "kv_buckets" },
    texts: { bucket_id: ours, key: 512, expr: ours },
  },
  kv_keys: {
    holds: "the newest value of each key, and markers of deleted keys",
    scope: "environment",
    endsWith:
      "the time to live of the key or its bucket, a day after the deletion of the key, or their bucket is deleted; loop `kv.expire`",
    purge: { at: 122, key: ["environment_id", "bucket_id", "key"], under: "kv_buckets" },
    texts: { bucket_id: ours, key: 512, expr: ours },
  },
  lanes: {
    holds: "lanes of functions with a concurrency limit",
    scope: "environment",
    endsWith: "ten minutes after the last claim, loop `runs.lanes`",
    purge: { at: 150, key: ["id"] },
    texts: { id: laneIdBytes },
  },
  matchers: {
    holds: "how far waits were compared with a log",
    scope: "environment",
    endsWith: "the environment is deleted: one row each that ever had a wait",
    purge: { at: 160, key: ["environment_id"] },
  },
  mirrors: {
    holds: "how far a log was mirrored",
    scope: "environment",
    endsWith: "the environment is deleted: one row each that was ever mirrored",
    purge: { at: 170, key: ["environment_id"] },
  },
  outbox: {
    holds: "what must still be sent, and dead letters",
    scope: "environment",
    endsWith: "it is sent; dead letters are requeued, discarded, or 90 days old, loop `outbox.forget`",
    purge: { at: 180, key: ["id"] },
    texts: { id: ours, kind: ours },
  },
  projection_generations: {
    holds: "how far each fold of a projection is, and its runner's lease",
    scope: "environment",
    endsWith: "the projection is deleted, or a rebuild puts another generation in its place",
    purge: { at: 114, key: ["environment_id", "name", "generation"], under: "projections" },
    texts: { name: 128 },
  },
  projection_history: {
    holds: "states of recording projections as they were",
    scope: "environment",
    endsWith:
      "their generation is gone, or a later one was as old as 30 days already, loop `projections.sweep`",
    purge: {
      at: 118,
      key: ["environment_id", "name", "generation", "partition_key", "at", "position"],
      under: "projections",
    },
    texts: { name: 128, partition_key: 512 },
  },
  projection_pending: {
    holds: "partitions with delivered events that are not saved",
    scope: "environment",
    endsWith: "the save, the next delivery from the cursor, or with their generation",
    purge: { at: 115, key: ["environment_id", "name", "generation", "partition_key"], under: "projections" },
    texts: { name: 128, partition_key: 512 },
  },
  projection_rebuilds: {
    holds: "the last rebuild of each projection",
    scope: "environment",
    endsWith: "the projection is deleted",
    purge: { at: 116, key: ["environment_id", "name"], under: "projections" },
    texts: { name: 128 },
  },
  projection_states: {
    holds: "the state of each partition of a managed projection",
    scope: "environment",
    endsWith: "their generation is gone, loop `projections.sweep`",
    purge: { at: 117, key: ["environment_id", "name", "generation", "partition_key"], under: "projections" },
    texts: { name: 128, partition_key: 512 },
  },
  projections: {
    holds: "registered projections",
    scope: "environment",
    endsWith: "their owner deletes them; at most 1,000 an environment",
    purge: { at: 112, key: ["environment_id", "name"] },
    texts: { name: 128 },
  },
  resumes: {
    holds: "resumes of the last two minutes",
    scope: "environment",
    endsWith: "two minutes after the resume, loop `runs.resumes`",
    purge: { at: 220, key: ["run_id"], ofRun: "run_id" },
  },
  run_history: {
    holds: "what happened to runs",
    scope: "environment",
    endsWith: "the run expires",
    purge: { at: 240, key: ["run_id", "sequence"], ofRun: "run_id" },
  },
  run_streams: {
    holds: "which entity streams a run appended to or read",
    scope: "environment",
    endsWith: "the run expires",
    purge: { at: 245, key: ["run_id", "entity_id"], ofRun: "run_id" },
  },
  runs: {
    holds: "runs, also those that are over",
    scope: "environment",
    endsWith:
      "the function's `recordingRetention`, the environment's days, `SVC_RUN_RETENTION` or `SVC_RUN_RETENTION_DAYS` after their end, loop `runs.expire`",
    purge: { at: 250, key: ["id"] },
    texts: { id: ours, trouble: ours, error_group: ours },
  },
  schedules: {
    holds: "cron triggers and their ledgers",
    scope: "environment",
    endsWith: "the trigger is removed",
    purge: { at: 80, key: ["environment_id", "function_id", "place"] },
  },
  secret_revisions: {
    holds: "what was known of a secret at each of its values",
    scope: "environment",
    endsWith: "64 newer ones, or the secret is deleted",
    purge: { at: 119, key: ["environment_id", "secret_id", "revision"], under: "secrets" },
    texts: { secret_id: ours },
  },
  secrets: {
    holds: "sealed secrets of functions",
    scope: "environment",
    endsWith: "their owner deletes them",
    purge: { at: 120, key: ["environment_id", "name"] },
    texts: { name: utf8(200) },
  },
  snapshots: {
    holds: "states of entities at versions of their streams",
    scope: "environment",
    endsWith:
      "ten newer ones of their stream, a redaction at or before their version, or a purge of the stream",
    purge: { at: 264, key: ["environment_id", "entity_id", "entity_version"], under: "streams" },
  },
  steps: {
    holds: "steps of runs",
    scope: "environment",
    endsWith: "the run expires",
    purge: { at: 230, key: ["run_id", "step_id"], ofRun: "run_id" },
  },
  sql_projections: {
    holds: "what projections of mode `sql` were made from",
    scope: "environment",
    endsWith: "the projection is deleted",
    purge: { at: 113, key: ["environment_id", "name"], under: "projections" },
    texts: { name: 128, table_name: ours },
  },
  streams: {
    holds: "one row an entity: the type and version of its stream",
    scope: "environment",
    endsWith: "nothing: a deleted stream keeps its row, so that nothing is appended under its id again",
    purge: { at: 262, key: ["environment_id", "entity_id"] },
    texts: { entity_type: 128 },
  },
  topic_heads: {
    holds: "the end of each log of topics",
    scope: "environment",
    endsWith: "the environment is deleted: one row each that was ever published in",
    purge: { at: 20, key: ["environment_id"] },
  },
  topic_messages: {
    holds: "published messages",
    scope: "environment",
    endsWith:
      "`SVC_TOPIC_RETENTION` or `SVC_TOPIC_RETENTION_HOURS`, below `topic_heads.retention_floor` and never past what a group still has to handle, loop `topics.expire`",
    purge: { at: 270, key: ["environment_id", "position"] },
    texts: { idempotency_key: idempotencyKeyBytesMax, topic: eventNameBytesMax },
  },
  topics: {
    holds: "topics and their counts",
    scope: "environment",
    endsWith: "their last message expires",
    purge: { at: 280, key: ["environment_id", "name"] },
    texts: { name: eventNameBytesMax },
  },
  waits: {
    holds: "events, versions of entities, changes of keys and ends of children that runs wait for",
    scope: "environment",
    endsWith: "their match, their deadline or their run's end",
    purge: { at: 60, key: ["run_id", "kind", "step_id"], under: "runs" },
    texts: { kind: ours, match_path: 512, value_hash: ours, place: ours, subject: 512 },
  },
  webhook_dead_letters: {
    holds: "events that an endpoint of outbound webhooks did not take",
    scope: "environment",
    endsWith:
      "they are redelivered or discarded, their endpoint is deleted, else after 30 days, loop `webhooks.forget`",
    purge: { at: 132, key: ["environment_id", "endpoint_id", "event_id"], under: "webhook_endpoints" },
    texts: { endpoint_id: ours },
  },
  webhook_deliveries: {
    holds: "what providers sent to sources of inbound webhooks",
    scope: "environment",
    endsWith: "`SVC_WEBHOOK_DELIVERY_DAYS`, loop `webhooks.forget`",
    purge: { at: 134, key: ["environment_id", "id"], under: "webhook_sources" },
    texts: { id: ours, source_id: ours },
  },
  webhook_endpoints: {
    holds: "endpoints of outbound webhooks, how far each is, and who sends to it",
    scope: "environment",
    endsWith: "their owner deletes them; at most 100 an environment",
    purge: { at: 131, key: ["environment_id", "id"] },
    texts: { id: ours },
  },
  webhook_sources: {
    holds: "sources of inbound webhooks with their sealed secrets",
    scope: "environment",
    endsWith: "their owner deletes them; at most 500 an environment",
    purge: { at: 133, key: ["environment_id", "id"] },
    texts: { id: ours },
  },
  workers: {
    holds: "workers and their heartbeats",
    scope: "environment",
    endsWith: "ten minutes after the last heartbeat, loop `workers.forget`",
    purge: { at: 140, key: ["environment_id", "id"] },
    texts: { id: functionIdBytesMax },
  },
};

/**
 * Every table that the migrations make, by name. `src/REFERENCE.md` and the purge are made from this; tests
 * compare it with the schema.
 */
export const tables: Record<string, TableAbout> = Object.fromEntries(
  Object.entries({
    ...tablesOfEnvironments,
    ...tablesOfFlow,
    ...tablesOfRepairs,
    ...tablesOfFinding,
    ...tablesOfOrgs,
  }).sort(([one], [other]) => (one < other ? -1 : 1)),
);
