/** Sections of an export, in the order in which they stand in the file. */
export const exportSections = [
  "environments",
  "functions",
  "events",
  "streams",
  "snapshots",
  "runs",
  "steps",
  "projections",
  "schemas",
  "kv",
  "config",
  "policies",
  "roles",
  "users",
  "audit",
  "webhooks",
] as const;
export type ExportSection = (typeof exportSections)[number];

/** `json`: the column holds JSON text, and the file has the value itself. */
export type ExportedKind = "text" | "number" | "json";

export interface ExportedTable {
  section: ExportSection;
  table: string;
  /** Whose rows are read together: all of the org, of an environment, or of some runs. */
  of: "org" | "environment" | "runs";
  /** What leaves. A column that is named nowhere never does. */
  columns: Readonly<Record<string, ExportedKind>>;
  /** Columns that stay, besides the one that says whose the row is. */
  left: readonly string[];
  /** Order of the rows, and where a page goes on: an index has it. */
  key: readonly string[];
  /** Columns with ids that no two orgs of an installation share. */
  ids: readonly string[];
}

interface Draft {
  of?: ExportedTable["of"];
  key: string;
  text?: string;
  number?: string;
  json?: string;
  ids?: string;
  left?: string;
}

const words = (text = ""): string[] => text.split(" ").filter((word) => word !== "");

function exported(section: ExportSection, table: string, draft: Draft): ExportedTable {
  const kinds = (["text", "number", "json"] as const).flatMap((kind) =>
    words(draft[kind]).map((name) => [name, kind] as const),
  );
  return {
    ...{ section, table, of: draft.of ?? "environment", columns: Object.fromEntries(kinds) },
    ...{ left: words(draft.left), key: words(draft.key), ids: words(draft.ids) },
  };
}

const bucketTables = (section: "kv" | "config"): ExportedTable[] => [
  exported(section, "kv_buckets", {
    key: "id",
    text: "id name description",
    number:
      "ttl_ms value_bytes_max bytes_max history_max revision value_count bytes forgotten_revision created_at",
    left: "deleted_at",
  }),
  exported(section, "kv_keys", {
    key: "bucket_id key",
    text: "bucket_id key operation value",
    number: "revision bytes created_at expires_at",
  }),
  exported(section, "kv_history", {
    key: "bucket_id key revision",
    text: "bucket_id key value",
    number: "revision bytes created_at expires_at",
  }),
];

