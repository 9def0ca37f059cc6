CREATE TABLE agent_tools (environment_id TEXT NOT NULL, qualified_name TEXT NOT NULL, agent_name TEXT NOT NULL, description TEXT NOT NULL, input_schema TEXT NOT NULL, required_scopes TEXT NOT NULL, timeout_ms BIGINT NOT NULL, bytes BIGINT NOT NULL, PRIMARY KEY (environment_id, qualified_name));
CREATE INDEX agent_tools_agent ON agent_tools (environment_id, agent_name);
CREATE TABLE agents (environment_id TEXT NOT NULL, name TEXT NOT NULL, callback_url TEXT NOT NULL, sealed TEXT NOT NULL, registered_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name));
CREATE TABLE api_keys (id TEXT PRIMARY KEY, org_id TEXT NOT NULL, environment_id TEXT, name TEXT NOT NULL, key_hash TEXT NOT NULL, key_prefix TEXT NOT NULL, role_ids TEXT NOT NULL, platform_at BIGINT, created_at BIGINT NOT NULL, expires_at BIGINT, last_used_at BIGINT, tokens_after BIGINT NOT NULL DEFAULT 0);
CREATE UNIQUE INDEX api_keys_by_hash ON api_keys (key_hash);
CREATE INDEX api_keys_by_org ON api_keys (org_id);
CREATE INDEX api_keys_by_environment ON api_keys (environment_id);
CREATE TABLE auth_audit (org_id TEXT NOT NULL, sequence BIGINT NOT NULL, id TEXT NOT NULL, at BIGINT NOT NULL, event_type TEXT NOT NULL, operation TEXT NOT NULL, action TEXT NOT NULL, reads BIGINT NOT NULL, environment_id TEXT NOT NULL, resource TEXT NOT NULL, allowed BIGINT NOT NULL, rule TEXT NOT NULL, outcome TEXT NOT NULL, caller_kind TEXT NOT NULL, caller_id TEXT NOT NULL, roles TEXT NOT NULL, impersonated_org_id TEXT NOT NULL, request_id TEXT NOT NULL, payload TEXT, removed TEXT NOT NULL, key_id TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (org_id, sequence));
CREATE INDEX auth_audit_by_time ON auth_audit (org_id, at, sequence);
CREATE INDEX auth_audit_by_caller ON auth_audit (org_id, caller_id, at, sequence);
CREATE TABLE auth_audit_heads (org_id TEXT PRIMARY KEY, sequence BIGINT NOT NULL, hash TEXT NOT NULL, floor_sequence BIGINT NOT NULL, floor_hash TEXT NOT NULL, key_id TEXT NOT NULL, signature TEXT NOT NULL);
CREATE TABLE batch_events (environment_id TEXT NOT NULL, batch_id TEXT NOT NULL, position BIGINT NOT NULL, event_id TEXT NOT NULL, bytes BIGINT NOT NULL, at BIGINT NOT NULL, run_id TEXT, PRIMARY KEY (environment_id, batch_id, position));
CREATE INDEX batch_events_of_run ON batch_events (run_id, position) WHERE run_id IS NOT NULL;
CREATE INDEX batch_events_by_event ON batch_events (event_id);
CREATE TABLE batches (id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL, function_version BIGINT NOT NULL, size BIGINT NOT NULL, timeout_ms BIGINT NOT NULL, count BIGINT NOT NULL, bytes BIGINT NOT NULL, first_position BIGINT NOT NULL, closes_at BIGINT NOT NULL);
CREATE INDEX batches_due ON batches (closes_at);
CREATE INDEX batches_due_by_environment ON batches (environment_id, (closes_at + 0)) WHERE closes_at >= 0;
CREATE INDEX batches_by_environment ON batches (environment_id, function_id);
CREATE TABLE breakers (environment_id TEXT NOT NULL, function_id TEXT NOT NULL, endpoint_url TEXT NOT NULL, fails BIGINT NOT NULL, opened_at BIGINT, trial_until BIGINT, last_failure_at BIGINT NOT NULL, endpoint TEXT, PRIMARY KEY (environment_id, function_id, endpoint_url));
CREATE INDEX breakers_by_time ON breakers (last_failure_at);
CREATE TABLE child_ends (child_run_id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, ended_at BIGINT NOT NULL);
CREATE INDEX child_ends_by_time ON child_ends (ended_at, child_run_id);
CREATE INDEX child_ends_by_environment ON child_ends (environment_id, (ended_at + 0), child_run_id) WHERE ended_at >= 0;
CREATE TABLE consumer_groups (environment_id TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL, log TEXT NOT NULL, pattern TEXT NOT NULL, filter_expr TEXT, ack_mode TEXT NOT NULL, backpressure TEXT NOT NULL, max_inflight BIGINT NOT NULL, max_redeliveries BIGINT NOT NULL, redeliver_delay_ms BIGINT NOT NULL, metadata TEXT, status TEXT NOT NULL, version BIGINT NOT NULL, position BIGINT NOT NULL, dropped_count BIGINT NOT NULL, given_up_count BIGINT NOT NULL, kept_until BIGINT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (environment_id, namespace, name));
CREATE UNIQUE INDEX consumer_groups_by_id ON consumer_groups (environment_id, id);
CREATE INDEX consumer_groups_kept ON consumer_groups (kept_until) WHERE kept_until IS NOT NULL;
CREATE TABLE debounces (id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL, function_version BIGINT NOT NULL, debounce_key TEXT NOT NULL, event_id TEXT NOT NULL, event_position BIGINT NOT NULL, period_ms BIGINT NOT NULL, max_wait_ms BIGINT NOT NULL, first_at BIGINT NOT NULL, armed_at BIGINT NOT NULL, fires_at BIGINT NOT NULL);
CREATE INDEX debounces_due ON debounces (fires_at);
CREATE INDEX debounces_by_environment ON debounces (environment_id, function_id);
CREATE INDEX debounces_due_by_environment ON debounces (environment_id, (fires_at + 0)) WHERE fires_at >= 0;
CREATE TABLE delayed_events (id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, data TEXT NOT NULL, metadata TEXT, idempotency_key TEXT, run_id TEXT, start_refused BIGINT NOT NULL, due_at BIGINT NOT NULL, wake_at BIGINT NOT NULL, created_at BIGINT NOT NULL);
CREATE INDEX delayed_events_by_wake ON delayed_events (wake_at);
CREATE INDEX delayed_events_wake_by_environment ON delayed_events (environment_id, (wake_at + 0)) WHERE wake_at >= 0;
CREATE INDEX delayed_events_by_time ON delayed_events (environment_id, due_at, id);
CREATE TABLE deleted_environments (id TEXT PRIMARY KEY, org_id TEXT NOT NULL, project_id TEXT, name TEXT NOT NULL, deleted_at BIGINT NOT NULL, purged_at BIGINT);
CREATE INDEX deleted_environments_by_time ON deleted_environments (deleted_at);
CREATE INDEX deleted_environments_unpurged ON deleted_environments (deleted_at) WHERE purged_at IS NULL;
CREATE INDEX deleted_environments_unpurged_by_org ON deleted_environments (org_id, deleted_at) WHERE purged_at IS NULL;
CREATE TABLE environment_databases (environment_id TEXT PRIMARY KEY, name TEXT NOT NULL, reader_sealed TEXT NOT NULL, writer_sealed TEXT NOT NULL, made_of TEXT NOT NULL);
CREATE TABLE environments (id TEXT PRIMARY KEY, org_id TEXT NOT NULL, project_id TEXT, name TEXT NOT NULL, color TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, retention_days BIGINT, compat_key_id TEXT, schema_mode TEXT);
CREATE UNIQUE INDEX environments_by_name ON environments (org_id, name);
CREATE INDEX environments_by_project ON environments (project_id);
CREATE TABLE error_groups (environment_id TEXT NOT NULL, id TEXT NOT NULL, function_id TEXT NOT NULL, code TEXT NOT NULL, message TEXT NOT NULL, frame TEXT NOT NULL, count BIGINT NOT NULL, first_seen_at BIGINT NOT NULL, last_seen_at BIGINT NOT NULL, sample_run_id TEXT NOT NULL, PRIMARY KEY (environment_id, id));
CREATE INDEX error_groups_by_time ON error_groups (environment_id, last_seen_at);
CREATE INDEX error_groups_by_function ON error_groups (environment_id, function_id, last_seen_at);
CREATE TABLE event_schemas (environment_id TEXT NOT NULL, event_name TEXT NOT NULL, version BIGINT NOT NULL, hash TEXT NOT NULL, schema_json TEXT NOT NULL, bytes BIGINT NOT NULL, description TEXT NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (environment_id, event_name, version));
CREATE TABLE events (environment_id TEXT NOT NULL, position BIGINT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL, data TEXT NOT NULL, metadata TEXT, source TEXT NOT NULL, at BIGINT NOT NULL, idempotency_key TEXT, entity_id TEXT, entity_type TEXT, entity_version BIGINT, run_id TEXT, redacted_at BIGINT, schema_hash TEXT, schema_breach TEXT, PRIMARY KEY (environment_id, position)) WITHOUT ROWID;
CREATE UNIQUE INDEX events_by_id ON events (id);
CREATE INDEX events_by_name ON events (environment_id, name, at);
CREATE INDEX events_by_time_filtered ON events (environment_id, at, id, name, source);
CREATE UNIQUE INDEX events_by_entity ON events (environment_id, entity_id, entity_version) WHERE entity_id IS NOT NULL;
CREATE INDEX events_by_run ON events (environment_id, run_id, position) WHERE run_id IS NOT NULL;
CREATE TABLE executions (run_id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL, function_version BIGINT NOT NULL, state TEXT NOT NULL, wake_at BIGINT NOT NULL, execution_seq BIGINT NOT NULL, attempt BIGINT NOT NULL, max_attempts BIGINT NOT NULL, lease_hash TEXT, worker_id TEXT, claimed_at BIGINT, acked_at BIGINT, started_at BIGINT, step_count BIGINT NOT NULL, history_count BIGINT NOT NULL, lost_count BIGINT NOT NULL, waiting_step_id TEXT, timeout_at BIGINT, pause_requested_at BIGINT, seen_position BIGINT NOT NULL DEFAULT 0, watched_at BIGINT, parent_run_id TEXT, held_from TEXT, held_wake_at BIGINT, held_at BIGINT, held_by TEXT, lane_id TEXT, undo_count BIGINT NOT NULL DEFAULT 0, ending TEXT, head_start_ms BIGINT);
CREATE INDEX executions_by_lane ON executions (environment_id, function_id, state, wake_at, run_id);
CREATE INDEX executions_by_wake ON executions (wake_at) WHERE state <> 'queued';
CREATE INDEX executions_by_timeout ON executions (timeout_at) WHERE timeout_at IS NOT NULL;
CREATE INDEX executions_queued_in_lane ON executions (lane_id, wake_at, run_id) WHERE state = 'queued' AND lane_id IS NOT NULL;
CREATE INDEX executions_leased_in_lane ON executions (lane_id) WHERE state = 'leased' AND lane_id IS NOT NULL;
CREATE INDEX executions_timeout_by_environment ON executions (environment_id, (timeout_at + 0)) WHERE timeout_at IS NOT NULL;
CREATE INDEX executions_begun_in_lane ON executions (lane_id, wake_at, run_id) WHERE state = 'queued' AND lane_id IS NOT NULL AND execution_seq > 0;
CREATE TABLE exports (org_id TEXT PRIMARY KEY, holder TEXT NOT NULL, lease_until BIGINT NOT NULL);
CREATE TABLE flow_edges (environment_id TEXT NOT NULL, kind TEXT NOT NULL, hour BIGINT NOT NULL, source TEXT NOT NULL, target TEXT NOT NULL, count BIGINT NOT NULL, PRIMARY KEY (environment_id, kind, hour, source, target));
CREATE INDEX flow_edges_age ON flow_edges ((hour + 0));
CREATE TABLE flow_minutes (environment_id TEXT NOT NULL, minute BIGINT NOT NULL, events BIGINT NOT NULL, started BIGINT NOT NULL, completed BIGINT NOT NULL, failed BIGINT NOT NULL, cancelled BIGINT NOT NULL, PRIMARY KEY (environment_id, minute));
CREATE INDEX flow_minutes_age ON flow_minutes ((minute + 0));
CREATE TABLE function_history (environment_id TEXT NOT NULL, function_id TEXT NOT NULL, entity_version BIGINT NOT NULL, event_id TEXT NOT NULL, change_type TEXT NOT NULL, snapshot TEXT NOT NULL, change_reason TEXT, actor_id TEXT NOT NULL, recorded_at BIGINT NOT NULL, PRIMARY KEY (environment_id, function_id, entity_version)) WITHOUT ROWID;
CREATE TABLE function_versions (environment_id TEXT NOT NULL, function_id TEXT NOT NULL, version BIGINT NOT NULL, definition TEXT NOT NULL, recorded_at BIGINT NOT NULL, actor_id TEXT NOT NULL, PRIMARY KEY (environment_id, function_id, version)) WITHOUT ROWID;
CREATE TABLE functions (environment_id TEXT NOT NULL, id TEXT NOT NULL, slug TEXT NOT NULL, name TEXT NOT NULL, status TEXT NOT NULL, mode TEXT NOT NULL, version BIGINT NOT NULL, definition TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, lane_limit BIGINT, cron_count BIGINT NOT NULL DEFAULT 0, definition_bytes BIGINT NOT NULL DEFAULT 0, undo_on BIGINT, paced BIGINT, throttle_us BIGINT, throttle_burst BIGINT, PRIMARY KEY (environment_id, id));
CREATE UNIQUE INDEX functions_by_slug ON functions (environment_id, slug);
CREATE INDEX functions_in_push ON functions (environment_id, id) WHERE mode = 'push';
CREATE INDEX functions_counted ON functions (environment_id, cron_count, definition_bytes) WHERE definition_bytes >= 0;
CREATE TABLE group_deliveries (environment_id TEXT NOT NULL, group_id TEXT NOT NULL, position BIGINT NOT NULL, event_id TEXT NOT NULL, attempt BIGINT NOT NULL, spent_count BIGINT NOT NULL, lost_count BIGINT NOT NULL, member_id TEXT, consumer_id TEXT NOT NULL, due_at BIGINT NOT NULL, PRIMARY KEY (environment_id, group_id, position));
CREATE UNIQUE INDEX group_deliveries_by_event ON group_deliveries (environment_id, group_id, event_id);
CREATE TABLE group_members (environment_id TEXT NOT NULL, group_id TEXT NOT NULL, id TEXT NOT NULL, consumer_id TEXT NOT NULL, client_id TEXT NOT NULL, node_id TEXT NOT NULL, joined_at BIGINT NOT NULL, seen_at BIGINT NOT NULL, PRIMARY KEY (environment_id, group_id, id));
CREATE INDEX group_members_seen ON group_members (seen_at);
CREATE TABLE heads (environment_id TEXT PRIMARY KEY, position BIGINT NOT NULL, last_at BIGINT NOT NULL, definitions_version BIGINT NOT NULL, retention_floor BIGINT NOT NULL, epoch BIGINT NOT NULL, schedules_version BIGINT NOT NULL DEFAULT -1);
CREATE INDEX heads_unscheduled ON heads (environment_id) WHERE schedules_version <> definitions_version;
CREATE TABLE healings (environment_id TEXT NOT NULL, name TEXT NOT NULL, healed BIGINT NOT NULL, last_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name));
CREATE TABLE idempotency_keys (environment_id TEXT NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, function_id TEXT, event_id TEXT NOT NULL, run_ids TEXT NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (environment_id, key)) WITHOUT ROWID;
CREATE INDEX idempotency_keys_by_time ON idempotency_keys (created_at);
CREATE TABLE imports (org_id TEXT PRIMARY KEY, sum TEXT NOT NULL, line_count BIGINT NOT NULL, environment_ids TEXT NOT NULL, started_at BIGINT NOT NULL);
CREATE TABLE invocations (parent_run_id TEXT NOT NULL, step_id TEXT NOT NULL, environment_id TEXT NOT NULL, function_id TEXT NOT NULL, kind TEXT NOT NULL, due_at BIGINT NOT NULL, created_at BIGINT NOT NULL, any_function BIGINT, PRIMARY KEY (parent_run_id, step_id));
CREATE INDEX invocations_by_time ON invocations (due_at, parent_run_id, step_id);
CREATE INDEX invocations_due_by_environment ON invocations (environment_id, (due_at + 0), parent_run_id, step_id) WHERE due_at >= 0;
CREATE TABLE keyring (kind TEXT NOT NULL, version BIGINT NOT NULL, sealed TEXT NOT NULL, fingerprint TEXT NOT NULL, created_at BIGINT NOT NULL, created_by TEXT NOT NULL, retired_at BIGINT, PRIMARY KEY (kind, version));
CREATE TABLE kv_buckets (environment_id TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, description TEXT, ttl_ms BIGINT, value_bytes_max BIGINT NOT NULL, bytes_max BIGINT, history_max BIGINT NOT NULL, revision BIGINT NOT NULL, value_count BIGINT NOT NULL, bytes BIGINT NOT NULL, forgotten_revision BIGINT NOT NULL DEFAULT 0, created_at BIGINT NOT NULL, deleted_at BIGINT, PRIMARY KEY (environment_id, id));
CREATE UNIQUE INDEX kv_buckets_by_name ON kv_buckets (environment_id, name) WHERE deleted_at IS NULL;
CREATE INDEX kv_buckets_deleted ON kv_buckets (deleted_at) WHERE deleted_at IS NOT NULL;
CREATE TABLE kv_history (environment_id TEXT NOT NULL, bucket_id TEXT NOT NULL, key TEXT NOT NULL, revision BIGINT NOT NULL, bytes BIGINT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT, value TEXT NOT NULL, PRIMARY KEY (environment_id, bucket_id, key, revision)) WITHOUT ROWID;
CREATE INDEX kv_history_by_revision ON kv_history ((bucket_id || ''), revision);
CREATE TABLE kv_keys (environment_id TEXT NOT NULL, bucket_id TEXT NOT NULL, key TEXT NOT NULL, revision BIGINT NOT NULL, operation TEXT NOT NULL, bytes BIGINT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT, value TEXT, PRIMARY KEY (environment_id, bucket_id, key)) WITHOUT ROWID;
CREATE INDEX kv_keys_by_expiry ON kv_keys (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX kv_keys_expiring ON kv_keys (environment_id, bucket_id, expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX kv_keys_by_revision ON kv_keys ((bucket_id || ''), revision);
CREATE TABLE lanes (id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL, claims BIGINT NOT NULL, created_at BIGINT NOT NULL, last_used_at BIGINT NOT NULL, paced_until_us BIGINT);
CREATE INDEX lanes_by_function ON lanes (environment_id, function_id);
CREATE TABLE leaders (duty TEXT PRIMARY KEY, epoch BIGINT NOT NULL, node_id TEXT NOT NULL, lease_until BIGINT NOT NULL);
CREATE TABLE login_attempts (key TEXT PRIMARY KEY, count BIGINT NOT NULL, ends_at BIGINT NOT NULL);
CREATE INDEX login_attempts_by_end ON login_attempts (ends_at);
CREATE TABLE matchers (environment_id TEXT PRIMARY KEY, position BIGINT NOT NULL, generation BIGINT NOT NULL DEFAULT 0);
CREATE TABLE migrations (version BIGINT PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL, compatible BIGINT NOT NULL, landed_at BIGINT NOT NULL);
CREATE TABLE mirrors (environment_id TEXT PRIMARY KEY, position BIGINT NOT NULL);
CREATE TABLE nodes (id TEXT PRIMARY KEY, version TEXT NOT NULL, url TEXT NOT NULL, started_at BIGINT NOT NULL, heartbeat_at BIGINT NOT NULL, draining_at BIGINT, facts TEXT NOT NULL);
CREATE TABLE orgs (id TEXT PRIMARY KEY, name TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, access_version BIGINT NOT NULL DEFAULT 0, preferences TEXT);
CREATE TABLE outbox (id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, event_id TEXT NOT NULL, entity_id TEXT, topic TEXT NOT NULL, kind TEXT NOT NULL, payload TEXT NOT NULL, metadata TEXT NOT NULL, created_at BIGINT NOT NULL, attempts BIGINT NOT NULL, due_at BIGINT NOT NULL, last_error TEXT, dead_at BIGINT);
CREATE INDEX outbox_due ON outbox (kind, due_at, id) WHERE dead_at IS NULL;
CREATE INDEX outbox_by_event ON outbox (environment_id, event_id);
CREATE INDEX outbox_dead ON outbox (environment_id, dead_at, id) WHERE dead_at IS NOT NULL;
CREATE INDEX outbox_dead_by_time ON outbox (dead_at, id) WHERE dead_at IS NOT NULL;
CREATE INDEX outbox_due_by_environment ON outbox (kind, environment_id, (due_at + 0), id) WHERE dead_at IS NULL;
CREATE TABLE platform_audit (id TEXT PRIMARY KEY, event_type TEXT NOT NULL, platform_key_id TEXT NOT NULL, platform_user_id TEXT NOT NULL, impersonated_org_id TEXT NOT NULL, payload TEXT NOT NULL, created_at BIGINT NOT NULL);
CREATE INDEX platform_audit_by_time ON platform_audit (created_at, id);
CREATE INDEX platform_audit_by_type ON platform_audit (event_type, created_at, id);
CREATE INDEX platform_audit_by_key ON platform_audit (platform_key_id, created_at, id);
CREATE INDEX platform_audit_by_org ON platform_audit (impersonated_org_id, created_at, id);
CREATE TABLE platform_users (id TEXT PRIMARY KEY, email TEXT NOT NULL, name TEXT NOT NULL, password_hash TEXT NOT NULL, roles TEXT NOT NULL, is_active BIGINT NOT NULL, tokens_after BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, last_login_at BIGINT);
CREATE UNIQUE INDEX platform_users_by_email ON platform_users (email);
CREATE TABLE policies (id TEXT PRIMARY KEY, org_id TEXT NOT NULL, name TEXT NOT NULL, actions TEXT NOT NULL, resources TEXT NOT NULL, condition TEXT NOT NULL, version BIGINT NOT NULL, template_id TEXT, template_version TEXT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL);
CREATE UNIQUE INDEX policies_by_name ON policies (org_id, name);
CREATE TABLE policy_versions (policy_id TEXT NOT NULL, version BIGINT NOT NULL, org_id TEXT NOT NULL, name TEXT NOT NULL, actions TEXT NOT NULL, resources TEXT NOT NULL, condition TEXT NOT NULL, author_id TEXT NOT NULL, change_reason TEXT, template_id TEXT, template_version TEXT, created_at BIGINT NOT NULL, PRIMARY KEY (policy_id, version));
CREATE TABLE primary_server (id TEXT PRIMARY KEY, system_identifier TEXT NOT NULL, timeline BIGINT NOT NULL, seen_at BIGINT NOT NULL);
CREATE TABLE projection_generations (environment_id TEXT NOT NULL, name TEXT NOT NULL, generation BIGINT NOT NULL, definition_version BIGINT NOT NULL, cursor_position BIGINT NOT NULL, position BIGINT NOT NULL, delivered BIGINT NOT NULL, offered BIGINT NOT NULL, target BIGINT, return_to BIGINT, holder TEXT, stream_id TEXT, fence BIGINT NOT NULL, lease_until BIGINT NOT NULL, asked_at BIGINT NOT NULL, saved_at BIGINT NOT NULL, recorded_since BIGINT, dropped_at BIGINT, PRIMARY KEY (environment_id, name, generation));
CREATE INDEX projection_generations_dropped ON projection_generations (dropped_at) WHERE dropped_at IS NOT NULL;
CREATE TABLE projection_history (environment_id TEXT NOT NULL, name TEXT NOT NULL, generation BIGINT NOT NULL, partition_key TEXT NOT NULL, at BIGINT NOT NULL, position BIGINT NOT NULL, event_id TEXT, version BIGINT NOT NULL, saved_at BIGINT NOT NULL, state TEXT NOT NULL, PRIMARY KEY (environment_id, name, generation, partition_key, at, position));
CREATE INDEX projection_history_by_time ON projection_history (at);
CREATE TABLE projection_pending (environment_id TEXT NOT NULL, name TEXT NOT NULL, generation BIGINT NOT NULL, partition_key TEXT NOT NULL, first_position BIGINT NOT NULL, last_position BIGINT NOT NULL, event_count BIGINT NOT NULL, PRIMARY KEY (environment_id, name, generation, partition_key));
CREATE TABLE projection_rebuilds (environment_id TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL, strategy TEXT NOT NULL, status TEXT NOT NULL, generation BIGINT NOT NULL, partition_key TEXT, from_event_id TEXT, to_event_id TEXT, start_position BIGINT NOT NULL, target BIGINT NOT NULL, processed_count BIGINT NOT NULL, total_count BIGINT NOT NULL, started_at BIGINT NOT NULL, ended_at BIGINT, error TEXT, PRIMARY KEY (environment_id, name));
CREATE TABLE projection_states (environment_id TEXT NOT NULL, name TEXT NOT NULL, generation BIGINT NOT NULL, partition_key TEXT NOT NULL, state TEXT, last_event_id TEXT, last_position BIGINT NOT NULL, last_event_at BIGINT, version BIGINT NOT NULL, error_message TEXT, error_event_id TEXT, error_position BIGINT, skipped_position BIGINT, updated_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name, generation, partition_key));
CREATE INDEX projection_states_stopped ON projection_states (environment_id, name, generation, error_position) WHERE error_position IS NOT NULL;
CREATE TABLE projections (environment_id TEXT NOT NULL, name TEXT NOT NULL, mode TEXT NOT NULL, status TEXT NOT NULL, events TEXT NOT NULL, partition_path TEXT NOT NULL, version BIGINT NOT NULL, generation BIGINT NOT NULL, stale_holder TEXT, refuses_save BIGINT NOT NULL, error_message TEXT, error_event_id TEXT, error_position BIGINT, error_partition TEXT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name));
CREATE TABLE projects (id TEXT PRIMARY KEY, org_id TEXT NOT NULL, name TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, description TEXT);
CREATE INDEX projects_by_org ON projects (org_id);
CREATE TABLE quotas (environment_id TEXT PRIMARY KEY, platform TEXT NOT NULL, own TEXT NOT NULL, runs_per_minute BIGINT, stored_bytes BIGINT, concurrent_runs BIGINT, minute BIGINT NOT NULL, minute_runs BIGINT NOT NULL, active_runs BIGINT NOT NULL, bytes BIGINT NOT NULL, updated_at BIGINT NOT NULL);
CREATE TABLE repair_items (environment_id TEXT NOT NULL, repair_id TEXT NOT NULL, run_id TEXT NOT NULL, function_id TEXT NOT NULL, outcome TEXT NOT NULL, error TEXT, tries BIGINT NOT NULL, at BIGINT NOT NULL, event_id TEXT, PRIMARY KEY (environment_id, repair_id, run_id));
CREATE INDEX repair_items_by_outcome ON repair_items (environment_id, repair_id, outcome, run_id);
CREATE INDEX repair_items_pending ON repair_items (environment_id, repair_id, function_id, run_id) WHERE outcome = 'pending';
CREATE TABLE repairs (environment_id TEXT NOT NULL, id TEXT NOT NULL, action TEXT NOT NULL, status TEXT NOT NULL, phase TEXT NOT NULL, reason TEXT NOT NULL, request TEXT NOT NULL, starter TEXT NOT NULL, started_by TEXT NOT NULL, note TEXT NOT NULL, cursor_at BIGINT, cursor_id TEXT, selected BIGINT NOT NULL, counts TEXT, holder TEXT, fence BIGINT NOT NULL, lease_until BIGINT NOT NULL, due_at BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, ended_at BIGINT, PRIMARY KEY (environment_id, id));
CREATE INDEX repairs_by_time ON repairs (environment_id, created_at, id);
CREATE INDEX repairs_open ON repairs (due_at) WHERE ended_at IS NULL;
CREATE INDEX repairs_ended ON repairs (ended_at) WHERE ended_at IS NOT NULL;
CREATE TABLE resumes (run_id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, resumed_at BIGINT NOT NULL, resumed_by TEXT NOT NULL, plan TEXT);
CREATE INDEX resumes_by_time ON resumes (resumed_at);
CREATE TABLE role_policies (org_id TEXT NOT NULL, role_id TEXT NOT NULL, policy_id TEXT NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (org_id, role_id, policy_id));
CREATE INDEX role_policies_by_policy ON role_policies (policy_id);
CREATE TABLE roles (id TEXT PRIMARY KEY, org_id TEXT NOT NULL, name TEXT NOT NULL, base TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL);
CREATE UNIQUE INDEX roles_by_name ON roles (org_id, name);
CREATE TABLE rotations (id TEXT PRIMARY KEY, org_id TEXT NOT NULL, idempotency_key TEXT, request_hash TEXT NOT NULL, kind TEXT NOT NULL, rotated_at BIGINT NOT NULL, actor_id TEXT NOT NULL, confirmed TEXT NOT NULL);
CREATE UNIQUE INDEX rotations_by_key ON rotations (org_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX rotations_by_time ON rotations (rotated_at);
CREATE TABLE run_attribute_names (environment_id TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, created_at BIGINT NOT NULL, deleted_at BIGINT, PRIMARY KEY (environment_id, name));
CREATE INDEX run_attribute_names_deleted ON run_attribute_names (environment_id, name) WHERE deleted_at IS NOT NULL;
CREATE TABLE run_attributes (environment_id TEXT NOT NULL, run_id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (run_id, name));
CREATE INDEX run_attributes_by_value ON run_attributes (environment_id, name, value, created_at, run_id);
CREATE TABLE run_deadlines (run_id TEXT NOT NULL, environment_id TEXT NOT NULL, cause TEXT NOT NULL, due_at BIGINT NOT NULL, PRIMARY KEY (run_id, cause));
CREATE INDEX run_deadlines_by_time ON run_deadlines (due_at);
CREATE INDEX run_deadlines_by_environment ON run_deadlines (environment_id, (due_at + 0)) WHERE due_at >= 0;
CREATE TABLE run_history (run_id TEXT NOT NULL, sequence BIGINT NOT NULL, environment_id TEXT NOT NULL, type TEXT NOT NULL, at BIGINT NOT NULL, detail TEXT NOT NULL, PRIMARY KEY (run_id, sequence)) WITHOUT ROWID;
CREATE TABLE run_streams (run_id TEXT NOT NULL, entity_id TEXT NOT NULL, environment_id TEXT NOT NULL, PRIMARY KEY (run_id, entity_id)) WITHOUT ROWID;
CREATE TABLE runs (id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL, function_version BIGINT NOT NULL, event_id TEXT NOT NULL, event_name TEXT NOT NULL, mode TEXT NOT NULL, status TEXT NOT NULL, trouble TEXT, attempt BIGINT NOT NULL, max_attempts BIGINT NOT NULL, actor_id TEXT, worker_id TEXT, output TEXT, error TEXT, cancellation_cause TEXT, parent_run_id TEXT, parent_step_id TEXT, created_at BIGINT NOT NULL, started_at BIGINT, ended_at BIGINT, updated_at BIGINT NOT NULL, timeout_at BIGINT, execution_seq BIGINT NOT NULL, lease_hash TEXT, depth BIGINT NOT NULL DEFAULT 0, undo_failed BIGINT, nondeterminism TEXT, error_group TEXT);
CREATE INDEX runs_by_time ON runs (environment_id, created_at, id);
CREATE INDEX runs_by_function ON runs (environment_id, function_id, created_at, id);
CREATE INDEX runs_by_event ON runs (event_id);
CREATE INDEX runs_by_trouble ON runs (environment_id, trouble, created_at, id) WHERE trouble IS NOT NULL;
CREATE INDEX runs_undo_failed ON runs (environment_id, created_at, id) WHERE undo_failed IS NOT NULL;
CREATE INDEX runs_by_error ON runs (environment_id, error_group, created_at, id) WHERE error_group IS NOT NULL;
CREATE TABLE schedules (environment_id TEXT NOT NULL, function_id TEXT NOT NULL, place BIGINT NOT NULL, expression TEXT NOT NULL, event_name TEXT NOT NULL, next_at BIGINT, expected_count BIGINT NOT NULL, fired_count BIGINT NOT NULL, missed_count BIGINT NOT NULL, moved_by TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (environment_id, function_id, place));
CREATE INDEX schedules_due ON schedules (next_at) WHERE next_at IS NOT NULL;
CREATE INDEX schedules_due_by_environment ON schedules (environment_id, (next_at + 0)) WHERE next_at IS NOT NULL;
CREATE TABLE secret_revisions (environment_id TEXT NOT NULL, secret_id TEXT NOT NULL, revision BIGINT NOT NULL, name TEXT NOT NULL, description TEXT, created_at BIGINT NOT NULL, PRIMARY KEY (environment_id, secret_id, revision)) WITHOUT ROWID;
CREATE TABLE secrets (environment_id TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL, revision BIGINT NOT NULL, description TEXT, sealed TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name));
CREATE TABLE sessions (id TEXT PRIMARY KEY, kind TEXT NOT NULL, subject_id TEXT NOT NULL, org_id TEXT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, address TEXT NOT NULL DEFAULT '', user_agent TEXT NOT NULL DEFAULT '', last_used_at BIGINT);
CREATE INDEX sessions_by_subject ON sessions (kind, subject_id, created_at);
CREATE INDEX sessions_by_end ON sessions (expires_at);
CREATE INDEX sessions_by_org_newest ON sessions (org_id, created_at, id);
CREATE TABLE snapshots (environment_id TEXT NOT NULL, entity_id TEXT NOT NULL, entity_version BIGINT NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (environment_id, entity_id, entity_version)) WITHOUT ROWID;
CREATE TABLE sql_projections (environment_id TEXT NOT NULL, name TEXT NOT NULL, table_name TEXT NOT NULL, table_sql TEXT NOT NULL, event_handlers TEXT NOT NULL, description TEXT NOT NULL, admitted TEXT NOT NULL, PRIMARY KEY (environment_id, name));
CREATE UNIQUE INDEX sql_projections_by_table ON sql_projections (environment_id, table_name);
CREATE TABLE start_gates (id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL, starts_at TEXT NOT NULL, starts TEXT NOT NULL, run_id TEXT, replaced TEXT, granted BIGINT NOT NULL, expires_at BIGINT NOT NULL);
CREATE INDEX start_gates_by_expiry ON start_gates (expires_at);
CREATE INDEX start_gates_by_environment ON start_gates (environment_id);
CREATE TABLE steps (run_id TEXT NOT NULL, step_id TEXT NOT NULL, environment_id TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, sequence BIGINT NOT NULL, status TEXT NOT NULL, output TEXT, error TEXT, attempt BIGINT NOT NULL, started_at BIGINT, ended_at BIGINT, duration_ms BIGINT, original_output TEXT, patched_at BIGINT, patched_by TEXT, compensation_for TEXT, sleep_until BIGINT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, input TEXT, wait_event_name TEXT, wait_timeout_at BIGINT, child_run_id TEXT, failure_told_at BIGINT, on_timeout TEXT, PRIMARY KEY (run_id, step_id)) WITHOUT ROWID;
CREATE TABLE streams (environment_id TEXT NOT NULL, entity_id TEXT NOT NULL, entity_type TEXT NOT NULL, version BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, deleted_at BIGINT, purge_from BIGINT, PRIMARY KEY (environment_id, entity_id));
CREATE INDEX streams_by_type ON streams (environment_id, entity_type, entity_id);
CREATE INDEX streams_to_purge ON streams (deleted_at) WHERE purge_from IS NOT NULL;
CREATE INDEX streams_to_purge_by_environment ON streams (environment_id, (deleted_at + 0)) WHERE purge_from IS NOT NULL;
CREATE TABLE topic_heads (environment_id TEXT PRIMARY KEY, position BIGINT NOT NULL, last_at BIGINT NOT NULL, retention_floor BIGINT NOT NULL);
CREATE TABLE topic_messages (environment_id TEXT NOT NULL, position BIGINT NOT NULL, id TEXT NOT NULL, topic TEXT NOT NULL, data TEXT NOT NULL, metadata TEXT, at BIGINT NOT NULL, idempotency_key TEXT, run_id TEXT, PRIMARY KEY (environment_id, position)) WITHOUT ROWID;
CREATE INDEX topic_messages_by_topic ON topic_messages (environment_id, topic, position);
CREATE INDEX topic_messages_by_key ON topic_messages (environment_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX topic_messages_by_run ON topic_messages (environment_id, run_id, position) WHERE run_id IS NOT NULL;
CREATE TABLE topics (environment_id TEXT NOT NULL, name TEXT NOT NULL, message_count BIGINT NOT NULL, last_position BIGINT NOT NULL, last_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name));
CREATE TABLE users (id TEXT PRIMARY KEY, org_id TEXT NOT NULL, email TEXT NOT NULL, name TEXT NOT NULL, password_hash TEXT NOT NULL, roles TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, last_login_at BIGINT, tokens_after BIGINT NOT NULL DEFAULT 0, role_ids TEXT, role_ids_of TEXT);
CREATE UNIQUE INDEX users_by_email ON users (email);
CREATE INDEX users_by_org ON users (org_id, created_at, id);
CREATE TABLE waits (run_id TEXT NOT NULL, kind TEXT NOT NULL, step_id TEXT NOT NULL, environment_id TEXT NOT NULL, event_name TEXT NOT NULL, match_path TEXT NOT NULL, value_hash TEXT NOT NULL, expression TEXT, from_position BIGINT NOT NULL, fresh_at BIGINT, of_step TEXT, condition TEXT, mode TEXT, met TEXT, place TEXT, subject TEXT, test TEXT, bound BIGINT, wanted TEXT, due_at BIGINT, PRIMARY KEY (run_id, kind, step_id));
CREATE INDEX waits_by_event ON waits (environment_id, event_name, match_path, value_hash, run_id, step_id);
CREATE INDEX waits_fresh ON waits (environment_id, fresh_at, run_id) WHERE fresh_at IS NOT NULL;
CREATE INDEX waits_by_subject ON waits (environment_id, place, subject, run_id, step_id) WHERE place IS NOT NULL AND met IS NULL;
CREATE INDEX waits_due ON waits (environment_id, due_at, run_id, step_id) WHERE due_at IS NOT NULL;
CREATE TABLE webhook_dead_letters (environment_id TEXT NOT NULL, endpoint_id TEXT NOT NULL, event_id TEXT NOT NULL, event_name TEXT NOT NULL, position BIGINT NOT NULL, attempts BIGINT NOT NULL, last_error TEXT NOT NULL, dead_at BIGINT NOT NULL, due_at BIGINT, PRIMARY KEY (environment_id, endpoint_id, event_id));
CREATE INDEX webhook_dead_letters_due ON webhook_dead_letters (environment_id, endpoint_id, due_at) WHERE due_at IS NOT NULL;
CREATE INDEX webhook_dead_letters_age ON webhook_dead_letters (dead_at);
CREATE INDEX webhook_dead_letters_list ON webhook_dead_letters (environment_id, endpoint_id, position, event_id);
CREATE TABLE webhook_deliveries (environment_id TEXT NOT NULL, id TEXT NOT NULL, source_id TEXT NOT NULL, external_id TEXT NOT NULL, status TEXT NOT NULL, signature_key TEXT NOT NULL, event_id TEXT, event_name TEXT, error TEXT, is_repeat BIGINT NOT NULL, redelivered_from TEXT, body_whole BIGINT NOT NULL, created_at BIGINT NOT NULL, request_headers TEXT NOT NULL, request_body TEXT NOT NULL, PRIMARY KEY (environment_id, id));
CREATE INDEX webhook_deliveries_age ON webhook_deliveries (created_at);
CREATE INDEX webhook_deliveries_source ON webhook_deliveries (environment_id, source_id, id);
CREATE TABLE webhook_endpoints (environment_id TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, url TEXT NOT NULL, pattern TEXT NOT NULL, filter TEXT NOT NULL, status TEXT NOT NULL, disabled_reason TEXT NOT NULL, sealed TEXT NOT NULL, prev_sealed TEXT, prev_expires_at BIGINT, position BIGINT NOT NULL, holder TEXT, fence BIGINT NOT NULL, lease_until BIGINT NOT NULL, due_at BIGINT NOT NULL, attempts BIGINT NOT NULL, failing_event_id TEXT, tried_since BIGINT, failing_since BIGINT, last_error TEXT, last_delivered_at BIGINT, stopped_at BIGINT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (environment_id, id));
CREATE INDEX webhook_endpoints_active ON webhook_endpoints (due_at) WHERE status = 'active';
CREATE INDEX webhook_endpoints_prev ON webhook_endpoints (prev_expires_at) WHERE prev_expires_at IS NOT NULL;
CREATE TABLE webhook_sources (environment_id TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, event_prefix TEXT NOT NULL, source_type TEXT NOT NULL, verify_header TEXT NOT NULL, verify_algorithm TEXT NOT NULL, verify_config TEXT, metadata TEXT NOT NULL, sealed TEXT, prev_sealed TEXT, prev_expires_at BIGINT, token_hash TEXT NOT NULL, token_prefix TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (environment_id, id));
CREATE UNIQUE INDEX webhook_sources_id ON webhook_sources (id);
CREATE INDEX webhook_sources_prev ON webhook_sources (prev_expires_at) WHERE prev_expires_at IS NOT NULL;
CREATE TABLE workers (environment_id TEXT NOT NULL, id TEXT NOT NULL, hostname TEXT NOT NULL, function_ids TEXT NOT NULL, labels TEXT NOT NULL, sdk TEXT NOT NULL, runtime TEXT NOT NULL, transport TEXT NOT NULL, max_concurrent BIGINT NOT NULL, active_jobs BIGINT NOT NULL, registered_at BIGINT NOT NULL, last_heartbeat_at BIGINT NOT NULL, compensates BIGINT NOT NULL DEFAULT 0, clock_off_ms BIGINT, definition_hashes TEXT, PRIMARY KEY (environment_id, id));
CREATE INDEX workers_by_heartbeat ON workers (last_heartbeat_at);
INSERT INTO orgs (id, name, created_at, updated_at) VALUES ('org_platform', 'Platform', 0, 0);
INSERT INTO migrations (version, name, hash, compatible, landed_at) VALUES
(1, 'first', 'ec76fe15a6a36ab4eace7875e883d164a635e0c6fc8921d0621234dce53a2cfb', 0, 0),
(2, 'cluster', '783cb8d5f73dd66ccb4ac5b782c8df3bf6ebe0da9f84542d4e875bdec50afb88', 1, 0),
(3, 'room_for_ends', 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', 1, 0),
(4, 'waits', '3b708a235c49ab2f021ec609eaed53905e318c01d3812000b5f600f825df8241', 1, 0),
(5, 'steering', '664b5cb67c910b309dc1a6eacbb749757819da72ffb54b9f7984a8b544140910', 1, 0),
(6, 'starts', 'eb4f0f9de7ae97bd25e0ac16bd035a97389f90851f22b0b65966af98a01d1be7', 1, 0),
(8, 'push', '7eee0c24ecc46a64a1420699622dccc04b87377e3870f95a72505c8d69de8a99', 1, 0),
(9, 'lanes', 'c8288b063095955e3f07e7a32945465b2e774bbe82eb7d586905359d2660322f', 1, 0),
(10, 'explain', '1fa540ffbacab00327cf0f23895e7fd76a952442043173171f98a16d36cc36c1', 1, 0),
(11, 'access', 'f16c5aafe9dfe0f6a38bd56ec1dfc5f6f0f695d5c1680fde7b55702f8a3b421a', 1, 0),
(12, 'sessions', '39b01957cee67aad0f1fb77f11a51683897e32ee95787a0c5c9d5b74d46c7ba2', 1, 0),
(13, 'tenancy', 'e1ed65046cf499a6a3b1aff6b702cba85990d5f00c6eb481990375410d6686bc', 1, 0),
(14, 'platform', 'f3c68bb2fa6793ff76fd5f15684dfdf1516954d2ba56e61ef979764e2221c6fb', 1, 0),
(15, 'audit', 'd43c19271d140b697c4909e8024ecda56330cd21012a7ceaa4a8f225f8e59d86', 1, 0),
(17, 'purging', '533817c808a029989d0fb27afc58af75b2f3559ee9e10a52cc7f58bf5a5e74b2', 1, 0),
(18, 'topics', 'b99a5a31e8c9797d2efbb703a40b09483952c6ba52af3845e8f31b15bd13dfc3', 1, 0),
(19, 'groups', '5c43e3f3dc57ace6a640bf9f4b4327fde53ea06cbc5ea91a10767e3337ac7d01', 1, 0),
(20, 'outbox', '13b66def586b1381a4bf776fc8282806d37bab8fdd6ba190ddefbb3a97528535', 1, 0),
(21, 'credentials', '8d57ed45e2269855909e5f83995d12b4f8784631e010240b1dc7c7e94679917e', 1, 0),
(24, 'endpoint_keys', '91efd0298673b56f88e703ce1e5c3fa3b82351ae56e19764e1e825365696e087', 1, 0),
(26, 'shares', 'f2ef4d522410893e4c40132aea9a7b74bbd4995bcc828433e891ea4af5950d38', 1, 0),
(27, 'login_attempts', '6e991aeed867e8fcc1817f260828322944da8f90ef105d25760647635d9712b5', 1, 0),
(28, 'event lists', '6c213bdba3037ff06052edb8b3495bc38d54e23801cfa062e0ffe4bbb4913954', 1, 0),
(29, 'streams', '3524964a6713869925b847cd7531b4608daf993bf0808caf85f27a8db64482e1', 1, 0),
(30, 'projections', '93f965b512aff3d9a55c22a4ebf945b4d82ab3fadd5201b6bf348551f1646417', 1, 0),
(31, 'sql', 'bf4746893323017f6041ee5c399932cb9d16179f51ad4527cfcd87b3084697e8', 1, 0),
(32, 'kv_and_secrets', 'd67a92d5e0f6096ed2fbd1b0b560a5957024acfe1d9e75392bf2fbe790c62a8d', 1, 0),
(33, 'schemas', 'd5afc8d76cdb41ed2eddc5395efa1ffa4b4bda73688d8d6cf835ee680106b109', 1, 0),
(34, 'webhooks', '60ffba4f4877c3769fb18ddf69c565199e7a862b6d260b3524fe3f11316b3b43', 1, 0),
(35, 'webhook_endpoints', '92f16a03591c73a2eda68ea140323f1de7f5e2e837a4f56c32a1931399cffc60', 1, 0),
(36, 'agent_tools', '363f8fcf150b433edfaec13b933a1be70ce1d483c6bd3a6e4a5577b72e2e2348', 1, 0),
(37, 'exports', '2217c417ae2600f3fca5b2d4e626f35ecba845a16b61d5384147440fb6961f89', 1, 0),
(38, 'flow', 'e5ce25e79e0708fa4a70e7ab629bb54eb6baa62d5863ab3ff6f25daa1dc64097', 1, 0),
(39, 'undo', '3843ce4e86c1bf40428a5b10605cc9c4762e20efc5c8d37241cb8812029d0327', 1, 0),
(40, 'flow_control', '3712aa22db69e2a06231b541abc4fded3601c5fae56aff9a3467e0266fe723d0', 1, 0),
(41, 'gates', 'bae0ce85b282693853dc9fe63346ba8f894a8fae7385f4376979c5e5bdcdad37', 1, 0),
(42, 'webhook keys', '83d34455884c7ac137b66e9c31780cfb6bc55c0ec486247e2cbf93dd733c0586', 1, 0),
(43, 'kv_revisions', 'c2aad0e95a51bb29f1e22cf37ffcc80d1b47235d87497af9432f80499694c008', 1, 0),
(44, 'causality', 'ee93c60f89550a6b91a7f968fb1dd076bcdddac8c7573c59314dc01f02892ac5', 1, 0),
(45, 'repairs', 'a9450636df415f940c7592df3411e1e67a8a20a03989251214bf1a28bdf2c845', 1, 0),
(46, 'invoked_functions', '3437ee44919e32437fb9a5100c293fded833a0b9a01f4dcfa32847e3fa4e2673', 1, 0),
(47, 'checks', '90b9097911dd6d0983d845eb622f3f2a7190185c7e4a6f5332efa7a91fc3e0f2', 1, 0),
(48, 'state_waits', '4aa1258c21cb9977d3f8454dd79888428ab9f06090c15eb5f060067862d91934', 1, 0),
(49, 'batches', '1911ac1c5bd77bab5861625e4823b2a875374d37dddb8c1f4f9b55065b2d5ae2', 1, 0),
(50, 'finding', '858678ce720b26584de05482240674a64cb86cc8436695275edd6038fbe535c5', 1, 0),
(51, 'replays', '9bc4b5585ede1c419bd1f688caba8bf9cae99dd6790bd7cdf4f041467c3638f1', 1, 0),
(52, 'kv by revision', 'b101687abfee6f185928ba6878b14c439d032086534d03a1a890efa29966ba00', 1, 0),
(54, 'delivery lists', '046506d3781dc0051655144f87b52832614d9f4e79f8ba71fc73fa74c7b26b80', 1, 0),
(56, 'primary server', '0dfbf07118fb71fb3ace416f742da5bdfcdf2427107d291eae196b7aec172761', 1, 0),
(58, 'one way', 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', 1, 0),
(62, 'room', 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', 1, 0),
(63, 'attribute deletion', '2bd60fc073f5347b020b2691ea1e84843e67ffe91a5d73770a278ad09ba699cd', 1, 0),
(64, 'sessions listed', '36c21d49c16f1173654e0fea046cd22ab9607bf9947b98bee0e61a3718fabe16', 1, 0),
(65, 'letters listed', 'db5364b8e87cd3cde883babd62a71b6bc8561a8921f1605b07c44aeb139fc89a', 1, 0);
