/** What the rows of a table belong to: each is in one environment, in one org, or of the whole installation. */
export type TableScope = "environment" | "org" | "installation";

export interface TableAbout {
  holds: string;
  scope: TableScope;
  /** What ends its rows, so that no table grows for ever. */
  endsWith: string;
}

/** Every table that the migrations make. `src/REFERENCE.md` is written from this; a test compares it with the schema. */
export const tables: Record<string, TableAbout> = {
  api_keys: {
    holds: "API keys, by the hash of their value",
    scope: "org",
    endsWith: "their owner deletes them, or their environment is deleted",
  },
  auth_audit: {
    holds: "the signed chain of what callers did",
    scope: "org",
    endsWith: "`SVC_AUDIT_RETENTION_DAYS`, oldest first, loop `audit.forget`; 0 keeps them",
  },
  auth_audit_heads: {
    holds: "the signed end of each chain",
    scope: "org",
    endsWith: "nothing: one row an org",
  },
  breakers: {
    holds: "endpoints in trouble",
    scope: "environment",
    endsWith: "a call that succeeds, else a day after the last failure, loop `breakers.forget`",
  },
  child_ends: {
    holds: "children that ended and whose parents are still to be told",
    scope: "environment",
    endsWith: "the parent is told, loop `runs.children`",
  },
  consumer_groups: {
    holds: "groups and their positions",
    scope: "environment",
    endsWith:
      "their owner deletes them; those that a subscription made end a day after their last member, loop `groups.forget`",
  },
  debounces: {
    holds: "starts that wait for repetitions to cease",
    scope: "environment",
    endsWith: "they fire, are cancelled, or their function is deleted",
  },
  deleted_environments: {
    holds: "tombstones",
    scope: "org",
    endsWith: "nothing: one row an environment that was",
  },
  environments: { holds: "environments", scope: "org", endsWith: "their owner deletes them" },
  events: {
    holds: "the log of each environment; events of entities are kept with their stream",
    scope: "environment",
    endsWith:
      "`SVC_EVENT_RETENTION_DAYS` or the environment's own days, below `heads.retention_floor`, loop `events.expire`",
  },
  executions: {
    holds: "runs that are not over, with their next wake",
    scope: "environment",
    endsWith: "the run ends",
  },
  function_history: {
    holds: "each change of a function",
    scope: "environment",
    endsWith: "the environment is deleted: it outlives its functions",
  },
  function_versions: { holds: "definitions", scope: "environment", endsWith: "the function is deleted" },
  functions: { holds: "registered functions", scope: "environment", endsWith: "their owner deletes them" },
  group_deliveries: {
    holds: "deliveries that are not acknowledged",
    scope: "environment",
    endsWith: "they are acknowledged or given up, or their group is deleted; at most `max_inflight` a group",
  },
  group_members: {
    holds: "members of groups and their heartbeats",
    scope: "environment",
    endsWith: "they leave, else five seconds after the last heartbeat, loop `groups.look`",
  },
  heads: {
    holds: "the end of each log, its epoch and its floor",
    scope: "environment",
    endsWith: "the environment is deleted, in the same commit",
  },
  healings: {
    holds: "how often the sweeper healed",
    scope: "environment",
    endsWith: "the environment is deleted: one row a check",
  },
  idempotency_keys: {
    holds: "keys of emits, invokes and publishes",
    scope: "environment",
    endsWith: "24 hours after use, loop `events.keys`",
  },
  invocations: {
    holds: "children that are still to be started",
    scope: "environment",
    endsWith: "the child is started, loop `runs.children`",
  },
  keyring: {
    holds: "sealed secrets of the installation",
    scope: "installation",
    endsWith: "24 hours after they were replaced, loop `cluster.forget`; keys of the audit stay",
  },
  lanes: {
    holds: "lanes of functions with a concurrency limit",
    scope: "environment",
    endsWith: "ten minutes after the last claim, loop `runs.lanes`",
  },
  leaders: { holds: "who leads which duty", scope: "installation", endsWith: "nothing: one row a duty" },
  login_attempts: {
    holds: "counts of logins, under hashes",
    scope: "installation",
    endsWith: "a minute after the first attempt; a known address after 30 days, loop `sessions.attempts`",
  },
  matchers: {
    holds: "how far waits were compared with a log",
    scope: "environment",
    endsWith: "the environment is deleted: one row each that ever had a wait",
  },
  mirrors: {
    holds: "how far a log was mirrored",
    scope: "environment",
    endsWith: "the environment is deleted: one row each that was ever mirrored",
  },
  nodes: {
    holds: "nodes and their heartbeats",
    scope: "installation",
    endsWith: "an hour after the last heartbeat, loop `cluster.forget`",
  },
  orgs: { holds: "orgs", scope: "installation", endsWith: "their owner deletes them" },
  outbox: {
    holds: "what must still be sent, and dead letters",
    scope: "environment",
    endsWith: "it is sent; dead letters are requeued, discarded, or 90 days old, loop `outbox.forget`",
  },
  platform_audit: {
    holds: "what platform credentials did",
    scope: "installation",
    endsWith: "366 days, loop `platform.forget`",
  },
  platform_users: {
    holds: "users of the platform",
    scope: "installation",
    endsWith: "they are deleted; at most 1,000",
  },
  policies: { holds: "deny policies", scope: "org", endsWith: "their org deletes them" },
  policy_versions: {
    holds: "versions of policies",
    scope: "org",
    endsWith: "the policy is deleted; at most 10,000 of one policy",
  },
  projects: { holds: "projects", scope: "org", endsWith: "their owner deletes them" },
  resumes: {
    holds: "resumes of the last two minutes",
    scope: "environment",
    endsWith: "two minutes after the resume, loop `runs.resumes`",
  },
  role_policies: {
    holds: "which policies a role carries",
    scope: "org",
    endsWith: "the role or the policy is deleted",
  },
  roles: { holds: "custom roles", scope: "org", endsWith: "their org deletes them" },
  rotations: {
    holds: "rotations of secrets that nodes still take up",
    scope: "installation",
    endsWith: "24 hours after the rotation, loop `cluster.forget`",
  },
  run_history: { holds: "what happened to runs", scope: "environment", endsWith: "the run expires" },
  run_streams: {
    holds: "which entity streams a run appended to or read",
    scope: "environment",
    endsWith: "the run expires",
  },
  runs: {
    holds: "runs, also those that are over",
    scope: "environment",
    endsWith:
      "the function's `recordingRetention`, the environment's days or `SVC_RUN_RETENTION_DAYS` after their end, loop `runs.expire`",
  },
  schedules: {
    holds: "cron triggers and their ledgers",
    scope: "environment",
    endsWith: "the trigger is removed",
  },
  secrets: {
    holds: "sealed secrets of functions",
    scope: "environment",
    endsWith: "their owner deletes them",
  },
  sessions: {
    holds: "logins, by the hash of their secret part",
    scope: "installation",
    endsWith:
      "24 hours, loop `cluster.forget`; a logout, a new password, a rotation, or with their user, key or org; at most 200 each",
  },
  snapshots: {
    holds: "states of entities at versions of their streams",
    scope: "environment",
    endsWith:
      "ten newer ones of their stream, a redaction at or before their version, or a purge of the stream",
  },
  steps: { holds: "steps of runs", scope: "environment", endsWith: "the run expires" },
  streams: {
    holds: "one row an entity: the type and version of its stream",
    scope: "environment",
    endsWith: "nothing: a deleted stream keeps its row, so that nothing is appended under its id again",
  },
  topic_heads: {
    holds: "the end of each log of topics",
    scope: "environment",
    endsWith: "the environment is deleted: one row each that was ever published in",
  },
  topic_messages: {
    holds: "published messages",
    scope: "environment",
    endsWith:
      "`SVC_TOPIC_RETENTION_HOURS`, below `topic_heads.retention_floor` and never past what a group still has to handle, loop `topics.expire`",
  },
  topics: { holds: "topics and their counts", scope: "environment", endsWith: "their last message expires" },
  users: { holds: "users of orgs", scope: "org", endsWith: "their owner deletes them" },
  waits: {
    holds: "events that runs wait for",
    scope: "environment",
    endsWith: "their match, their deadline or their run's end",
  },
  workers: {
    holds: "workers and their heartbeats",
    scope: "environment",
    endsWith: "ten minutes after the last heartbeat, loop `workers.forget`",
  },
};
