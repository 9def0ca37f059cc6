CREATE TABLE agent_tools (environment_id text NOT NULL, qualified_name text NOT NULL, agent_name text NOT NULL, description text NOT NULL, input_schema text NOT NULL, required_scopes text NOT NULL, timeout_ms bigint NOT NULL, bytes bigint NOT NULL, PRIMARY KEY (environment_id, qualified_name));
CREATE INDEX agent_tools_agent ON agent_tools (environment_id, agent_name);
CREATE TABLE agents (environment_id text NOT NULL, name text NOT NULL, callback_url text NOT NULL, sealed text NOT NULL, registered_at bigint NOT NULL, PRIMARY KEY (environment_id, name));
CREATE TABLE api_keys (id text NOT NULL, org_id text NOT NULL, environment_id text, name text NOT NULL, key_hash text NOT NULL, key_prefix text NOT NULL, role_ids text NOT NULL, platform_at bigint, created_at bigint NOT NULL, expires_at bigint, last_used_at bigint, tokens_after bigint NOT NULL DEFAULT 0, PRIMARY KEY (id));
CREATE UNIQUE INDEX api_keys_by_hash ON api_keys (key_hash);
CREATE INDEX api_keys_by_org ON api_keys (org_id);
CREATE INDEX api_keys_by_environment ON api_keys (environment_id);
CREATE TABLE auth_audit (org_id text NOT NULL, sequence bigint NOT NULL, id text NOT NULL, at bigint NOT NULL, event_type text NOT NULL, operation text NOT NULL, action text NOT NULL, reads bigint NOT NULL, environment_id text NOT NULL, resource text NOT NULL, allowed bigint NOT NULL, rule text NOT NULL, outcome text NOT NULL, caller_kind text NOT NULL, caller_id text NOT NULL, roles text NOT NULL, impersonated_org_id text NOT NULL, request_id text NOT NULL, payload text, removed text NOT NULL, key_id text NOT NULL, hash text NOT NULL, PRIMARY KEY (org_id, sequence));
CREATE INDEX auth_audit_by_time ON auth_audit (org_id, at, sequence);
CREATE INDEX auth_audit_by_caller ON auth_audit (org_id, caller_id, at, sequence);
CREATE TABLE auth_audit_heads (org_id text NOT NULL, sequence bigint NOT NULL, hash text NOT NULL, floor_sequence bigint NOT NULL, floor_hash text NOT NULL, key_id text NOT NULL, signature text NOT NULL, PRIMARY KEY (org_id));
CREATE TABLE batch_events (environment_id text NOT NULL, batch_id text NOT NULL, position bigint NOT NULL, event_id text NOT NULL, bytes bigint NOT NULL, at bigint NOT NULL, run_id text, PRIMARY KEY (environment_id, batch_id, "position"));
CREATE INDEX batch_events_of_run ON batch_events (run_id, "position") WHERE (run_id IS NOT NULL);
CREATE INDEX batch_events_by_event ON batch_events (event_id);
CREATE TABLE batches (id text NOT NULL, environment_id text NOT NULL, function_id text NOT NULL, function_version bigint NOT NULL, size bigint NOT NULL, timeout_ms bigint NOT NULL, count bigint NOT NULL, bytes bigint NOT NULL, first_position bigint NOT NULL, closes_at bigint NOT NULL, PRIMARY KEY (id));
CREATE INDEX batches_due ON batches (closes_at);
CREATE INDEX batches_due_by_environment ON batches (environment_id, ((closes_at + 0))) WHERE (closes_at >= 0);
CREATE INDEX batches_by_environment ON batches (environment_id, function_id);
CREATE TABLE breakers (environment_id text NOT NULL, function_id text NOT NULL, endpoint_url text NOT NULL, fails bigint NOT NULL, opened_at bigint, trial_until bigint, last_failure_at bigint NOT NULL, endpoint text, PRIMARY KEY (environment_id, function_id, endpoint_url));
CREATE INDEX breakers_by_time ON breakers (last_failure_at);
CREATE TABLE child_ends (child_run_id text NOT NULL, environment_id text NOT NULL, ended_at bigint NOT NULL, PRIMARY KEY (child_run_id)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX child_ends_by_time ON child_ends (ended_at, child_run_id);
CREATE INDEX child_ends_by_environment ON child_ends (environment_id, ((ended_at + 0)), child_run_id) WHERE (ended_at >= 0);
CREATE TABLE consumer_groups (environment_id text NOT NULL, namespace text NOT NULL, name text NOT NULL, id text NOT NULL, log text NOT NULL, pattern text NOT NULL, filter_expr text, ack_mode text NOT NULL, backpressure text NOT NULL, max_inflight bigint NOT NULL, max_redeliveries bigint NOT NULL, redeliver_delay_ms bigint NOT NULL, metadata text, status text NOT NULL, version bigint NOT NULL, position bigint NOT NULL, dropped_count bigint NOT NULL, given_up_count bigint NOT NULL, kept_until bigint, created_at bigint NOT NULL, updated_at bigint NOT NULL, PRIMARY KEY (environment_id, namespace, name)) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE UNIQUE INDEX consumer_groups_by_id ON consumer_groups (environment_id, id);
CREATE INDEX consumer_groups_kept ON consumer_groups (kept_until) WHERE (kept_until IS NOT NULL);
CREATE TABLE debounces (id text NOT NULL, environment_id text NOT NULL, function_id text NOT NULL, function_version bigint NOT NULL, debounce_key text NOT NULL, event_id text NOT NULL, event_position bigint NOT NULL, period_ms bigint NOT NULL, max_wait_ms bigint NOT NULL, first_at bigint NOT NULL, armed_at bigint NOT NULL, fires_at bigint NOT NULL, PRIMARY KEY (id)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX debounces_due ON debounces (fires_at);
CREATE INDEX debounces_by_environment ON debounces (environment_id, function_id);
CREATE INDEX debounces_due_by_environment ON debounces (environment_id, ((fires_at + 0))) WHERE (fires_at >= 0);
CREATE TABLE delayed_events (id text NOT NULL, environment_id text NOT NULL, name text NOT NULL, version bigint NOT NULL, data text NOT NULL, metadata text, idempotency_key text, run_id text, start_refused bigint NOT NULL, due_at bigint NOT NULL, wake_at bigint NOT NULL, created_at bigint NOT NULL, PRIMARY KEY (id));
CREATE INDEX delayed_events_by_wake ON delayed_events (wake_at);
CREATE INDEX delayed_events_wake_by_environment ON delayed_events (environment_id, ((wake_at + 0))) WHERE (wake_at >= 0);
CREATE INDEX delayed_events_by_time ON delayed_events (environment_id, due_at, id);
CREATE TABLE deleted_environments (id text NOT NULL, org_id text NOT NULL, project_id text, name text NOT NULL, deleted_at bigint NOT NULL, purged_at bigint, PRIMARY KEY (id));
CREATE INDEX deleted_environments_by_time ON deleted_environments (deleted_at);
CREATE INDEX deleted_environments_unpurged ON deleted_environments (deleted_at) WHERE (purged_at IS NULL);
CREATE INDEX deleted_environments_unpurged_by_org ON deleted_environments (org_id, deleted_at) WHERE (purged_at IS NULL);
CREATE TABLE environment_databases (environment_id text NOT NULL, name text NOT NULL, reader_sealed text NOT NULL, writer_sealed text NOT NULL, made_of text NOT NULL, PRIMARY KEY (environment_id));
CREATE TABLE environments (id text NOT NULL, org_id text NOT NULL, project_id text, name text NOT NULL, color text NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, retention_days bigint, compat_key_id text, schema_mode text, PRIMARY KEY (id));
CREATE UNIQUE INDEX environments_by_name ON environments (org_id, name);
CREATE INDEX environments_by_project ON environments (project_id);
CREATE TABLE error_groups (environment_id text NOT NULL, id text NOT NULL, function_id text NOT NULL, code text NOT NULL, message text NOT NULL, frame text NOT NULL, count bigint NOT NULL, first_seen_at bigint NOT NULL, last_seen_at bigint NOT NULL, sample_run_id text NOT NULL, PRIMARY KEY (environment_id, id)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX error_groups_by_time ON error_groups (environment_id, last_seen_at);
CREATE INDEX error_groups_by_function ON error_groups (environment_id, function_id, last_seen_at);
CREATE TABLE event_schemas (environment_id text NOT NULL, event_name text NOT NULL, version bigint NOT NULL, hash text NOT NULL, schema_json text NOT NULL, bytes bigint NOT NULL, description text NOT NULL, created_at bigint NOT NULL, PRIMARY KEY (environment_id, event_name, version));
CREATE TABLE events (environment_id text NOT NULL, position bigint NOT NULL, id text NOT NULL, name text NOT NULL, version bigint NOT NULL, data text NOT NULL, metadata text, source text NOT NULL, at bigint NOT NULL, idempotency_key text, entity_id text, entity_type text, entity_version bigint, run_id text, redacted_at bigint, schema_hash text, schema_breach text, PRIMARY KEY (environment_id, "position")) WITH (autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_insert_scale_factor=0.05, autovacuum_analyze_scale_factor=0.02);
CREATE UNIQUE INDEX events_by_id ON events (id);
CREATE INDEX events_by_time ON events (environment_id, at, id);
CREATE INDEX events_by_name ON events (environment_id, name, at);
CREATE UNIQUE INDEX events_by_entity ON events (environment_id, entity_id, entity_version) WHERE (entity_id IS NOT NULL);
CREATE INDEX events_by_run ON events (environment_id, run_id, "position") WHERE (run_id IS NOT NULL);
CREATE TABLE executions (run_id text NOT NULL, environment_id text NOT NULL, function_id text NOT NULL, function_version bigint NOT NULL, state text NOT NULL, wake_at bigint NOT NULL, execution_seq bigint NOT NULL, attempt bigint NOT NULL, max_attempts bigint NOT NULL, lease_hash text, worker_id text, claimed_at bigint, acked_at bigint, started_at bigint, step_count bigint NOT NULL, history_count bigint NOT NULL, lost_count bigint NOT NULL, waiting_step_id text, timeout_at bigint, pause_requested_at bigint, seen_position bigint NOT NULL DEFAULT 0, watched_at bigint, parent_run_id text, held_from text, held_wake_at bigint, held_at bigint, held_by text, lane_id text, undo_count bigint NOT NULL DEFAULT 0, ending text, head_start_ms bigint, PRIMARY KEY (run_id)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000, autovacuum_vacuum_cost_delay=0);
CREATE INDEX executions_by_wake ON executions (wake_at) WHERE (state <> 'queued'::text);
CREATE INDEX executions_by_timeout ON executions (timeout_at) WHERE (timeout_at IS NOT NULL);
CREATE INDEX executions_queued_in_lane ON executions (lane_id, wake_at, run_id) WHERE ((state = 'queued'::text) AND (lane_id IS NOT NULL));
CREATE INDEX executions_leased_in_lane ON executions (lane_id) WHERE ((state = 'leased'::text) AND (lane_id IS NOT NULL));
CREATE INDEX executions_timeout_by_environment ON executions (environment_id, ((timeout_at + 0))) WHERE (timeout_at IS NOT NULL);
CREATE INDEX executions_begun_in_lane ON executions (lane_id, wake_at, run_id) WHERE ((state = 'queued'::text) AND (lane_id IS NOT NULL) AND (execution_seq > 0));
CREATE INDEX executions_by_lane ON executions (environment_id, function_id, state, wake_at, ((run_id || ''::text)));
CREATE TABLE exports (org_id text NOT NULL, holder text NOT NULL, lease_until bigint NOT NULL, PRIMARY KEY (org_id));
CREATE TABLE flow_edges (environment_id text NOT NULL, kind text NOT NULL, hour bigint NOT NULL, source text NOT NULL, target text NOT NULL, count bigint NOT NULL, PRIMARY KEY (environment_id, kind, hour, source, target));
CREATE INDEX flow_edges_age ON flow_edges (((hour + 0)));
CREATE TABLE flow_minutes (environment_id text NOT NULL, minute bigint NOT NULL, events bigint NOT NULL, started bigint NOT NULL, completed bigint NOT NULL, failed bigint NOT NULL, cancelled bigint NOT NULL, PRIMARY KEY (environment_id, minute));
CREATE INDEX flow_minutes_age ON flow_minutes (((minute + 0)));
CREATE TABLE function_history (environment_id text NOT NULL, function_id text NOT NULL, entity_version bigint NOT NULL, event_id text NOT NULL, change_type text NOT NULL, snapshot text NOT NULL, change_reason text, actor_id text NOT NULL, recorded_at bigint NOT NULL, PRIMARY KEY (environment_id, function_id, entity_version));
CREATE TABLE function_versions (environment_id text NOT NULL, function_id text NOT NULL, version bigint NOT NULL, definition text NOT NULL, recorded_at bigint NOT NULL, actor_id text NOT NULL, PRIMARY KEY (environment_id, function_id, version));
CREATE TABLE functions (environment_id text NOT NULL, id text NOT NULL, slug text NOT NULL, name text NOT NULL, status text NOT NULL, mode text NOT NULL, version bigint NOT NULL, definition text NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, lane_limit bigint, cron_count bigint NOT NULL DEFAULT 0, definition_bytes bigint NOT NULL DEFAULT 0, undo_on bigint, paced bigint, throttle_us bigint, throttle_burst bigint, PRIMARY KEY (environment_id, id));
CREATE UNIQUE INDEX functions_by_slug ON functions (environment_id, slug);
CREATE INDEX functions_in_push ON functions (environment_id, id) WHERE (mode = 'push'::text);
CREATE INDEX functions_counted ON functions (environment_id, cron_count, definition_bytes) WHERE (definition_bytes >= 0);
CREATE TABLE group_deliveries (environment_id text NOT NULL, group_id text NOT NULL, position bigint NOT NULL, event_id text NOT NULL, attempt bigint NOT NULL, spent_count bigint NOT NULL, lost_count bigint NOT NULL, member_id text, consumer_id text NOT NULL, due_at bigint NOT NULL, PRIMARY KEY (environment_id, group_id, "position")) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE UNIQUE INDEX group_deliveries_by_event ON group_deliveries (environment_id, group_id, event_id);
CREATE TABLE group_members (environment_id text NOT NULL, group_id text NOT NULL, id text NOT NULL, consumer_id text NOT NULL, client_id text NOT NULL, node_id text NOT NULL, joined_at bigint NOT NULL, seen_at bigint NOT NULL, PRIMARY KEY (environment_id, group_id, id)) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX group_members_seen ON group_members (seen_at);
CREATE TABLE heads (environment_id text NOT NULL, position bigint NOT NULL, last_at bigint NOT NULL, definitions_version bigint NOT NULL, retention_floor bigint NOT NULL, epoch bigint NOT NULL, schedules_version bigint NOT NULL DEFAULT '-1'::integer, PRIMARY KEY (environment_id)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX heads_unscheduled ON heads (environment_id) WHERE (schedules_version <> definitions_version);
CREATE TABLE healings (environment_id text NOT NULL, name text NOT NULL, healed bigint NOT NULL, last_at bigint NOT NULL, PRIMARY KEY (environment_id, name));
CREATE TABLE idempotency_keys (environment_id text NOT NULL, key text NOT NULL, kind text NOT NULL, function_id text, event_id text NOT NULL, run_ids text NOT NULL, created_at bigint NOT NULL, PRIMARY KEY (environment_id, key));
CREATE INDEX idempotency_keys_by_time ON idempotency_keys (created_at);
CREATE TABLE imports (org_id text NOT NULL, sum text NOT NULL, line_count bigint NOT NULL, environment_ids text NOT NULL, started_at bigint NOT NULL, PRIMARY KEY (org_id));
CREATE TABLE invocations (parent_run_id text NOT NULL, step_id text NOT NULL, environment_id text NOT NULL, function_id text NOT NULL, kind text NOT NULL, due_at bigint NOT NULL, created_at bigint NOT NULL, any_function bigint, PRIMARY KEY (parent_run_id, step_id)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX invocations_by_time ON invocations (due_at, parent_run_id, step_id);
CREATE INDEX invocations_due_by_environment ON invocations (environment_id, ((due_at + 0)), parent_run_id, step_id) WHERE (due_at >= 0);
CREATE TABLE keyring (kind text NOT NULL, version bigint NOT NULL, sealed text NOT NULL, fingerprint text NOT NULL, created_at bigint NOT NULL, created_by text NOT NULL, retired_at bigint, PRIMARY KEY (kind, version));
CREATE TABLE kv_buckets (environment_id text NOT NULL, id text NOT NULL, name text NOT NULL, description text, ttl_ms bigint, value_bytes_max bigint NOT NULL, bytes_max bigint, history_max bigint NOT NULL, revision bigint NOT NULL, value_count bigint NOT NULL, bytes bigint NOT NULL, forgotten_revision bigint NOT NULL DEFAULT 0, created_at bigint NOT NULL, deleted_at bigint, PRIMARY KEY (environment_id, id)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE UNIQUE INDEX kv_buckets_by_name ON kv_buckets (environment_id, name) WHERE (deleted_at IS NULL);
CREATE INDEX kv_buckets_deleted ON kv_buckets (deleted_at) WHERE (deleted_at IS NOT NULL);
CREATE TABLE kv_history (environment_id text NOT NULL, bucket_id text NOT NULL, key text NOT NULL, revision bigint NOT NULL, bytes bigint NOT NULL, created_at bigint NOT NULL, expires_at bigint, value text NOT NULL, PRIMARY KEY (environment_id, bucket_id, key, revision));
CREATE INDEX kv_history_by_revision ON kv_history (((bucket_id || ''::text)), revision);
CREATE TABLE kv_keys (environment_id text NOT NULL, bucket_id text NOT NULL, key text NOT NULL, revision bigint NOT NULL, operation text NOT NULL, bytes bigint NOT NULL, created_at bigint NOT NULL, expires_at bigint, value text, PRIMARY KEY (environment_id, bucket_id, key)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX kv_keys_by_expiry ON kv_keys (expires_at) WHERE (expires_at IS NOT NULL);
CREATE INDEX kv_keys_expiring ON kv_keys (environment_id, bucket_id, expires_at) WHERE (expires_at IS NOT NULL);
CREATE INDEX kv_keys_by_revision ON kv_keys (((bucket_id || ''::text)), revision);
CREATE TABLE lanes (id text NOT NULL, environment_id text NOT NULL, function_id text NOT NULL, claims bigint NOT NULL, created_at bigint NOT NULL, last_used_at bigint NOT NULL, paced_until_us bigint, PRIMARY KEY (id)) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX lanes_by_function ON lanes (environment_id, function_id);
CREATE TABLE leaders (duty text NOT NULL, epoch bigint NOT NULL, node_id text NOT NULL, lease_until bigint NOT NULL, PRIMARY KEY (duty));
CREATE TABLE login_attempts (key text NOT NULL, count bigint NOT NULL, ends_at bigint NOT NULL, PRIMARY KEY (key)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX login_attempts_by_end ON login_attempts (ends_at);
CREATE TABLE matchers (environment_id text NOT NULL, position bigint NOT NULL, generation bigint NOT NULL DEFAULT 0, PRIMARY KEY (environment_id)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE TABLE migrations (version bigint NOT NULL, name text NOT NULL, hash text NOT NULL, compatible bigint NOT NULL, landed_at bigint NOT NULL, PRIMARY KEY (version));
CREATE TABLE mirrors (environment_id text NOT NULL, position bigint NOT NULL, PRIMARY KEY (environment_id)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE TABLE nodes (id text NOT NULL, version text NOT NULL, url text NOT NULL, started_at bigint NOT NULL, heartbeat_at bigint NOT NULL, draining_at bigint, facts text NOT NULL, PRIMARY KEY (id));
CREATE TABLE orgs (id text NOT NULL, name text NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, access_version bigint NOT NULL DEFAULT 0, preferences text, PRIMARY KEY (id));
CREATE TABLE outbox (id text NOT NULL, environment_id text NOT NULL, event_id text NOT NULL, entity_id text, topic text NOT NULL, kind text NOT NULL, payload text NOT NULL, metadata text NOT NULL, created_at bigint NOT NULL, attempts bigint NOT NULL, due_at bigint NOT NULL, last_error text, dead_at bigint, PRIMARY KEY (id)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX outbox_due ON outbox (kind, due_at, id) WHERE (dead_at IS NULL);
CREATE INDEX outbox_by_event ON outbox (environment_id, event_id);
CREATE INDEX outbox_dead ON outbox (environment_id, dead_at, id) WHERE (dead_at IS NOT NULL);
CREATE INDEX outbox_dead_by_time ON outbox (dead_at, id) WHERE (dead_at IS NOT NULL);
CREATE INDEX outbox_due_by_environment ON outbox (kind, environment_id, ((due_at + 0)), id) WHERE (dead_at IS NULL);
CREATE TABLE platform_audit (id text NOT NULL, event_type text NOT NULL, platform_key_id text NOT NULL, platform_user_id text NOT NULL, impersonated_org_id text NOT NULL, payload text NOT NULL, created_at bigint NOT NULL, PRIMARY KEY (id));
CREATE INDEX platform_audit_by_time ON platform_audit (created_at, id);
CREATE INDEX platform_audit_by_type ON platform_audit (event_type, created_at, id);
CREATE INDEX platform_audit_by_key ON platform_audit (platform_key_id, created_at, id);
CREATE INDEX platform_audit_by_org ON platform_audit (impersonated_org_id, created_at, id);
CREATE TABLE platform_users (id text NOT NULL, email text NOT NULL, name text NOT NULL, password_hash text NOT NULL, roles text NOT NULL, is_active bigint NOT NULL, tokens_after bigint NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, last_login_at bigint, PRIMARY KEY (id));
CREATE UNIQUE INDEX platform_users_by_email ON platform_users (email);
CREATE TABLE policies (id text NOT NULL, org_id text NOT NULL, name text NOT NULL, actions text NOT NULL, resources text NOT NULL, condition text NOT NULL, version bigint NOT NULL, template_id text, template_version text, created_at bigint NOT NULL, updated_at bigint NOT NULL, PRIMARY KEY (id));
CREATE UNIQUE INDEX policies_by_name ON policies (org_id, name);
CREATE TABLE policy_versions (policy_id text NOT NULL, version bigint NOT NULL, org_id text NOT NULL, name text NOT NULL, actions text NOT NULL, resources text NOT NULL, condition text NOT NULL, author_id text NOT NULL, change_reason text, template_id text, template_version text, created_at bigint NOT NULL, PRIMARY KEY (policy_id, version));
CREATE TABLE primary_server (id text NOT NULL, system_identifier text NOT NULL, timeline bigint NOT NULL, seen_at bigint NOT NULL, PRIMARY KEY (id));
CREATE TABLE projection_generations (environment_id text NOT NULL, name text NOT NULL, generation bigint NOT NULL, definition_version bigint NOT NULL, cursor_position bigint NOT NULL, position bigint NOT NULL, delivered bigint NOT NULL, offered bigint NOT NULL, target bigint, return_to bigint, holder text, stream_id text, fence bigint NOT NULL, lease_until bigint NOT NULL, asked_at bigint NOT NULL, saved_at bigint NOT NULL, recorded_since bigint, dropped_at bigint, PRIMARY KEY (environment_id, name, generation)) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX projection_generations_dropped ON projection_generations (dropped_at) WHERE (dropped_at IS NOT NULL);
CREATE TABLE projection_history (environment_id text NOT NULL, name text NOT NULL, generation bigint NOT NULL, partition_key text NOT NULL, at bigint NOT NULL, position bigint NOT NULL, event_id text, version bigint NOT NULL, saved_at bigint NOT NULL, state text NOT NULL, PRIMARY KEY (environment_id, name, generation, partition_key, at, "position"));
CREATE INDEX projection_history_by_time ON projection_history (at);
CREATE TABLE projection_pending (environment_id text NOT NULL, name text NOT NULL, generation bigint NOT NULL, partition_key text NOT NULL, first_position bigint NOT NULL, last_position bigint NOT NULL, event_count bigint NOT NULL, PRIMARY KEY (environment_id, name, generation, partition_key)) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE TABLE projection_rebuilds (environment_id text NOT NULL, name text NOT NULL, id text NOT NULL, strategy text NOT NULL, status text NOT NULL, generation bigint NOT NULL, partition_key text, from_event_id text, to_event_id text, start_position bigint NOT NULL, target bigint NOT NULL, processed_count bigint NOT NULL, total_count bigint NOT NULL, started_at bigint NOT NULL, ended_at bigint, error text, PRIMARY KEY (environment_id, name));
CREATE TABLE projection_states (environment_id text NOT NULL, name text NOT NULL, generation bigint NOT NULL, partition_key text NOT NULL, state text, last_event_id text, last_position bigint NOT NULL, last_event_at bigint, version bigint NOT NULL, error_message text, error_event_id text, error_position bigint, skipped_position bigint, updated_at bigint NOT NULL, PRIMARY KEY (environment_id, name, generation, partition_key));
CREATE INDEX projection_states_stopped ON projection_states (environment_id, name, generation, error_position) WHERE (error_position IS NOT NULL);
CREATE TABLE projections (environment_id text NOT NULL, name text NOT NULL, mode text NOT NULL, status text NOT NULL, events text NOT NULL, partition_path text NOT NULL, version bigint NOT NULL, generation bigint NOT NULL, stale_holder text, refuses_save bigint NOT NULL, error_message text, error_event_id text, error_position bigint, error_partition text, created_at bigint NOT NULL, updated_at bigint NOT NULL, PRIMARY KEY (environment_id, name));
CREATE TABLE projects (id text NOT NULL, org_id text NOT NULL, name text NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, description text, PRIMARY KEY (id));
CREATE INDEX projects_by_org ON projects (org_id);
CREATE TABLE quotas (environment_id text NOT NULL, platform text NOT NULL, own text NOT NULL, runs_per_minute bigint, stored_bytes bigint, concurrent_runs bigint, minute bigint NOT NULL, minute_runs bigint NOT NULL, active_runs bigint NOT NULL, bytes bigint NOT NULL, updated_at bigint NOT NULL, PRIMARY KEY (environment_id));
CREATE TABLE repair_items (environment_id text NOT NULL, repair_id text NOT NULL, run_id text NOT NULL, function_id text NOT NULL, outcome text NOT NULL, error text, tries bigint NOT NULL, at bigint NOT NULL, event_id text, PRIMARY KEY (environment_id, repair_id, run_id)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX repair_items_by_outcome ON repair_items (environment_id, repair_id, outcome, run_id);
CREATE INDEX repair_items_pending ON repair_items (environment_id, repair_id, function_id, run_id) WHERE (outcome = 'pending'::text);
CREATE TABLE repairs (environment_id text NOT NULL, id text NOT NULL, action text NOT NULL, status text NOT NULL, phase text NOT NULL, reason text NOT NULL, request text NOT NULL, starter text NOT NULL, started_by text NOT NULL, note text NOT NULL, cursor_at bigint, cursor_id text, selected bigint NOT NULL, counts text, holder text, fence bigint NOT NULL, lease_until bigint NOT NULL, due_at bigint NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, ended_at bigint, PRIMARY KEY (environment_id, id)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX repairs_by_time ON repairs (environment_id, created_at, id);
CREATE INDEX repairs_open ON repairs (due_at) WHERE (ended_at IS NULL);
CREATE INDEX repairs_ended ON repairs (ended_at) WHERE (ended_at IS NOT NULL);
CREATE TABLE resumes (run_id text NOT NULL, environment_id text NOT NULL, resumed_at bigint NOT NULL, resumed_by text NOT NULL, plan text, PRIMARY KEY (run_id));
CREATE INDEX resumes_by_time ON resumes (resumed_at);
CREATE TABLE role_policies (org_id text NOT NULL, role_id text NOT NULL, policy_id text NOT NULL, created_at bigint NOT NULL, PRIMARY KEY (org_id, role_id, policy_id));
CREATE INDEX role_policies_by_policy ON role_policies (policy_id);
CREATE TABLE roles (id text NOT NULL, org_id text NOT NULL, name text NOT NULL, base text NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, PRIMARY KEY (id));
CREATE UNIQUE INDEX roles_by_name ON roles (org_id, name);
CREATE TABLE rotations (id text NOT NULL, org_id text NOT NULL, idempotency_key text, request_hash text NOT NULL, kind text NOT NULL, rotated_at bigint NOT NULL, actor_id text NOT NULL, confirmed text NOT NULL, PRIMARY KEY (id));
CREATE UNIQUE INDEX rotations_by_key ON rotations (org_id, idempotency_key) WHERE (idempotency_key IS NOT NULL);
CREATE INDEX rotations_by_time ON rotations (rotated_at);
CREATE TABLE run_attribute_names (environment_id text NOT NULL, name text NOT NULL, type text NOT NULL, created_at bigint NOT NULL, deleted_at bigint, PRIMARY KEY (environment_id, name));
CREATE INDEX run_attribute_names_deleted ON run_attribute_names (environment_id, name) WHERE (deleted_at IS NOT NULL);
CREATE TABLE run_attributes (environment_id text NOT NULL, run_id text NOT NULL, name text NOT NULL, value text NOT NULL, created_at bigint NOT NULL, PRIMARY KEY (run_id, name));
CREATE INDEX run_attributes_by_value ON run_attributes (environment_id, name, value, created_at, run_id);
CREATE TABLE run_deadlines (run_id text NOT NULL, environment_id text NOT NULL, cause text NOT NULL, due_at bigint NOT NULL, PRIMARY KEY (run_id, cause));
CREATE INDEX run_deadlines_by_time ON run_deadlines (due_at);
CREATE INDEX run_deadlines_by_environment ON run_deadlines (environment_id, ((due_at + 0))) WHERE (due_at >= 0);
CREATE TABLE run_history (run_id text NOT NULL, sequence bigint NOT NULL, environment_id text NOT NULL, type text NOT NULL, at bigint NOT NULL, detail text NOT NULL, PRIMARY KEY (run_id, sequence)) WITH (autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_insert_scale_factor=0.05, autovacuum_analyze_scale_factor=0.02);
CREATE TABLE run_streams (run_id text NOT NULL, entity_id text NOT NULL, environment_id text NOT NULL, PRIMARY KEY (run_id, entity_id));
CREATE TABLE runs (id text NOT NULL, environment_id text NOT NULL, function_id text NOT NULL, function_version bigint NOT NULL, event_id text NOT NULL, event_name text NOT NULL, mode text NOT NULL, status text NOT NULL, trouble text, attempt bigint NOT NULL, max_attempts bigint NOT NULL, actor_id text, worker_id text, output text, error text, cancellation_cause text, parent_run_id text, parent_step_id text, created_at bigint NOT NULL, started_at bigint, ended_at bigint, updated_at bigint NOT NULL, timeout_at bigint, execution_seq bigint NOT NULL, lease_hash text, depth bigint NOT NULL DEFAULT 0, undo_failed bigint, nondeterminism text, error_group text, PRIMARY KEY (id)) WITH (fillfactor=42, autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_insert_scale_factor=0.05, autovacuum_analyze_scale_factor=0.02);
CREATE INDEX runs_by_time ON runs (environment_id, created_at, id);
CREATE INDEX runs_by_function ON runs (environment_id, function_id, created_at, id);
CREATE INDEX runs_by_event ON runs (event_id);
CREATE INDEX runs_by_trouble ON runs (environment_id, trouble, created_at, id) WHERE (trouble IS NOT NULL);
CREATE INDEX runs_undo_failed ON runs (environment_id, created_at, id) WHERE (undo_failed IS NOT NULL);
CREATE INDEX runs_by_error ON runs (environment_id, error_group, created_at, id) WHERE (error_group IS NOT NULL);
CREATE TABLE schedules (environment_id text NOT NULL, function_id text NOT NULL, place bigint NOT NULL, expression text NOT NULL, event_name text NOT NULL, next_at bigint, expected_count bigint NOT NULL, fired_count bigint NOT NULL, missed_count bigint NOT NULL, moved_by text NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, PRIMARY KEY (environment_id, function_id, place)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX schedules_due ON schedules (next_at) WHERE (next_at IS NOT NULL);
CREATE INDEX schedules_due_by_environment ON schedules (environment_id, ((next_at + 0))) WHERE (next_at IS NOT NULL);
CREATE TABLE secret_revisions (environment_id text NOT NULL, secret_id text NOT NULL, revision bigint NOT NULL, name text NOT NULL, description text, created_at bigint NOT NULL, PRIMARY KEY (environment_id, secret_id, revision));
CREATE TABLE secrets (environment_id text NOT NULL, name text NOT NULL, id text NOT NULL, revision bigint NOT NULL, description text, sealed text NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, PRIMARY KEY (environment_id, name));
CREATE TABLE sessions (id text NOT NULL, kind text NOT NULL, subject_id text NOT NULL, org_id text NOT NULL, created_at bigint NOT NULL, expires_at bigint NOT NULL, address text NOT NULL DEFAULT ''::text, user_agent text NOT NULL DEFAULT ''::text, last_used_at bigint, PRIMARY KEY (id));
CREATE INDEX sessions_by_subject ON sessions (kind, subject_id, created_at);
CREATE INDEX sessions_by_end ON sessions (expires_at);
CREATE INDEX sessions_by_org_newest ON sessions (org_id, created_at, id);
CREATE TABLE snapshots (environment_id text NOT NULL, entity_id text NOT NULL, entity_version bigint NOT NULL, id text NOT NULL, state text NOT NULL, created_at bigint NOT NULL, PRIMARY KEY (environment_id, entity_id, entity_version));
CREATE TABLE sql_projections (environment_id text NOT NULL, name text NOT NULL, table_name text NOT NULL, table_sql text NOT NULL, event_handlers text NOT NULL, description text NOT NULL, admitted text NOT NULL, PRIMARY KEY (environment_id, name));
CREATE UNIQUE INDEX sql_projections_by_table ON sql_projections (environment_id, table_name);
CREATE TABLE start_gates (id text NOT NULL, environment_id text NOT NULL, function_id text NOT NULL, starts_at text NOT NULL, starts text NOT NULL, run_id text, replaced text, granted bigint NOT NULL, expires_at bigint NOT NULL, PRIMARY KEY (id));
CREATE INDEX start_gates_by_expiry ON start_gates (expires_at);
CREATE INDEX start_gates_by_environment ON start_gates (environment_id);
CREATE TABLE steps (run_id text NOT NULL, step_id text NOT NULL, environment_id text NOT NULL, name text NOT NULL, type text NOT NULL, sequence bigint NOT NULL, status text NOT NULL, output text, error text, attempt bigint NOT NULL, started_at bigint, ended_at bigint, duration_ms bigint, original_output text, patched_at bigint, patched_by text, compensation_for text, sleep_until bigint, created_at bigint NOT NULL, updated_at bigint NOT NULL, input text, wait_event_name text, wait_timeout_at bigint, child_run_id text, failure_told_at bigint, on_timeout text, PRIMARY KEY (run_id, step_id)) WITH (autovacuum_vacuum_scale_factor=0.05, autovacuum_vacuum_insert_scale_factor=0.05, autovacuum_analyze_scale_factor=0.02);
CREATE TABLE streams (environment_id text NOT NULL, entity_id text NOT NULL, entity_type text NOT NULL, version bigint NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, deleted_at bigint, purge_from bigint, PRIMARY KEY (environment_id, entity_id)) WITH (fillfactor=70);
CREATE INDEX streams_by_type ON streams (environment_id, entity_type, entity_id);
CREATE INDEX streams_to_purge ON streams (deleted_at) WHERE (purge_from IS NOT NULL);
CREATE INDEX streams_to_purge_by_environment ON streams (environment_id, ((deleted_at + 0))) WHERE (purge_from IS NOT NULL);
CREATE TABLE topic_heads (environment_id text NOT NULL, position bigint NOT NULL, last_at bigint NOT NULL, retention_floor bigint NOT NULL, PRIMARY KEY (environment_id)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE TABLE topic_messages (environment_id text NOT NULL, position bigint NOT NULL, id text NOT NULL, topic text NOT NULL, data text NOT NULL, metadata text, at bigint NOT NULL, idempotency_key text, run_id text, PRIMARY KEY (environment_id, "position"));
CREATE INDEX topic_messages_by_topic ON topic_messages (environment_id, topic, "position");
CREATE INDEX topic_messages_by_key ON topic_messages (environment_id, idempotency_key) WHERE (idempotency_key IS NOT NULL);
CREATE INDEX topic_messages_by_run ON topic_messages (environment_id, run_id, "position") WHERE (run_id IS NOT NULL);
CREATE TABLE topics (environment_id text NOT NULL, name text NOT NULL, message_count bigint NOT NULL, last_position bigint NOT NULL, last_at bigint NOT NULL, PRIMARY KEY (environment_id, name)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE TABLE users (id text NOT NULL, org_id text NOT NULL, email text NOT NULL, name text NOT NULL, password_hash text NOT NULL, roles text NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, last_login_at bigint, tokens_after bigint NOT NULL DEFAULT 0, role_ids text, role_ids_of text, PRIMARY KEY (id));
CREATE UNIQUE INDEX users_by_email ON users (email);
CREATE INDEX users_by_org ON users (org_id, created_at, id);
CREATE TABLE waits (run_id text NOT NULL, kind text NOT NULL, step_id text NOT NULL, environment_id text NOT NULL, event_name text NOT NULL, match_path text NOT NULL, value_hash text NOT NULL, expression text, from_position bigint NOT NULL, fresh_at bigint, of_step text, condition text, mode text, met text, place text, subject text, test text, bound bigint, wanted text, due_at bigint, PRIMARY KEY (run_id, kind, step_id)) WITH (fillfactor=70, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX waits_by_event ON waits (environment_id, event_name, match_path, value_hash, run_id, step_id);
CREATE INDEX waits_fresh ON waits (environment_id, fresh_at, run_id) WHERE (fresh_at IS NOT NULL);
CREATE INDEX waits_by_subject ON waits (environment_id, place, subject, run_id, step_id) WHERE ((place IS NOT NULL) AND (met IS NULL));
CREATE INDEX waits_due ON waits (environment_id, due_at, run_id, step_id) WHERE (due_at IS NOT NULL);
CREATE TABLE webhook_dead_letters (environment_id text NOT NULL, endpoint_id text NOT NULL, event_id text NOT NULL, event_name text NOT NULL, position bigint NOT NULL, attempts bigint NOT NULL, last_error text NOT NULL, dead_at bigint NOT NULL, due_at bigint, PRIMARY KEY (environment_id, endpoint_id, event_id));
CREATE INDEX webhook_dead_letters_due ON webhook_dead_letters (environment_id, endpoint_id, due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX webhook_dead_letters_age ON webhook_dead_letters (dead_at);
CREATE INDEX webhook_dead_letters_list ON webhook_dead_letters (environment_id, endpoint_id, "position", event_id);
CREATE TABLE webhook_deliveries (environment_id text NOT NULL, id text NOT NULL, source_id text NOT NULL, external_id text NOT NULL, status text NOT NULL, signature_key text NOT NULL, event_id text, event_name text, error text, is_repeat bigint NOT NULL, redelivered_from text, body_whole bigint NOT NULL, created_at bigint NOT NULL, request_headers text NOT NULL, request_body text NOT NULL, PRIMARY KEY (environment_id, id));
CREATE INDEX webhook_deliveries_age ON webhook_deliveries (created_at);
CREATE INDEX webhook_deliveries_source ON webhook_deliveries (environment_id, source_id, id);
CREATE TABLE webhook_endpoints (environment_id text NOT NULL, id text NOT NULL, name text NOT NULL, url text NOT NULL, pattern text NOT NULL, filter text NOT NULL, status text NOT NULL, disabled_reason text NOT NULL, sealed text NOT NULL, prev_sealed text, prev_expires_at bigint, position bigint NOT NULL, holder text, fence bigint NOT NULL, lease_until bigint NOT NULL, due_at bigint NOT NULL, attempts bigint NOT NULL, failing_event_id text, tried_since bigint, failing_since bigint, last_error text, last_delivered_at bigint, stopped_at bigint, created_at bigint NOT NULL, updated_at bigint NOT NULL, PRIMARY KEY (environment_id, id)) WITH (fillfactor=50, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_threshold=1000);
CREATE INDEX webhook_endpoints_active ON webhook_endpoints (due_at) WHERE (status = 'active'::text);
CREATE INDEX webhook_endpoints_prev ON webhook_endpoints (prev_expires_at) WHERE (prev_expires_at IS NOT NULL);
CREATE TABLE webhook_sources (environment_id text NOT NULL, id text NOT NULL, name text NOT NULL, event_prefix text NOT NULL, source_type text NOT NULL, verify_header text NOT NULL, verify_algorithm text NOT NULL, verify_config text, metadata text NOT NULL, sealed text, prev_sealed text, prev_expires_at bigint, token_hash text NOT NULL, token_prefix text NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL, PRIMARY KEY (environment_id, id));
CREATE UNIQUE INDEX webhook_sources_id ON webhook_sources (id);
CREATE INDEX webhook_sources_prev ON webhook_sources (prev_expires_at) WHERE (prev_expires_at IS NOT NULL);
CREATE TABLE workers (environment_id text NOT NULL, id text NOT NULL, hostname text NOT NULL, function_ids text NOT NULL, labels text NOT NULL, sdk text NOT NULL, runtime text NOT NULL, transport text NOT NULL, max_concurrent bigint NOT NULL, active_jobs bigint NOT NULL, registered_at bigint NOT NULL, last_heartbeat_at bigint NOT NULL, compensates bigint NOT NULL DEFAULT 0, clock_off_ms bigint, definition_hashes text, PRIMARY KEY (environment_id, id));
CREATE INDEX workers_by_heartbeat ON workers (last_heartbeat_at);
INSERT INTO orgs (id, name, created_at, updated_at) VALUES ('org_platform', 'Platform', 0, 0);
INSERT INTO migrations (version, name, hash, compatible, landed_at) VALUES
(1, 'first', '16c838ab61e09bf4281037720d026ba7462497f2f7a1f4a910160ca5a3c049e7', 0, 0),
(2, 'cluster', '783cb8d5f73dd66ccb4ac5b782c8df3bf6ebe0da9f84542d4e875bdec50afb88', 1, 0),
(3, 'room_for_ends', '948cd61e32362fbc2bf83b9f8cad10420e083b9153804bb4312f82bb4a9a0125', 1, 0),
(4, 'waits', 'c5e8fd1fd7d949766f4adb773080ec3fab475f00efbccb9d05241e6b35c31bff', 1, 0),
(5, 'steering', 'c76dcbf4395e9e6a97c163ecc73feeae119b6cb1cbe9a7aed176f45e60de4afd', 1, 0),
(6, 'starts', '2e93f9d466202a4f46ffbcd167bff9b608766c96c2f2f51cf049283b9adfbc48', 1, 0),
(8, 'push', '7eee0c24ecc46a64a1420699622dccc04b87377e3870f95a72505c8d69de8a99', 1, 0),
(9, 'lanes', 'e5e9b5811834b255b087cb7980df774b1b74ff8a1148e816fc5113579d19deb0', 1, 0),
(10, 'explain', '1fa540ffbacab00327cf0f23895e7fd76a952442043173171f98a16d36cc36c1', 1, 0),
(11, 'access', 'f16c5aafe9dfe0f6a38bd56ec1dfc5f6f0f695d5c1680fde7b55702f8a3b421a', 1, 0),
(12, 'sessions', '39b01957cee67aad0f1fb77f11a51683897e32ee95787a0c5c9d5b74d46c7ba2', 1, 0),
(13, 'tenancy', 'e1ed65046cf499a6a3b1aff6b702cba85990d5f00c6eb481990375410d6686bc', 1, 0),
(14, 'platform', 'f3c68bb2fa6793ff76fd5f15684dfdf1516954d2ba56e61ef979764e2221c6fb', 1, 0),
(15, 'audit', 'd43c19271d140b697c4909e8024ecda56330cd21012a7ceaa4a8f225f8e59d86', 1, 0),
(17, 'purging', '533817c808a029989d0fb27afc58af75b2f3559ee9e10a52cc7f58bf5a5e74b2', 1, 0),
(18, 'topics', 'eb2c2c10777a97d657abd13695c4158c9c8917044d0e735a21b565605c3e5e5a', 1, 0),
(19, 'groups', '53aac03669e2e651caed932a39933b3998615ea1e5048ea0b783e1a035ce9fb8', 1, 0),
(20, 'outbox', 'a62113c196fab127d3d06b53ae942a0467320c73e733123f41dd2a18aa5cd051', 1, 0),
(21, 'credentials', 'ef99256cd4c1264c09a80308a2b59a7aa92c4062b50402d6a8bc8b74b36dede6', 1, 0),
(24, 'endpoint_keys', '91efd0298673b56f88e703ce1e5c3fa3b82351ae56e19764e1e825365696e087', 1, 0),
(26, 'shares', '432d2844b39d1935e0892d1863ebbf5dc1eef40ac5cf5285e29c161a92dd1e54', 1, 0),
(27, 'login_attempts', 'f9e255bda0b4d4d9eeb1397e238117d3fefaddcae838863fa9136e2c44f46abd', 1, 0),
(28, 'event lists', 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', 1, 0),
(29, 'streams', '3ccd79c5aa1f25ea5d9c1dab065c1d9ace897d36bcd96ca7559f02461aea4e9e', 1, 0),
(30, 'projections', 'a9196842def86c500c5a98368d9294a8a5d2d93e6b86692fe75f948fc471eeb0', 1, 0),
(31, 'sql', 'bf4746893323017f6041ee5c399932cb9d16179f51ad4527cfcd87b3084697e8', 1, 0),
(32, 'kv_and_secrets', '0194e8dc0efa563cb39f4c8f2b2aea48eeca7b1f1a6a1623b615c2d13816eecc', 1, 0),
(33, 'schemas', 'd5afc8d76cdb41ed2eddc5395efa1ffa4b4bda73688d8d6cf835ee680106b109', 1, 0),
(34, 'webhooks', '60ffba4f4877c3769fb18ddf69c565199e7a862b6d260b3524fe3f11316b3b43', 1, 0),
(35, 'webhook_endpoints', 'e2ddaaea4373f361cdc653847aca845597eb998412f83578c0e87a4799e95f38', 1, 0),
(36, 'agent_tools', '363f8fcf150b433edfaec13b933a1be70ce1d483c6bd3a6e4a5577b72e2e2348', 1, 0),
(37, 'exports', '2217c417ae2600f3fca5b2d4e626f35ecba845a16b61d5384147440fb6961f89', 1, 0),
(38, 'flow', 'e5ce25e79e0708fa4a70e7ab629bb54eb6baa62d5863ab3ff6f25daa1dc64097', 1, 0),
(39, 'undo', '3843ce4e86c1bf40428a5b10605cc9c4762e20efc5c8d37241cb8812029d0327', 1, 0),
(40, 'flow_control', '3712aa22db69e2a06231b541abc4fded3601c5fae56aff9a3467e0266fe723d0', 1, 0),
(41, 'gates', 'bae0ce85b282693853dc9fe63346ba8f894a8fae7385f4376979c5e5bdcdad37', 1, 0),
(42, 'webhook keys', '83d34455884c7ac137b66e9c31780cfb6bc55c0ec486247e2cbf93dd733c0586', 1, 0),
(43, 'kv_revisions', 'c2aad0e95a51bb29f1e22cf37ffcc80d1b47235d87497af9432f80499694c008', 1, 0),
(44, 'causality', 'ee93c60f89550a6b91a7f968fb1dd076bcdddac8c7573c59314dc01f02892ac5', 1, 0),
(45, 'repairs', 'a6a309a80c78aa64f0da3f21070a107a26468f2bb34e579efba254d259976de1', 1, 0),
(46, 'invoked_functions', '3437ee44919e32437fb9a5100c293fded833a0b9a01f4dcfa32847e3fa4e2673', 1, 0),
(47, 'checks', '90b9097911dd6d0983d845eb622f3f2a7190185c7e4a6f5332efa7a91fc3e0f2', 1, 0),
(48, 'state_waits', '4aa1258c21cb9977d3f8454dd79888428ab9f06090c15eb5f060067862d91934', 1, 0),
(49, 'batches', '1911ac1c5bd77bab5861625e4823b2a875374d37dddb8c1f4f9b55065b2d5ae2', 1, 0),
(50, 'finding', 'a8fed37db11acd1ad509746d1a10254d4c75875fc11250cdeabaf99dfb2455ee', 1, 0),
(51, 'replays', '9bc4b5585ede1c419bd1f688caba8bf9cae99dd6790bd7cdf4f041467c3638f1', 1, 0),
(52, 'kv by revision', 'b101687abfee6f185928ba6878b14c439d032086534d03a1a890efa29966ba00', 1, 0),
(54, 'delivery lists', '046506d3781dc0051655144f87b52832614d9f4e79f8ba71fc73fa74c7b26b80', 1, 0),
(56, 'primary server', '0dfbf07118fb71fb3ace416f742da5bdfcdf2427107d291eae196b7aec172761', 1, 0),
(58, 'one way', 'ab2e851d41e8d8b870322651ac3430384dfeb270135898a0c1c82d4dfa017f84', 1, 0),
(62, 'room', '5d6ce8eeac0791f96b54cc4e882faf99130a2e3e7c079df35371373196a8f95c', 1, 0),
(63, 'attribute deletion', '2bd60fc073f5347b020b2691ea1e84843e67ffe91a5d73770a278ad09ba699cd', 1, 0),
(64, 'sessions listed', '36c21d49c16f1173654e0fea046cd22ab9607bf9947b98bee0e61a3718fabe16', 1, 0),
(65, 'letters listed', 'db5364b8e87cd3cde883babd62a71b6bc8561a8921f1605b07c44aeb139fc89a', 1, 0);