/** What an export has. A test compares it with the schema: each column leaves, or is said to stay. */
export const exportedTables: readonly ExportedTable[] = [
  exported("environments", "projects", {
    ...{ of: "org", key: "id", ids: "id" },
    text: "id name description",
    number: "created_at updated_at",
  }),
  exported("environments", "environments", {
    ...{ of: "org", key: "id", ids: "id project_id" },
    text: "id project_id name color schema_mode",
    number: "created_at updated_at retention_days",
    left: "compat_key_id",
  }),
  exported("functions", "functions", {
    key: "id",
    text: "id slug name status mode",
    number:
      "version lane_limit paced throttle_us throttle_burst undo_on cron_count definition_bytes created_at updated_at",
    json: "definition",
  }),
  exported("functions", "function_versions", {
    key: "function_id version",
    text: "function_id actor_id",
    number: "version recorded_at",
    json: "definition",
  }),
  exported("functions", "function_history", {
    ...{ key: "function_id entity_version", ids: "event_id" },
    text: "function_id event_id change_type change_reason actor_id",
    number: "entity_version recorded_at",
    json: "snapshot",
  }),
  exported("events", "events", {
    ...{ key: "position", ids: "id run_id" },
    text: "id name source idempotency_key entity_id entity_type run_id schema_hash schema_breach",
    number: "position version at entity_version redacted_at",
    json: "data metadata",
  }),
  // Behind the events, as retention may have gone on while they were read.
  exported("events", "heads", {
    key: "environment_id",
    number: "position last_at retention_floor",
    left: "definitions_version schedules_version epoch",
  }),
  exported("streams", "streams", {
    key: "entity_id",
    text: "entity_id entity_type",
    number: "version created_at updated_at deleted_at purge_from",
  }),
  exported("snapshots", "snapshots", {
    ...{ key: "entity_id entity_version", ids: "id" },
    text: "entity_id id",
    number: "entity_version created_at",
    json: "state",
  }),
  exported("runs", "runs", {
    ...{ key: "created_at id", ids: "id event_id parent_run_id" },
    text: "id function_id event_id event_name mode status trouble actor_id worker_id cancellation_cause error_group parent_run_id parent_step_id",
    number:
      "function_version attempt max_attempts created_at started_at ended_at updated_at timeout_at execution_seq depth undo_failed",
    json: "output error nondeterminism",
    left: "lease_hash",
  }),
  exported("runs", "run_attribute_names", {
    key: "name",
    text: "name type",
    number: "created_at deleted_at",
  }),
  exported("runs", "run_attributes", {
    ...{ of: "runs", key: "run_id name", ids: "run_id" },
    text: "run_id name value",
    number: "created_at",
  }),
  exported("runs", "error_groups", {
    ...{ key: "id", ids: "sample_run_id" },
    text: "id function_id code message frame sample_run_id",
    number: "count first_seen_at last_seen_at",
  }),
  exported("steps", "steps", {
    ...{ of: "runs", key: "run_id step_id", ids: "run_id child_run_id" },
    text: "run_id step_id name type status patched_by compensation_for wait_event_name child_run_id on_timeout",
    number:
      "sequence attempt started_at ended_at duration_ms patched_at sleep_until created_at updated_at wait_timeout_at failure_told_at",
    json: "output error original_output input",
  }),
  exported("steps", "run_history", {
    ...{ of: "runs", key: "run_id sequence", ids: "run_id" },
    text: "run_id type",
    number: "sequence at",
    json: "detail",
  }),
  exported("steps", "run_streams", {
    ...{ of: "runs", key: "run_id entity_id", ids: "run_id" },
    text: "run_id entity_id",
  }),
  exported("projections", "projections", {
    ...{ key: "name", ids: "error_event_id" },
    text: "name mode status partition_path error_message error_event_id error_partition",
    number: "version generation error_position created_at updated_at",
    json: "events",
    left: "stale_holder refuses_save",
  }),
  exported("projections", "projection_generations", {
    key: "name generation",
    text: "name",
    number: "generation definition_version cursor_position saved_at recorded_since",
    left: "position delivered offered target return_to holder stream_id fence lease_until asked_at dropped_at",
  }),
  exported("projections", "sql_projections", {
    key: "name",
    text: "name table_name table_sql description",
    json: "event_handlers admitted",
  }),
  exported("projections", "projection_states", {
    ...{ key: "name generation partition_key", ids: "last_event_id error_event_id" },
    text: "name partition_key last_event_id error_message error_event_id",
    number: "generation last_position last_event_at version error_position skipped_position updated_at",
    json: "state",
  }),
  exported("projections", "projection_history", {
    ...{ key: "name generation partition_key at position", ids: "event_id" },
    text: "name partition_key event_id",
    number: "generation at position version saved_at",
    json: "state",
  }),
  exported("schemas", "event_schemas", {
    key: "event_name version",
    // Its hash is that of the text.
    text: "event_name hash schema_json description",
    number: "version bytes created_at",
  }),
  ...bucketTables("kv"),
  ...bucketTables("config"),
  exported("policies", "policies", {
    ...{ of: "org", key: "id", ids: "id" },
    text: "id name actions resources condition template_id template_version",
    number: "version created_at updated_at",
  }),
  exported("policies", "policy_versions", {
    ...{ of: "org", key: "policy_id version", ids: "policy_id" },
    text: "policy_id name actions resources condition author_id change_reason template_id template_version",
    number: "version created_at",
  }),
  exported("roles", "roles", {
    ...{ of: "org", key: "id", ids: "id" },
    text: "id name base",
    number: "created_at updated_at",
  }),
  exported("roles", "role_policies", {
    ...{ of: "org", key: "role_id policy_id", ids: "role_id policy_id" },
    text: "role_id policy_id",
    number: "created_at",
  }),
  exported("users", "users", {
    ...{ of: "org", key: "id", ids: "id" },
    text: "id email name",
    number: "created_at updated_at last_login_at",
    json: "roles role_ids",
    left: "password_hash role_ids_of tokens_after",
  }),
  exported("audit", "auth_audit", {
    ...{ of: "org", key: "sequence" },
    // The hash of a row covers these texts as they are.
    text: "id event_type operation action environment_id resource rule outcome caller_kind caller_id roles impersonated_org_id request_id payload removed key_id hash",
    number: "sequence at reads allowed",
  }),
  exported("webhooks", "webhook_sources", {
    key: "id",
    text: "id name event_prefix source_type verify_header verify_algorithm",
    number: "created_at updated_at",
    json: "verify_config metadata",
    left: "sealed prev_sealed prev_expires_at token_hash token_prefix",
  }),
  exported("webhooks", "webhook_endpoints", {
    key: "id",
    text: "id name url pattern filter status disabled_reason last_error",
    number: "position last_delivered_at created_at updated_at",
    left: "sealed prev_sealed prev_expires_at holder fence lease_until due_at attempts failing_event_id tried_since failing_since stopped_at",
  }),
];

