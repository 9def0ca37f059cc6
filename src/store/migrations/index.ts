import type { Migration } from "../migrate.ts";
import type { StoreEngine } from "../store.ts";

/** What the statements of both engines differ in. */
interface Terms {
  /** The type of texts, which are compared by their bytes. */
  text: string;
  on(own: Readonly<Record<StoreEngine, string>>): string;
}

/** A program of the version before works on the migrated tables, too. */
const compatible = (version: number, name: string, statements: (terms: Terms) => string[]): Migration => ({
  ...{ version, name, compatible: true },
  statements: (engine: StoreEngine) =>
    statements({ text: engine === "postgres" ? 'TEXT COLLATE "C"' : "TEXT", on: (own) => own[engine] }),
});

/** What came after 0.40.0, in order; a landed one is never edited. The rows of `tables/` have it, too. */
export const migrations: readonly Migration[] = [
  /** What the key of a debounce entry was in its event; null of entries that earlier programs armed. */
  compatible(66, "debounce kinds", ({ text }) => [`ALTER TABLE debounces ADD COLUMN key_kind ${text}`]),
  /** Who sent a delayed event, as JSON: it is emitted while they may emit it. Older rows say nothing. */
  compatible(67, "delayed senders", ({ text }) => [`ALTER TABLE delayed_events ADD COLUMN sender ${text}`]),
  /** Which steps a resume left while it ran one before them again. Rows from before are in their order. */
  compatible(68, "kept steps", () => ["ALTER TABLE steps ADD COLUMN is_kept BIGINT"]),
  /** Which process has a worker's name, so that its goodbye is not another's. Older rows say nothing. */
  compatible(69, "goodbyes of workers", ({ text }) => [
    `ALTER TABLE workers ADD COLUMN holder ${text}`,
    "ALTER TABLE workers ADD COLUMN poll_end BIGINT NOT NULL DEFAULT 0",
  ]),
  /** Whether a ledger counts bytes of all kinds. Those from before counted events alone. */
  compatible(70, "ledgers of all that is stored", () => [
    "ALTER TABLE quotas ADD COLUMN counts_all BIGINT NOT NULL DEFAULT 0",
  ]),
  /**
   * For a step that something met, where in the log that stands: what its branch waits for next is looked for
   * after it. For an execution with several waits, for how long what meets them is gathered.
   */
  compatible(71, "seen by steps", () => [
    "ALTER TABLE steps ADD COLUMN seen_position BIGINT",
    "ALTER TABLE executions ADD COLUMN gather_ms BIGINT",
  ]),
  /** Lines that handlers wrote: a row for each report that brought some. */
  compatible(72, "lines of runs", ({ text, on }) => {
    const ending = on({
      postgres:
        "WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02)",
      libsql: "WITHOUT ROWID",
    });
    return [
      `CREATE TABLE run_logs (run_id ${text} NOT NULL, execution_seq BIGINT NOT NULL, place BIGINT NOT NULL,
      environment_id ${text} NOT NULL, attempt BIGINT NOT NULL, worker_id ${text}, at BIGINT NOT NULL,
      line_count BIGINT NOT NULL, total BIGINT NOT NULL, seen BIGINT NOT NULL, bytes BIGINT NOT NULL, lines ${text} NOT NULL,
      PRIMARY KEY (run_id, execution_seq, place)) ${ending}`,
    ];
  }),
  /** Facts of the installation; its id is written by the next start. */
  compatible(73, "id of the installation", ({ text }) => [
    `CREATE TABLE installation (name ${text} PRIMARY KEY, value ${text} NOT NULL)`,
  ]),
  /** Which build a worker is. Rows from before say nothing. */
  compatible(74, "deployments of workers", ({ text }) => [
    `ALTER TABLE workers ADD COLUMN deployment ${text}`,
  ]),
  /** When and by whom values of runs, steps and events were overwritten; every change of a projection. */
  compatible(75, "redactions, and changes of projections", ({ text, on }) => [
    "ALTER TABLE runs ADD COLUMN redacted_at BIGINT",
    `ALTER TABLE runs ADD COLUMN redacted_by ${text}`,
    "ALTER TABLE steps ADD COLUMN redacted_at BIGINT",
    `ALTER TABLE steps ADD COLUMN redacted_by ${text}`,
    `ALTER TABLE events ADD COLUMN redacted_by ${text}`,
    "CREATE INDEX webhook_deliveries_by_event ON webhook_deliveries (environment_id, event_id) WHERE event_id IS NOT NULL",
    `CREATE TABLE projection_changes (environment_id ${text} NOT NULL, name ${text} NOT NULL, entity_version BIGINT NOT NULL,
      event_id ${text} NOT NULL, change_type ${text} NOT NULL, snapshot ${text} NOT NULL, actor_id ${text} NOT NULL,
      recorded_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name, entity_version))${on({ postgres: "", libsql: " WITHOUT ROWID" })}`,
  ]),
  /** Sign-in by OpenID providers: issuers, people as these name them, and sessions that came from there. */
  compatible(76, "sign-in by OpenID providers", ({ text }) => [
    "ALTER TABLE orgs ADD COLUMN passwords_off BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE platform_users ADD COLUMN break_glass BIGINT NOT NULL DEFAULT 0",
    `ALTER TABLE sessions ADD COLUMN issuer_id ${text}`,
    `ALTER TABLE sessions ADD COLUMN provider_sid ${text}`,
    "CREATE INDEX sessions_by_provider ON sessions (issuer_id, provider_sid) WHERE issuer_id IS NOT NULL",
    `CREATE TABLE issuers (id ${text} PRIMARY KEY, org_id ${text} NOT NULL, name ${text} NOT NULL, issuer ${text} NOT NULL,
      client_id ${text} NOT NULL, client_secret ${text} NOT NULL, scopes ${text} NOT NULL, roles_claim ${text} NOT NULL,
      is_enabled BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL)`,
    "CREATE UNIQUE INDEX issuers_by_url ON issuers (org_id, issuer)",
    `CREATE TABLE issuer_roles (issuer_id ${text} NOT NULL, value ${text} NOT NULL, role_id ${text} NOT NULL,
      org_id ${text} NOT NULL, PRIMARY KEY (issuer_id, value, role_id))`,
    "CREATE INDEX issuer_roles_by_org ON issuer_roles (org_id)",
    `CREATE TABLE identities (org_id ${text} NOT NULL, issuer ${text} NOT NULL, subject ${text} NOT NULL,
      user_id ${text} NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (org_id, issuer, subject))`,
    "CREATE INDEX identities_by_user ON identities (user_id)",
  ]),
  /** What was sent to runs by name: a row a signal, written once and changed when a step takes it. */
  compatible(77, "signals of runs", ({ text, on }) => {
    const ending = on({
      postgres:
        "WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000)",
      libsql: "WITHOUT ROWID",
    });
    return [
      `CREATE TABLE run_signals (run_id ${text} NOT NULL, sequence BIGINT NOT NULL, environment_id ${text} NOT NULL,
      name ${text} NOT NULL, data ${text}, idempotency_key ${text}, sent_by ${text} NOT NULL, sent_at BIGINT NOT NULL,
      taken_at BIGINT, taken_by ${text}, PRIMARY KEY (run_id, sequence)) ${ending}`,
      "CREATE INDEX run_signals_kept ON run_signals (run_id, name, sequence) WHERE taken_at IS NULL",
      "CREATE UNIQUE INDEX run_signals_by_key ON run_signals (run_id, idempotency_key) WHERE idempotency_key IS NOT NULL",
    ];
  }),
  /** What handlers wrote to outputs: a row a write, whose place another try may take. */
  compatible(78, "outputs of runs", ({ text, on }) => {
    const ending = on({
      postgres:
        "WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02)",
      libsql: "WITHOUT ROWID",
    });
    return [
      `CREATE TABLE run_outputs (run_id ${text} NOT NULL, name ${text} NOT NULL, first BIGINT NOT NULL,
      environment_id ${text} NOT NULL, attempt BIGINT NOT NULL, step_id ${text}, source ${text} NOT NULL,
      source_first BIGINT NOT NULL, count BIGINT NOT NULL, total BIGINT NOT NULL, chunks ${text} NOT NULL,
      at BIGINT NOT NULL, superseded_by BIGINT, PRIMARY KEY (run_id, name, first)) ${ending}`,
      "CREATE UNIQUE INDEX run_outputs_by_source ON run_outputs (run_id, name, source, source_first)",
    ];
  }),
  /**
   * The event of failed runs for environments that ask for it, and alerts with their rules and
   * deliveries.
   */
  compatible(79, "alerts and the event of failed runs", ({ text, on }) => {
    const vacuumed = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000";
    const changing = on({ postgres: ` WITH (fillfactor = 70, ${vacuumed})`, libsql: "" });
    const restless = on({ postgres: ` WITH (fillfactor = 50, ${vacuumed})`, libsql: "" });
    return [
      "ALTER TABLE environments ADD COLUMN tells_failures BIGINT",
      `CREATE TABLE failed_runs (run_id ${text} NOT NULL, failed_at BIGINT NOT NULL, environment_id ${text} NOT NULL,
      due_at BIGINT NOT NULL, PRIMARY KEY (run_id, failed_at))${changing}`,
      "CREATE INDEX failed_runs_due ON failed_runs (due_at, run_id)",
      "CREATE INDEX failed_runs_due_by_environment ON failed_runs (environment_id, (due_at + 0), run_id) WHERE due_at >= 0",
      `CREATE TABLE failure_counts (environment_id ${text} NOT NULL, function_id ${text} NOT NULL, count BIGINT NOT NULL,
      last_at BIGINT NOT NULL, PRIMARY KEY (environment_id, function_id))${restless}`,
      `CREATE TABLE alert_rules (environment_id ${text} NOT NULL, name ${text} NOT NULL, condition ${text} NOT NULL,
      function_id ${text}, bounds ${text} NOT NULL, targets ${text} NOT NULL, sealed ${text} NOT NULL,
      repeat_after_ms BIGINT NOT NULL, resolve_after_ms BIGINT NOT NULL, silenced_until BIGINT, seen ${text},
      look_at BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name))${changing}`,
      "CREATE INDEX alert_rules_by_look ON alert_rules (look_at)",
      `CREATE TABLE alerts (environment_id ${text} NOT NULL, id ${text} NOT NULL, rule ${text} NOT NULL,
      condition ${text} NOT NULL, subject ${text} NOT NULL, detail ${text} NOT NULL, count BIGINT NOT NULL,
      opened_at BIGINT NOT NULL, seen_at BIGINT NOT NULL, told_at BIGINT, resolved_at BIGINT, resolved_by ${text},
      ended_at BIGINT, PRIMARY KEY (environment_id, id))${changing}`,
      "CREATE UNIQUE INDEX alerts_open ON alerts (environment_id, rule, subject) WHERE ended_at IS NULL",
      "CREATE INDEX alerts_ended ON alerts (ended_at) WHERE ended_at IS NOT NULL",
      `CREATE TABLE alert_deliveries (environment_id ${text} NOT NULL, alert_id ${text} NOT NULL, target ${text} NOT NULL,
      shown ${text} NOT NULL, kind ${text} NOT NULL, number BIGINT NOT NULL, state ${text} NOT NULL,
      attempts BIGINT NOT NULL, due_at BIGINT NOT NULL, last_error ${text}, sent_at BIGINT,
      PRIMARY KEY (environment_id, alert_id, target))${changing}`,
      "CREATE INDEX alert_deliveries_due ON alert_deliveries (due_at) WHERE state = 'waiting'",
    ];
  }),
  /** The deployment that a run belongs to from its first claim on; null of functions without `pin`. */
  compatible(80, "runs pinned to deployments", ({ text }) => [
    `ALTER TABLE executions ADD COLUMN pinned_to ${text}`,
    `CREATE INDEX executions_pinned ON executions (environment_id, function_id, pinned_to, state, run_id)
      WHERE pinned_to IS NOT NULL`,
  ]),
  /** What each function used on a day, the last slot that each schedule fired, and sign-out at providers. */
  compatible(81, "usage by day, last slots of schedules, sign-out at providers", ({ text, on }) => [
    `CREATE TABLE usage_days (environment_id ${text} NOT NULL, day BIGINT NOT NULL, function_id ${text} NOT NULL,
      started BIGINT NOT NULL, completed BIGINT NOT NULL, failed BIGINT NOT NULL, cancelled BIGINT NOT NULL,
      steps BIGINT NOT NULL, worker_ms BIGINT NOT NULL, events BIGINT NOT NULL, event_bytes BIGINT NOT NULL,
      PRIMARY KEY (environment_id, day, function_id))${on({ postgres: "", libsql: " WITHOUT ROWID" })}`,
    "CREATE INDEX usage_days_age ON usage_days ((day + 0))",
    "ALTER TABLE schedules ADD COLUMN last_at BIGINT",
    `ALTER TABLE schedules ADD COLUMN last_event_id ${text}`,
    "ALTER TABLE issuers ADD COLUMN ends_at_provider BIGINT NOT NULL DEFAULT 0",
  ]),
  /** Messages of alerts are found by their target: the first of each, however many wait behind it. */
  compatible(82, "waiting messages of alerts by target", () => [
    `CREATE INDEX alert_deliveries_waiting ON alert_deliveries (environment_id, target, due_at, alert_id)
      WHERE state = 'waiting'`,
    "DROP INDEX alert_deliveries_due",
  ]),
];
