import { idempotencyKeyBytesMax } from "../../kit/limits.ts";
import { stepIdBytesMax } from "../../kit/step-id.ts";
import { changing, kept, laneIdBytes, ours, restless, type Tables, utf8 } from "./table.ts";

/** What decides when runs begin, and what they and their endpoints may use. */
export const tablesOfEngineStarts = {
  schedules: {
    holds: "cron triggers and their ledgers",
    endsWith: "the trigger is removed",
    // `expected_count` = `fired_count` + `missed_count`.
    columns: `environment_id TEXT NOT NULL, function_id TEXT NOT NULL, place BIGINT NOT NULL,
      expression TEXT NOT NULL, event_name TEXT NOT NULL, next_at BIGINT, expected_count BIGINT NOT NULL,
      fired_count BIGINT NOT NULL, missed_count BIGINT NOT NULL, moved_by TEXT NOT NULL,
      created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, last_at BIGINT, last_event_id TEXT,
      PRIMARY KEY (environment_id, function_id, place)`,
    indexes: [
      "schedules_due (next_at) WHERE next_at IS NOT NULL",
      "schedules_due_by_environment (environment_id, (next_at + 0)) WHERE next_at IS NOT NULL",
    ],
    room: changing,
    purge: { at: 80 },
    exported: "made from functions",
  },
  debounces: {
    holds: "starts that wait for repetitions to cease",
    endsWith: "they fire, are cancelled, or their function is deleted",
    // `id` is the hash of environment, function and key. Retention keeps the events from the least
    // `event_position` of an environment on. No index but the key holds the id: a plan made while the table
    // was empty has no other way to it.
    columns: `id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL,
      function_version BIGINT NOT NULL, debounce_key TEXT NOT NULL, event_id TEXT NOT NULL,
      event_position BIGINT NOT NULL, period_ms BIGINT NOT NULL, max_wait_ms BIGINT NOT NULL,
      first_at BIGINT NOT NULL, armed_at BIGINT NOT NULL, fires_at BIGINT NOT NULL, key_kind TEXT`,
    indexes: [
      "debounces_due (fires_at)",
      "debounces_by_environment (environment_id, function_id)",
      "debounces_due_by_environment (environment_id, (fires_at + 0)) WHERE fires_at >= 0",
    ],
    room: changing,
    purge: { at: 70 },
    texts: { id: ours },
    exported: "starts that are still to come",
  },
  batches: {
    holds: "how many events of a function, and of a value of its key, wait",
    endsWith: "they are full or their time is over, loop `batches.close`, or their function is deleted",
    // What of a function and a key is still open: `count` events from `first_position` on.
    columns: `id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL,
      function_version BIGINT NOT NULL, size BIGINT NOT NULL, timeout_ms BIGINT NOT NULL,
      count BIGINT NOT NULL, bytes BIGINT NOT NULL, first_position BIGINT NOT NULL, closes_at BIGINT NOT NULL`,
    indexes: [
      "batches_due (closes_at)",
      "batches_due_by_environment (environment_id, (closes_at + 0)) WHERE closes_at >= 0",
      "batches_by_environment (environment_id, function_id)",
    ],
    purge: { at: 71 },
    texts: { id: ours },
    exported: "starts that are still to come",
  },
  batch_events: {
    holds: "events that wait to start one run together, and the run that they were given to",
    endsWith: "their run expires, loop `runs.expire`, or their function is deleted",
    // `run_id` is the run that the event was given to; NULL while its batch is open.
    columns: `environment_id TEXT NOT NULL, batch_id TEXT NOT NULL, position BIGINT NOT NULL,
      event_id TEXT NOT NULL, bytes BIGINT NOT NULL, at BIGINT NOT NULL, run_id TEXT,
      PRIMARY KEY (environment_id, batch_id, position)`,
    indexes: [
      "batch_events_of_run (run_id, position) WHERE run_id IS NOT NULL",
      "batch_events_by_event (event_id)",
    ],
    purge: { at: 72 },
    texts: { batch_id: ours },
    exported: "runs name their first event",
  },
  delayed_events: {
    holds: "events that are emitted later",
    endsWith: "they are emitted, loop `events.delayed`, cancelled, or refused into the outbox's dead letters",
    // Taken by a node until `wake_at`, which is `due_at` before that. `sender`: who sent it in, as JSON; NULL
    // of rows of 0.40.0.
    columns: `id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, name TEXT NOT NULL, version BIGINT NOT NULL,
      data TEXT NOT NULL, metadata TEXT, idempotency_key TEXT, run_id TEXT, start_refused BIGINT NOT NULL,
      due_at BIGINT NOT NULL, wake_at BIGINT NOT NULL, created_at BIGINT NOT NULL, sender TEXT`,
    indexes: [
      "delayed_events_by_wake (wake_at)",
      "delayed_events_wake_by_environment (environment_id, (wake_at + 0)) WHERE wake_at >= 0",
      "delayed_events_by_time (environment_id, due_at, id)",
    ],
    purge: { at: 75 },
    texts: { id: ours },
    exported: "events that are still to come",
  },
  start_gates: {
    holds: "what a rate limit, an idempotency or a singleton counts, for each value of its key",
    endsWith: "their period is over and their run has ended, loop `runs.lanes`",
    // `starts_at` and `starts` are lists `{1,2}` of one length: how many began, in slices of time that are
    // not over. `run_id` is the run that a singleton's key is held by, `replaced` the one before it.
    columns: `id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL,
      starts_at TEXT NOT NULL, starts TEXT NOT NULL, run_id TEXT, replaced TEXT, granted BIGINT NOT NULL,
      expires_at BIGINT NOT NULL`,
    indexes: ["start_gates_by_expiry (expires_at)", "start_gates_by_environment (environment_id)"],
    purge: { at: 155 },
    texts: { id: ours },
    exported: "starts of a moment ago",
  },
  run_deadlines: {
    holds:
      "when runs are cancelled: those that have not begun in time, and those whose singleton has a newer run",
    endsWith: "their time, loop `runs.deadlines`",
    // `cause` is why the run is cancelled at `due_at`: see `runs/deadlines.ts`.
    columns: `run_id TEXT NOT NULL, environment_id TEXT NOT NULL, cause TEXT NOT NULL, due_at BIGINT NOT NULL,
      PRIMARY KEY (run_id, cause)`,
    indexes: [
      "run_deadlines_by_time (due_at)",
      "run_deadlines_by_environment (environment_id, (due_at + 0)) WHERE due_at >= 0",
    ],
    purge: { at: 235, ofRun: "run_id" },
    texts: { run_id: ours, cause: 32 },
    exported: "of runs that are not over",
  },
  lanes: {
    holds: "lanes of functions with a concurrency limit",
    endsWith: "ten minutes after the last claim, loop `runs.lanes`",
    // `claims` rises with every claim: a claim that locks the row and finds it as it was in the statement's
    // snapshot knows that the leases of that snapshot are all there are. `paced_until_us`: when the lane's
    // next start is due at the pace of its throttle alone, in microseconds; NULL before its first.
    columns: `id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL,
      claims BIGINT NOT NULL, created_at BIGINT NOT NULL, last_used_at BIGINT NOT NULL, paced_until_us BIGINT`,
    indexes: ["lanes_by_function (environment_id, function_id)"],
    room: restless,
    purge: { at: 150 },
    texts: { id: laneIdBytes },
    exported: "of runs that are not over",
  },
  quotas: {
    holds: "what an environment may use, and what of it is used",
    endsWith: "its limits are taken back, or the environment is deleted",
    // The limits are the lower of `platform` and `own`, which are JSON; what is not limited is NULL. `minute`
    // is the one that `minute_runs` began in, `active_runs` at least the runs that are not over, `bytes`
    // those of what is stored; while `counts_all` is 0, of events alone.
    columns: `environment_id TEXT PRIMARY KEY, platform TEXT NOT NULL, own TEXT NOT NULL,
      runs_per_minute BIGINT, stored_bytes BIGINT, concurrent_runs BIGINT, minute BIGINT NOT NULL,
      minute_runs BIGINT NOT NULL, active_runs BIGINT NOT NULL, bytes BIGINT NOT NULL,
      updated_at BIGINT NOT NULL, counts_all BIGINT NOT NULL DEFAULT 0`,
    purge: { at: 76 },
    exported: "of this installation",
  },
  breakers: {
    holds: "endpoints in trouble",
    endsWith: "a call that succeeds, else a day after the last failure, loop `breakers.forget`",
    // `endpoint` is set where `endpoint_url`, a part of the key, has the hash of an endpoint that is too long
    // for it.
    columns: `environment_id TEXT NOT NULL, function_id TEXT NOT NULL, endpoint_url TEXT NOT NULL,
      fails BIGINT NOT NULL, opened_at BIGINT, trial_until BIGINT, last_failure_at BIGINT NOT NULL,
      endpoint TEXT, PRIMARY KEY (environment_id, function_id, endpoint_url)`,
    indexes: ["breakers_by_time (last_failure_at)"],
    purge: { at: 130 },
    texts: { endpoint_url: 1_024 },
    exported: "what this installation sees of endpoints",
  },
  secrets: {
    holds: "sealed secrets of functions",
    endsWith: "their owner deletes them",
    // `sealed` is bound to the row's id (keyring).
    columns: `environment_id TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL, revision BIGINT NOT NULL,
      description TEXT, sealed TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
      PRIMARY KEY (environment_id, name)`,
    purge: { at: 120 },
    texts: { name: utf8(200) },
    exported: "secrets",
  },
  secret_revisions: {
    holds: "what was known of a secret at each of its values",
    endsWith: "64 newer ones, or the secret is deleted",
    columns: `environment_id TEXT NOT NULL, secret_id TEXT NOT NULL, revision BIGINT NOT NULL,
      name TEXT NOT NULL, description TEXT, created_at BIGINT NOT NULL, PRIMARY KEY (environment_id,
      secret_id, revision)`,
    isClustered: true,
    purge: { at: 119, under: "secrets" },
    texts: { secret_id: ours },
    exported: "of secrets",
  },
} as const satisfies Tables;

