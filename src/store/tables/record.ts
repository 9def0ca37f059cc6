import { callerIdBytes, changing, eventNameBytes, ours, type Tables } from "./table.ts";

/** What is told, counted, signed and handed out of the rest. */
export const tablesOfRecord = {
  outbox: {
    holds: "what must still be sent, and dead letters",
    endsWith: "it is sent; dead letters are requeued, discarded, or 90 days old, loop `outbox.forget`",
    // `dead_at`: a dead letter since then. `metadata` is what the kind's sender needs besides the payload.
    columns: `id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, event_id TEXT NOT NULL, entity_id TEXT,
      topic TEXT NOT NULL, kind TEXT NOT NULL, payload TEXT NOT NULL, metadata TEXT NOT NULL,
      created_at BIGINT NOT NULL, attempts BIGINT NOT NULL, due_at BIGINT NOT NULL, last_error TEXT,
      dead_at BIGINT`,
    indexes: [
      "outbox_due (kind, due_at, id) WHERE dead_at IS NULL",
      "outbox_by_event (environment_id, event_id)",
      "outbox_dead (environment_id, dead_at, id) WHERE dead_at IS NOT NULL",
      "outbox_dead_by_time (dead_at, id) WHERE dead_at IS NOT NULL",
      "outbox_due_by_environment (kind, environment_id, (due_at + 0), id) WHERE dead_at IS NULL",
    ],
    room: changing,
    purge: { at: 180 },
    texts: { id: ours, kind: ours },
    exported: "what is still to be sent",
  },
  mirrors: {
    holds: "how far a log was mirrored",
    endsWith: "the environment is deleted: one row each that was ever mirrored",
    // Only while the mirror is on.
    columns: `environment_id TEXT PRIMARY KEY, position BIGINT NOT NULL`,
    room: changing,
    purge: { at: 170 },
    exported: "of the installation",
  },
  auth_audit: {
    holds: "the signed chain of what callers did",
    scope: "org",
    endsWith: "`SVC_AUDIT_RETENTION_DAYS`, oldest first, loop `audit.forget`; 0 keeps them",
    // `hash` covers the row and the hash before it.
    columns: `org_id TEXT NOT NULL, sequence BIGINT NOT NULL, id TEXT NOT NULL, at BIGINT NOT NULL,
      event_type TEXT NOT NULL, operation TEXT NOT NULL, action TEXT NOT NULL, reads BIGINT NOT NULL,
      environment_id TEXT NOT NULL, resource TEXT NOT NULL, allowed BIGINT NOT NULL, rule TEXT NOT NULL,
      outcome TEXT NOT NULL, caller_kind TEXT NOT NULL, caller_id TEXT NOT NULL, roles TEXT NOT NULL,
      impersonated_org_id TEXT NOT NULL, request_id TEXT NOT NULL, payload TEXT, removed TEXT NOT NULL,
      key_id TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (org_id, sequence)`,
    indexes: [
      "auth_audit_by_time (org_id, at, sequence)",
      "auth_audit_by_caller (org_id, caller_id, at, sequence)",
    ],
    texts: { caller_id: callerIdBytes },
    exported: {
      in: "audit",
      of: "org",
      leaves:
        "id event_type operation action environment_id resource rule outcome caller_kind caller_id roles impersonated_org_id request_id payload removed key_id hash sequence at reads allowed",
    },
  },
  auth_audit_heads: {
    holds: "the signed end of each chain",
    scope: "org",
    endsWith: "nothing: one row an org",
    // Where the chain ends and, after retention, begins; signed as a whole.
    columns: `org_id TEXT PRIMARY KEY, sequence BIGINT NOT NULL, hash TEXT NOT NULL,
      floor_sequence BIGINT NOT NULL, floor_hash TEXT NOT NULL, key_id TEXT NOT NULL, signature TEXT NOT NULL`,
    exported: "the signature of this installation",
  },
  platform_audit: {
    holds: "what platform credentials did",
    scope: "installation",
    endsWith: "366 days, loop `platform.forget`",
    // Ids are empty where there is none.
    columns: `id TEXT PRIMARY KEY, event_type TEXT NOT NULL, platform_key_id TEXT NOT NULL,
      platform_user_id TEXT NOT NULL, impersonated_org_id TEXT NOT NULL, payload TEXT NOT NULL,
      created_at BIGINT NOT NULL`,
    indexes: [
      "platform_audit_by_time (created_at, id)",
      "platform_audit_by_type (event_type, created_at, id)",
      "platform_audit_by_key (platform_key_id, created_at, id)",
      "platform_audit_by_org (impersonated_org_id, created_at, id)",
    ],
    texts: { id: ours, event_type: ours, impersonated_org_id: ours, platform_key_id: callerIdBytes },
    exported: "of the platform",
  },
  healings: {
    holds: "how often the sweeper healed",
    endsWith: "the environment is deleted: one row a check",
    columns: `environment_id TEXT NOT NULL, name TEXT NOT NULL, healed BIGINT NOT NULL,
      last_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name)`,
    purge: { at: 290 },
    texts: { name: ours },
    exported: "of this installation",
  },
  flow_edges: {
    holds: "what led to what, and how often: an hour a row",
    endsWith: "seven days after its hour, loop `flow.forget`",
    // The row with neither source nor target counts what found no room. `+ 0` keeps a map's query off the
    // index, which would read the hour of every environment.
    columns: `environment_id TEXT NOT NULL, kind TEXT NOT NULL, hour BIGINT NOT NULL, source TEXT NOT NULL,
      target TEXT NOT NULL, count BIGINT NOT NULL, PRIMARY KEY (environment_id, kind, hour, source, target)`,
    indexes: ["flow_edges_age ((hour + 0))"],
    purge: { at: 286 },
    texts: { kind: ours, source: eventNameBytes, target: eventNameBytes },
    exported: "counts of this installation",
  },
  flow_minutes: {
    holds: "how many events were logged, and runs started and ended: a minute a row",
    endsWith: "25 hours after its minute, loop `flow.forget`",
    columns: `environment_id TEXT NOT NULL, minute BIGINT NOT NULL, events BIGINT NOT NULL,
      started BIGINT NOT NULL, completed BIGINT NOT NULL, failed BIGINT NOT NULL, cancelled BIGINT NOT NULL,
      PRIMARY KEY (environment_id, minute)`,
    indexes: ["flow_minutes_age ((minute + 0))"],
    purge: { at: 288 },
    exported: "counts of this installation",
  },
  usage_days: {
    holds: "what each function of an environment used: a day a row, of UTC",
    endsWith: "400 days after its day, loop `usage.forget`",
    // The row without a function has what is of the environment, and the functions beyond 1,000 of its day.
    columns: `environment_id TEXT NOT NULL, day BIGINT NOT NULL, function_id TEXT NOT NULL,
      started BIGINT NOT NULL, completed BIGINT NOT NULL, failed BIGINT NOT NULL, cancelled BIGINT NOT NULL,
      steps BIGINT NOT NULL, worker_ms BIGINT NOT NULL, events BIGINT NOT NULL, event_bytes BIGINT NOT NULL,
      PRIMARY KEY (environment_id, day, function_id)`,
    isClustered: true,
    indexes: ["usage_days_age ((day + 0))"],
    purge: { at: 289 },
    exported: "counts of this installation",
  },
  exports: {
    holds: "leases of exports under way",
    scope: "org",
    endsWith: "the export ends; what a dead node left is taken over by the next export, or goes with the org",
    columns: `org_id TEXT PRIMARY KEY, holder TEXT NOT NULL, lease_until BIGINT NOT NULL`,
    exported: "leases",
  },
  imports: {
    holds: "imports that are not finished",
    scope: "org",
    endsWith: "the import is finished or undone, or the org is deleted",
    // `sum` is the file's, `line_count` how many of its lines are in the store. `environment_ids` are JSON:
    // rows of them are there before the environments are.
    columns: `org_id TEXT PRIMARY KEY, sum TEXT NOT NULL, line_count BIGINT NOT NULL,
      environment_ids TEXT NOT NULL, started_at BIGINT NOT NULL`,
    exported: "of imports under way",
  },
} as const satisfies Tables;
