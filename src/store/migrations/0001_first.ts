import type { StoreEngine } from "../store.ts";

/**
 * The tables that events and runs stand on. Times are milliseconds since 1970, `…_at`; JSON is TEXT, read and written
 * whole. What keeps each table from growing for ever stands in its comment.
 */
export const first = {
  version: 1,
  name: "first",
  statements: (engine: StoreEngine): string[] => {
    // Rows that live shortly leave room for their own updates, and are cleaned before they pile up.
    const hot =
      engine === "postgres"
        ? " WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)"
        : "";
    const roomy = engine === "postgres" ? " WITH (fillfactor = 85)" : "";
    const clustered = engine === "postgres" ? "" : " WITHOUT ROWID";
    return [
      // Tenancy: kept until deleted by their owners.
      `CREATE TABLE orgs (
        id TEXT PRIMARY KEY, name TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL)`,
      `CREATE TABLE projects (
        id TEXT PRIMARY KEY, org_id TEXT NOT NULL, name TEXT NOT NULL,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL)`,
      "CREATE INDEX projects_by_org ON projects (org_id)",
      `CREATE TABLE environments (
        id TEXT PRIMARY KEY, org_id TEXT NOT NULL, project_id TEXT, name TEXT NOT NULL, color TEXT NOT NULL,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL)`,
      "CREATE UNIQUE INDEX environments_by_name ON environments (org_id, name)",

      // One row an environment: the end of its log, and what every emit must know of it (design section 4).
      `CREATE TABLE heads (
        environment_id TEXT PRIMARY KEY, position BIGINT NOT NULL, last_at BIGINT NOT NULL,
        definitions_version BIGINT NOT NULL, retention_floor BIGINT NOT NULL, epoch BIGINT NOT NULL)${hot}`,

      // Credentials: kept until deleted; expired ones stay listed.
      `CREATE TABLE api_keys (
        id TEXT PRIMARY KEY, org_id TEXT NOT NULL, environment_id TEXT, name TEXT NOT NULL,
        key_hash TEXT NOT NULL, key_prefix TEXT NOT NULL, role_ids TEXT NOT NULL, platform_at BIGINT,
        created_at BIGINT NOT NULL, expires_at BIGINT, last_used_at BIGINT)`,
      "CREATE UNIQUE INDEX api_keys_by_hash ON api_keys (key_hash)",
      "CREATE INDEX api_keys_by_org ON api_keys (org_id)",
      `CREATE TABLE users (
        id TEXT PRIMARY KEY, org_id TEXT NOT NULL, email TEXT NOT NULL, name TEXT NOT NULL,
        password_hash TEXT NOT NULL, roles TEXT NOT NULL,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, last_login_at BIGINT)`,
      "CREATE UNIQUE INDEX users_by_email ON users (email)",

      // Functions: the current definition; every definition a run may be pinned to stays in function_versions.
      `CREATE TABLE functions (
        environment_id TEXT NOT NULL, id TEXT NOT NULL, slug TEXT NOT NULL, name TEXT NOT NULL,
        status TEXT NOT NULL, mode TEXT NOT NULL, version BIGINT NOT NULL, definition TEXT NOT NULL,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, id))`,
      "CREATE UNIQUE INDEX functions_by_slug ON functions (environment_id, slug)",
      `CREATE TABLE function_versions (
        environment_id TEXT NOT NULL, function_id TEXT NOT NULL, version BIGINT NOT NULL,
        definition TEXT NOT NULL, recorded_at BIGINT NOT NULL, actor_id TEXT NOT NULL,
        PRIMARY KEY (environment_id, function_id, version))${clustered}`,

      // The log. Retention drops positions below heads.retention_floor.
      `CREATE TABLE events (
        environment_id TEXT NOT NULL, position BIGINT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL,
        version BIGINT NOT NULL, data TEXT NOT NULL, metadata TEXT, source TEXT NOT NULL, at BIGINT NOT NULL,
        idempotency_key TEXT, entity_id TEXT, entity_type TEXT, entity_version BIGINT, run_id TEXT,
        PRIMARY KEY (environment_id, position))${clustered}`,
      "CREATE UNIQUE INDEX events_by_id ON events (id)",
      "CREATE INDEX events_by_time ON events (environment_id, at, id)",
      "CREATE INDEX events_by_name ON events (environment_id, name, at)",
      // Kept for limits.idempotencyKeptMs.
      `CREATE TABLE idempotency_keys (
        environment_id TEXT NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, function_id TEXT,
        event_id TEXT NOT NULL, run_ids TEXT NOT NULL, created_at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, key))${clustered}`,
      "CREATE INDEX idempotency_keys_by_time ON idempotency_keys (created_at)",

      // A run: written at creation and at its end. `status` is `active` until then; the executions row tells the rest.
      `CREATE TABLE runs (
        id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL,
        function_version BIGINT NOT NULL, event_id TEXT NOT NULL, event_name TEXT NOT NULL, mode TEXT NOT NULL,
        status TEXT NOT NULL, trouble TEXT, attempt BIGINT NOT NULL, max_attempts BIGINT NOT NULL, actor_id TEXT,
        worker_id TEXT, output TEXT, error TEXT, cancellation_cause TEXT, parent_run_id TEXT, parent_step_id TEXT,
        created_at BIGINT NOT NULL, started_at BIGINT, ended_at BIGINT, updated_at BIGINT NOT NULL,
        timeout_at BIGINT, execution_seq BIGINT NOT NULL, lease_hash TEXT)${roomy}`,
      "CREATE INDEX runs_by_time ON runs (environment_id, created_at, id)",
      "CREATE INDEX runs_by_function ON runs (environment_id, function_id, created_at, id)",
      "CREATE INDEX runs_by_event ON runs (event_id)",
      // `trouble` repeats the status of runs that failed or were cancelled: completing a run changes no indexed column, so
      // Postgres writes its row again without touching any index.
      "CREATE INDEX runs_by_trouble ON runs (environment_id, trouble, created_at, id) WHERE trouble IS NOT NULL",

      // One narrow row for every run that is not over: its place in the queue, its lease and fence, its next wake.
      // `wake_at` is when the state must change at the latest: queued = eligible since, leased = lease end,
      // sleeping and retrying = due. Deleted with the run's end.
      `CREATE TABLE executions (
        run_id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL,
        function_version BIGINT NOT NULL, state TEXT NOT NULL, wake_at BIGINT NOT NULL,
        execution_seq BIGINT NOT NULL, attempt BIGINT NOT NULL, max_attempts BIGINT NOT NULL,
        lease_hash TEXT, worker_id TEXT, claimed_at BIGINT, acked_at BIGINT, started_at BIGINT,
        step_count BIGINT NOT NULL, history_count BIGINT NOT NULL, lost_count BIGINT NOT NULL,
        waiting_step_id TEXT, timeout_at BIGINT, pause_requested_at BIGINT)${hot}`,
      "CREATE INDEX executions_by_lane ON executions (environment_id, function_id, state, wake_at, run_id)",
      "CREATE INDEX executions_by_wake ON executions (wake_at) WHERE state <> 'queued'",
      "CREATE INDEX executions_by_timeout ON executions (timeout_at) WHERE timeout_at IS NOT NULL",

      // Go with their run.
      `CREATE TABLE steps (
        run_id TEXT NOT NULL, step_id TEXT NOT NULL, environment_id TEXT NOT NULL,
        name TEXT NOT NULL, type TEXT NOT NULL, sequence BIGINT NOT NULL, status TEXT NOT NULL,
        output TEXT, error TEXT, attempt BIGINT NOT NULL, started_at BIGINT, ended_at BIGINT, duration_ms BIGINT,
        original_output TEXT, patched_at BIGINT, patched_by TEXT, compensation_for TEXT, sleep_until BIGINT,
        created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
        PRIMARY KEY (run_id, step_id))${clustered}`,
      `CREATE TABLE run_history (
        run_id TEXT NOT NULL, sequence BIGINT NOT NULL, environment_id TEXT NOT NULL, type TEXT NOT NULL,
        at BIGINT NOT NULL, detail TEXT NOT NULL,
        PRIMARY KEY (run_id, sequence))${clustered}`,

      // Forgotten after limits.workerSilenceMsMax without a sign of life.
      `CREATE TABLE workers (
        environment_id TEXT NOT NULL, id TEXT NOT NULL, hostname TEXT NOT NULL, function_ids TEXT NOT NULL,
        labels TEXT NOT NULL, sdk TEXT NOT NULL, runtime TEXT NOT NULL, transport TEXT NOT NULL,
        max_concurrent BIGINT NOT NULL, active_jobs BIGINT NOT NULL, registered_at BIGINT NOT NULL,
        last_heartbeat_at BIGINT NOT NULL,
        PRIMARY KEY (environment_id, id))`,
      "CREATE INDEX workers_by_heartbeat ON workers (last_heartbeat_at)",
    ];
  },
};
