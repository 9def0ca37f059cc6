import { comments } from "../gen/svc/v1/comments.ts";
import { snakeCase } from "../kit/cases.ts";
import { describedBy } from "../kit/message-shape.ts";

/**
 * Fields that mean the same everywhere, by snake_case name: the OpenAPI document takes these words where a
 * schema has none. Names with several meanings (`id`, `name`, `status`) are described by their schemas.
 */
export const fieldWords: Readonly<Record<string, string>> = {
  // Ids.
  actor_id: "What runs with this value share: they prefer one worker.",
  api_key_id: "Id of an API key (`ak_…`).",
  endpoint_id: "Id of the webhook endpoint (`whe_…`).",
  child_function_id: "Id of the function that was invoked.",
  entity_id: "Id of the entity: letters, digits and `- . _ : ~`, at most 256 bytes.",
  env: "Id or name of an environment.",
  env_id: "Id of the environment (`env_…`).",
  environment_id: "Id of the environment (`env_…`).",
  event_id: "Id of the event (`evt_…`).",
  from_event_id: "The first event that is folded; all that are kept when empty.",
  function_id: "Id of the function.",
  function_ids: "Ids of the functions that the worker serves.",
  impersonated_org_id: "The org that a platform credential acted in by `X-Svc-Org`.",
  job_id: "Id of the job (`job_…`): one run handed to one worker.",
  node_id: "Id of a node of the cluster (`node_…`).",
  org_id: "Id of the org (`org_…`); the caller's own when left out.",
  parent_function_id: "Id of the function that invoked the other.",
  parent_run_id: "The run that invoked this one.",
  parent_step_id: "The step that invoked this run.",
  platform_key_id: "The platform's API key that made the call.",
  platform_user_id: "The platform user who made the call (`puser_…`).",
  policy_id: "Id of the deny policy (`pol_…`).",
  policy_ids: "Ids of the deny policies that the role gets.",
  project_id: "Id of the project (`proj_…`).",
  role_ids: "Ids of roles (`role_…`), or their names; their grants add up.",
  run_id: "Id of the run (`run_…`).",
  run_ids: "Ids of the runs that were started (`run_…`); empty when no function matched.",
  snapshot_id: "Id of the snapshot (`snap_…`).",
  source_id: "Id of the webhook source (`whs_…`).",
  step_id: "Id of the step: the SDK makes it, unique in its run.",
  subscription_id: "Id of the subscription (`sub_…`), as `subscribed` answered it.",
  to_event_id: "The last event that is folded; the end of the log when empty.",
  worker_id: "Id of the worker, by its own choice; two workers with one id take each other's place.",

  // Times.
  armed_at: "When the first of the events came, RFC 3339.",
  claimed_at: "When a worker was handed the run, RFC 3339.",
  completed_at: "When it ended, RFC 3339.",
  created_at: "When it was made, RFC 3339.",
  dead_at: "When the last attempt was spent, RFC 3339.",
  deleted_at: "When it was deleted, RFC 3339.",
  duration_ms: "How long it took, in milliseconds.",
  duration_ms_full: "The duration in 64 bits; present also when it is zero.",
  ended_at: "When it ended, RFC 3339; absent while it goes on.",
  expires_at: "When it ends, RFC 3339; absent when it does not.",
  from_timestamp: "Nothing before this time, RFC 3339.",
  last_event_time: "When the last folded event happened, RFC 3339.",
  last_login_at: "When the user logged in last, RFC 3339; absent before the first login.",
  last_used_at: "When it was used last, RFC 3339; absent before its first use.",
  lease_expires_at: "When the lease ends unless it is renewed, RFC 3339.",
  patched_at: "When a person replaced the output, RFC 3339.",
  recorded_at: "When it was written down, RFC 3339.",
  redacted_at: "When the payload was overwritten, RFC 3339; absent for an event that has it.",
  since: "Nothing before this time, RFC 3339.",
  sleep_until: "When the sleep ends, RFC 3339.",
  started_at: "When it began, RFC 3339.",
  timeout_at: "When the run is ended as timed out, RFC 3339.",
  timestamp: "When it happened, RFC 3339.",
  to_timestamp: "Nothing after this time, RFC 3339.",
  until: "Nothing after this time, RFC 3339.",
  updated_at: "When it was last changed, RFC 3339.",

  // Lists.
  approx_total: "How many events the whole list has, counted up to 10,000.",
  approx_total_capped: "Whether there are more than `approx_total` says.",
  cursor: "`next_cursor` of the page before; opaque.",
  has_more: "Whether a page follows.",
  has_next: "Whether a page follows.",
  has_prev: "Whether a page comes before.",
  limit: "How many at most: 20 unless it says otherwise, never more than 200.",
  next_cursor: "`cursor` of the page that follows; absent or empty on the last one.",
  offset: "How many are passed over, from 0.",
  prev_cursor: "`cursor` of the page before; absent on the first one.",
  search: "Text that ids or names must hold, at most 256 bytes.",
  total_count: "How many the whole list has, whatever the page.",
  truncated: "Whether something was left out because of a bound.",

  // Events and logs.
  custom: "The metadata that the event was emitted with.",
  entity_type: "Type of the entity, fixed by the first append to its stream.",
  entity_version: "Place of the event in its entity's stream, from 1.",
  event: "Name of the event.",
  event_data: "Payload of the event.",
  event_name: "Name of the event: segments joined by dots, at most 248 bytes.",
  event_prefix: "What names of the events begin with, at most 128 bytes.",
  idempotency_key: "A repeat with the same key answers the first call: at most 255 bytes, kept for 24 hours.",
  nats_seq: "Position in the log of the environment, under the name that older clients read.",
  processed: "Whether its triggers were evaluated: always true of a stored event.",
  retention_floor: "Position below which events have expired; reading below it is refused.",
  schema_hash: "SHA-256 of the schema, in hex.",
  schema_json: "A JSON Schema, as text: at most 256 KiB.",
  sequence: "Position in the log of the environment, from 1, without gaps.",
  topic: "Name of the topic.",
  webhook_source_id: "The webhook source that the event came in by (`whs_…`).",

  // Functions and runs.
  actor_key: "A path inside the data of the event; runs with the same value prefer the same worker.",
  attempt: "Which attempt it is, from 1.",
  attempts: "How many attempts were made.",
  cancel_on: "Events that cancel the function's runs, at most 50.",
  change_reason: "Why it was changed, for the history: at most 1,024 characters.",
  compensation_for: "Name of the step that this one undoes.",
  concurrency: "How many runs may be under way at once.",
  debounce: "Starts one run for repeated events, once they rest.",
  debounce_key: "The lane of the debounce: the value at its key path, or empty.",
  endpoint_url: "Where jobs of a push function are sent: an `http(s)` URL.",
  execution_mode: "`pull` (workers ask for jobs) or `push` (jobs are sent to `endpoint_url`).",
  execution_seq: "Which execution of the run it is, from 1; with `lease_token` the fence of every report.",
  function_version: "Version of the function's definition that the run keeps.",
  injected: "Whether a person injected the output while the run was held.",
  lease_token:
    "Proves the lease of the job and goes into every report; another is refused as `STALE_EXECUTION`.",
  max_attempts: "Attempts in all, the first included: 1 to 100.",
  max_delay_ms: "The longest pause between two attempts, in milliseconds.",
  original_output: "The first output, before any patch or injection.",
  patched: "Whether a person replaced the output.",
  patched_by: "Id of the caller who replaced the output.",
  pause_reason: "Why the run is held: `sleep`, `wait_event`, `invoke`, `injection` or `deployment_gone`.",
  period_ms: "How long the events must rest before the run starts, in milliseconds.",
  preferred_mode: "`pull` (workers ask for jobs) or `push` (jobs are sent to `endpoint_url`).",
  recording_retention: "How long recordings are kept: days as `30d`, years as `7y`, or `forever`.",
  retry: "How often a failed run is tried again, and after which pauses.",
  retry_attempts: "Attempts in all, the first included: 1 to 100.",
  retry_backoff: "By what each pause is longer than the one before.",
  retry_delay_ms: "The pause before the second attempt, in milliseconds.",
  retryable: "Whether another attempt may help.",
  step_name: "What the handler calls the step.",
  step_sequence_base: "The number that the next step of the run gets.",
  step_type: "`invoke`, `sleep`, `wait_for_event`, `compensate` or `invoke_function`.",
  triggers: "What starts the function: at most 50 event names, patterns or cron schedules.",

  // Workers.
  active_jobs: "How many jobs the worker has under way.",
  available: "How many more jobs the worker takes now; at most 200 come at once.",
  completed_steps: "Steps of the run that are stored: the worker does not execute them again.",
  cpu_percent: "Share of the processor that is used, from 0 to 100.",
  draining: "Whether it takes no more jobs and ends when its jobs have.",
  hostname: "Name of the worker's machine, at most 256 characters.",
  max_concurrent_jobs: "How many jobs the worker takes at once, 1 to 1,000.",
  memory_percent: "Share of the memory that is used, from 0 to 100.",
  runtime: "What the worker runs on, such as `node 22.1.0`.",
  sdk: "The worker's SDK with its version.",

  // Projections.
  batch_size: "How many events at most: 100 unless it says otherwise, never more than 1,000.",
  behind_by_events: "How many positions are left up to the target.",
  building_generation: "Generation that is folded beside the one that is read; 0 when there is none.",
  building_seq: "Position up to which the generation beside is folded.",
  caught_up: "Whether the projection has come to the target.",
  current_seq: "Position up to which the projection is folded.",
  dry_run: "Whether the scope of the job is only answered, and nothing changed.",
  error_event_seq: "Position of the event whose handler failed.",
  error_message: "What went wrong; empty when nothing did.",
  error_partition: "Partition of the event whose handler failed.",
  event_handlers: "Event name to one INSERT, UPDATE or DELETE with bound parameters.",
  events_processed: "How many events are folded.",
  generation: "Generation of the projection's state; 0 in a request means the one that is read.",
  last_event_id: "The last event that is folded.",
  last_event_seq: "Position of the last event that is folded.",
  min_seq: "Position that the projection must have come to; 0 answers at once.",
  partition: "Key of the partition; empty means `__global__`.",
  partition_key: "Key of the partition: `__global__` where events are not divided.",
  projection_name: "Name of the projection.",
  rebuild_started_at: "When the rebuild began, RFC 3339; absent without one.",
  rebuild_start_cursor: "Position that the rebuild began at.",
  rebuild_target_seq: "Position that the rebuild goes to.",
  rebuilding: "Whether the projection is rebuilt in place.",
  sql_definition: "The CREATE TABLE of an SQL projection; empty for others.",
  strategy: "`in_place` (also when empty) or `side_by_side`.",
  target_seq: "Position that is waited for.",
  timed_out: "Whether the time was over before the target was reached.",
  total_events: "How many events there are in all.",

  // Groups.
  ack_mode: "`auto` (a delivery is acknowledged by being sent) or `manual`.",
  backpressure: "What becomes of deliveries when all members are busy: `drop`, `block` or `buffer`.",
  consumer_id: "Name of the member, unique in its group.",
  filter_expr: "A CEL expression on the event; others pass by the group.",
  group_name: "Name of the consumer group.",
  max_inflight: "Deliveries that are out at once, 1 to 1,000; 100 unless it says otherwise.",
  max_redeliveries: "How often a delivery is tried again, 0 to 1,000; 3 unless it says otherwise.",
  namespace: "Groups of one name may stand in several namespaces; empty is one of them.",
  redeliver_delay_ms:
    "Milliseconds before a delivery comes again: 5,000 unless it says otherwise, at most a day.",

  // Webhooks.
  dead_letters: "Events that were given up: they are redelivered or discarded by a call.",
  duplicate: "Whether it repeats a delivery that was accepted.",
  expected_updated_at: "`updated_at` that the caller has seen; another one in the store answers `aborted`.",
  grace_seconds: "How long the previous secret stays good: at most 604,800; a day unless it says otherwise.",
  last_error: "What the last attempt failed with, at most 500 characters.",
  preset: "Provider whose settings fill what `verify_config` leaves out: `github`, `stripe`, `slack`, …",
  source_type: "Provider of the source, such as `github`; `generic` without a preset.",
  verify_algorithm: "`hmac-sha256` or `hmac-sha1`; empty where nothing is verified.",
  verify_config: "How a provider's signature is read and computed.",
  verify_header: "Header that has the signature.",
  verify_secret: "The secret that the provider signs with, at most 1,024 bytes. Never answered.",

  // Access.
  actions: "Comma-separated patterns of actions, such as `runs:*`.",
  api_key_count: "How many keys carry the role.",
  base: "Built-in role whose grants it has; without one the role grants nothing.",
  condition: "A CEL condition over subject, request, resource and time; empty means always.",
  current_password: "The password that the user has now.",
  effect: "Always `deny`: roles allow, policies deny.",
  email: "Email address, which the user logs in with: at most 254 characters.",
  break_glass: "Whether the user's password lets them in although passwords are off; each use is audited.",
  is_active: "Whether the user may log in.",
  is_default: "Whether the role is built in.",
  key_prefix: "The first characters of the key, to know it by.",
  new_password: "The password from now on: at least 8 characters, at most 1,024 bytes.",
  password: "Password of the user: at least 8 characters, at most 1,024 bytes; never answered.",
  policy_count: "How many deny policies the role has.",
  resources: "Comma-separated patterns: `*`, or `irn:svc:{org}:{project}:{type}:{environment}:{resource}`.",
  role_count: "How many roles have the policy.",

  // Keys, config and SQL.
  bucket: "Name of the bucket: A-Z, a-z, 0-9, `_` and `-`, at most 64.",
  columns: "Names of the columns, in the order of the values.",
  max_rows: "How many rows at most: 1,000 unless it says otherwise, never more than 10,000.",
  max_value_size: "The most bytes that a value may have; 1 MiB unless it says otherwise.",
  revision: "Number of the change, from 1; each change gets the next one.",
  total_rows: "How many rows the answer has.",
};

export type JsonSchema = Record<string, unknown>;

/** What is said of all fields of this name, in either spelling. */
export function wordsOf(name: string): string | undefined {
  const plain = snakeCase(name);
  return Object.hasOwn(fieldWords, plain) ? fieldWords[plain] : undefined;
}

/**
 * The schema with words for those of its fields, at any depth, that say nothing themselves: those of the
 * message that it is made of, else of the name.
 */
export function withWords(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withWords);
  if (typeof schema !== "object" || schema === null) return schema;
  const { [describedBy]: message, ...rest } = schema as JsonSchema;
  return Object.fromEntries(
    Object.entries(rest).map(([key, value]) => {
      if (key !== "properties") return [key, withWords(value)];
      const fields = Object.entries(value as Record<string, JsonSchema>).map(([name, field]) => {
        const words = field.description ?? comments[`${message}.${name}`] ?? wordsOf(name);
        const whole = withWords(field) as JsonSchema;
        return [name, words === undefined ? whole : { ...whole, description: words }];
      });
      return [key, Object.fromEntries(fields)];
    }),
  );
}