/** What runs tell, and what they are told. */
export const tablesOfTold = {
  run_logs: {
    holds: "lines that handlers wrote",
    endsWith: "the run expires",
    // A row for each report that brought some. `place`: how many lines its execution wrote before; -1 without
    // one. `total`: lines of the execution so far, with those left out. `seen`: those outside of steps that
    // its handler reached, with those of executions before. `lines`: JSON text of a list.
    columns: `run_id TEXT NOT NULL, execution_seq BIGINT NOT NULL, place BIGINT NOT NULL,
      environment_id TEXT NOT NULL, attempt BIGINT NOT NULL, worker_id TEXT, at BIGINT NOT NULL,
      line_count BIGINT NOT NULL, total BIGINT NOT NULL, seen BIGINT NOT NULL, bytes BIGINT NOT NULL, lines TEXT NOT NULL,
      PRIMARY KEY (run_id, execution_seq, place)`,
    isClustered: true,
    room: kept,
    purge: { at: 242, ofRun: "run_id" },
    exported: {
      in: "steps",
      of: "runs",
      ids: "run_id",
      leaves: "run_id execution_seq place attempt worker_id at line_count total seen bytes",
      json: "lines",
    },
  },
  run_outputs: {
    holds: "what handlers wrote to outputs, for who reads along",
    endsWith: "the run expires",
    // A row a write. `first`: index of its first chunk in the output. `source`: the try of a step, or the
    // attempt of the handler; `source_first`: how many it wrote before. `total`: bytes of the output so far.
    // `chunks`: JSON of a list. `superseded_by`: index of the first chunk of the try that took its place.
    columns: `run_id TEXT NOT NULL, name TEXT NOT NULL, first BIGINT NOT NULL, environment_id TEXT NOT NULL,
      attempt BIGINT NOT NULL, step_id TEXT, source TEXT NOT NULL, source_first BIGINT NOT NULL,
      count BIGINT NOT NULL, total BIGINT NOT NULL, chunks TEXT NOT NULL, at BIGINT NOT NULL,
      superseded_by BIGINT, PRIMARY KEY (run_id, name, first)`,
    isClustered: true,
    indexes: ["UNIQUE run_outputs_by_source (run_id, name, source, source_first)"],
    room: kept,
    purge: { at: 244, ofRun: "run_id" },
    texts: { name: 200, source: stepIdBytesMax + 40 },
    exported: {
      in: "steps",
      of: "runs",
      ids: "run_id",
      leaves: "run_id name first attempt step_id source source_first count total at superseded_by",
      json: "chunks",
    },
  },
  run_signals: {
    holds: "what was sent to runs by name",
    endsWith: "the run expires",
    // In the order in which they came. `data`: JSON text until a step takes it, whose output it is then.
    // `taken_by`: the step's id. Written under the lock of the run's execution.
    columns: `run_id TEXT NOT NULL, sequence BIGINT NOT NULL, environment_id TEXT NOT NULL, name TEXT NOT NULL,
      data TEXT, idempotency_key TEXT, sent_by TEXT NOT NULL, sent_at BIGINT NOT NULL, taken_at BIGINT,
      taken_by TEXT, PRIMARY KEY (run_id, sequence)`,
    isClustered: true,
    indexes: [
      "run_signals_kept (run_id, name, sequence) WHERE taken_at IS NULL",
      "UNIQUE run_signals_by_key (run_id, idempotency_key) WHERE idempotency_key IS NOT NULL",
    ],
    room: changing,
    purge: { at: 243, ofRun: "run_id" },
    texts: { name: 200, idempotency_key: idempotencyKeyBytesMax },
    exported: {
      in: "steps",
      of: "runs",
      ids: "run_id",
      leaves: "run_id sequence name idempotency_key sent_by sent_at taken_at taken_by",
      json: "data",
    },
  },
  failed_runs: {
    holds: "runs that failed for good, whose event is still to be emitted",
    endsWith: "the event is emitted, loop `runs.failures`",
    // Written with the end of the run, where the environment asks for it. `due_at`: when a node may take it.
    columns: `run_id TEXT NOT NULL, failed_at BIGINT NOT NULL, environment_id TEXT NOT NULL,
      due_at BIGINT NOT NULL, PRIMARY KEY (run_id, failed_at)`,
    indexes: [
      "failed_runs_due (due_at, run_id)",
      "failed_runs_due_by_environment (environment_id, (due_at + 0), run_id) WHERE due_at >= 0",
    ],
    room: changing,
    purge: { at: 215, ofRun: "run_id" },
    exported: "events that are still to come",
  },
  failure_counts: {
    holds: "how many runs of each function failed, while an alert rule asks for it",
    endsWith: "the environment's last rule about failed runs is deleted",
    columns: `environment_id TEXT NOT NULL, function_id TEXT NOT NULL, count BIGINT NOT NULL,
      last_at BIGINT NOT NULL, PRIMARY KEY (environment_id, function_id)`,
    room: restless,
    purge: { at: 248, under: "runs" },
    exported: "counted for alerts of this installation",
  },
} as const satisfies Tables;