/** Tables that no export has, and why. */
export const notExported: Readonly<Record<string, string>> = {
  agent_tools: "agents register them when they start",
  agents: "they have secrets, and register when they start",
  api_keys: "credentials",
  auth_audit_heads: "the signature of this installation",
  batch_events: "runs name their first event",
  batches: "starts that are still to come",
  breakers: "what this installation sees of endpoints",
  child_ends: "of runs that are not over",
  consumer_groups: "places of readers that are connected here",
  debounces: "starts that are still to come",
  delayed_events: "events that are still to come",
  deleted_environments: "what was deleted",
  environment_databases: "folded from events, with credentials",
  executions: "of runs that are not over",
  exports: "leases",
  flow_edges: "counts of this installation",
  flow_minutes: "counts of this installation",
  group_deliveries: "of consumer groups",
  group_members: "of consumer groups",
  healings: "of this installation",
  idempotency_keys: "of a day",
  imports: "of imports under way",
  invocations: "of runs that are not over",
  keyring: "secrets of the installation",
  lanes: "of runs that are not over",
  leaders: "of the installation",
  primary_server: "of the installation",
  login_attempts: "of the installation",
  matchers: "of runs that are not over",
  mirrors: "of the installation",
  nodes: "of the installation",
  orgs: "the first line has it",
  outbox: "what is still to be sent",
  platform_audit: "of the platform",
  platform_users: "of the platform",
  projection_pending: "delivered again from the cursor",
  projection_rebuilds: "what was",
  quotas: "of this installation",
  repair_items: "runs are named by their ids here",
  repairs: "runs are named by their ids here",
  resumes: "of two minutes",
  rotations: "of the installation",
  run_deadlines: "of runs that are not over",
  schedules: "made from functions",
  secret_revisions: "of secrets",
  secrets: "secrets",
  sessions: "credentials",
  start_gates: "starts of a moment ago",
  topic_heads: "of topics",
  topic_messages: "messages, which are kept for hours",
  topics: "of topics",
  waits: "of runs that are not over",
  webhook_dead_letters: "what this installation could not send",
  webhook_deliveries: "bodies with signatures, which are kept for days",
  workers: "who is connected here",
};

/** What the first line of an export says of its form. */
export const exportFormat = { name: "svc-export", version: 1 } as const;
