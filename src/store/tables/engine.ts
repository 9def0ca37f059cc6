import { deploymentCharsMax } from "../../kit/event-names.ts";
import { functionIdBytesMax } from "../../kit/limits.ts";
import { changing, kept, ours, type Tables, utf8 } from "./table.ts";

/** Functions, their runs, and what runs are found by. */
export const tablesOfEngine = {
  functions: {
    holds: "registered functions",
    endsWith: "their owner deletes them",
    // `cron_count` and `definition_bytes` are of the definition. `undo_on`: bits of `undoBits`, read where
    // runs end without their worker.
    columns: `environment_id TEXT NOT NULL, id TEXT NOT NULL, slug TEXT NOT NULL, name TEXT NOT NULL,
      status TEXT NOT NULL, mode TEXT NOT NULL, version BIGINT NOT NULL, definition TEXT NOT NULL,
      created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, lane_limit BIGINT,
      cron_count BIGINT NOT NULL DEFAULT 0, definition_bytes BIGINT NOT NULL DEFAULT 0, undo_on BIGINT,
      paced BIGINT, throttle_us BIGINT, throttle_burst BIGINT, PRIMARY KEY (environment_id, id)`,
    indexes: [
      "UNIQUE functions_by_slug (environment_id, slug)",
      "functions_in_push (environment_id, id) WHERE mode = 'push'",
      "functions_counted (environment_id, cron_count, definition_bytes) WHERE definition_bytes >= 0",
    ],
    purge: { at: 40 },
    texts: { id: functionIdBytesMax, slug: functionIdBytesMax },
    exported: {
      in: "functions",
      leaves:
        "id slug name status mode version lane_limit paced throttle_us throttle_burst undo_on cron_count definition_bytes created_at updated_at",
      json: "definition",
    },
  },
  function_versions: {
    holds: "definitions",
    endsWith: "the function is deleted",
    columns: `environment_id TEXT NOT NULL, function_id TEXT NOT NULL, version BIGINT NOT NULL,
      definition TEXT NOT NULL, recorded_at BIGINT NOT NULL, actor_id TEXT NOT NULL,
      PRIMARY KEY (environment_id, function_id, version)`,
    isClustered: true,
    purge: { at: 300 },
    exported: {
      in: "functions",
      leaves: "function_id actor_id version recorded_at",
      json: "definition",
    },
  },
  function_history: {
    holds: "each change of a function",
    endsWith: "the environment is deleted: it outlives its functions",
    // Every change of a function as a snapshot, the stream `svc:fn:{function}`.
    columns: `environment_id TEXT NOT NULL, function_id TEXT NOT NULL, entity_version BIGINT NOT NULL,
      event_id TEXT NOT NULL, change_type TEXT NOT NULL, snapshot TEXT NOT NULL, change_reason TEXT,
      actor_id TEXT NOT NULL, recorded_at BIGINT NOT NULL, PRIMARY KEY (environment_id, function_id,
      entity_version)`,
    isClustered: true,
    purge: { at: 310 },
    exported: {
      in: "functions",
      ids: "event_id",
      leaves: "function_id event_id change_type change_reason actor_id entity_version recorded_at",
      json: "snapshot",
    },
  },
  runs: {
    holds: "runs, also those that are over",
    endsWith:
      "the function's `recordingRetention`, the environment's days, `SVC_RUN_RETENTION` or `SVC_RUN_RETENTION_DAYS` after their end, loop `runs.expire`",
    // Written at creation and at its end. `status` is `active` until then; the row of `executions` says the
    // rest. `undo_failed`: how many compensations failed for good, null when none did. `nondeterminism`: JSON
    // of stored steps that the handler did not reach as before, null for none. `trouble` repeats the status
    // of runs that failed or were cancelled: completing a run changes no indexed column, so PostgreSQL writes
    // its row again without touching any index.
    columns: `id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL,
      function_version BIGINT NOT NULL, event_id TEXT NOT NULL, event_name TEXT NOT NULL, mode TEXT NOT NULL,
      status TEXT NOT NULL, trouble TEXT, attempt BIGINT NOT NULL, max_attempts BIGINT NOT NULL,
      actor_id TEXT, worker_id TEXT, output TEXT, error TEXT, cancellation_cause TEXT, parent_run_id TEXT,
      parent_step_id TEXT, created_at BIGINT NOT NULL, started_at BIGINT, ended_at BIGINT,
      updated_at BIGINT NOT NULL, timeout_at BIGINT, execution_seq BIGINT NOT NULL, lease_hash TEXT,
      depth BIGINT NOT NULL DEFAULT 0, undo_failed BIGINT, nondeterminism TEXT, error_group TEXT,
      redacted_at BIGINT, redacted_by TEXT`,
    indexes: [
      "runs_by_time (environment_id, created_at, id)",
      "runs_by_function (environment_id, function_id, created_at, id)",
      "runs_by_event (event_id)",
      "runs_by_trouble (environment_id, trouble, created_at, id) WHERE trouble IS NOT NULL",
      "runs_undo_failed (environment_id, created_at, id) WHERE undo_failed IS NOT NULL",
      "runs_by_error (environment_id, error_group, created_at, id) WHERE error_group IS NOT NULL",
    ],
    room: `fillfactor = 42, ${kept}`,
    purge: { at: 250 },
    texts: { id: ours, trouble: ours, error_group: ours },
    exported: {
      in: "runs",
      key: "created_at id",
      ids: "id event_id parent_run_id",
      leaves:
        "id function_id event_id event_name mode status trouble actor_id worker_id cancellation_cause error_group parent_run_id parent_step_id function_version attempt max_attempts created_at started_at ended_at updated_at timeout_at execution_seq depth undo_failed redacted_at redacted_by",
      json: "output error nondeterminism",
      stays: "lease_hash",
    },
  },
  executions: {
    holds: "runs that are not over, with their next wake",
    endsWith: "the run ends",
    // `wake_at` is when the state must change at the latest: queued = eligible since, leased = lease end,
    // sleeping and retrying = due. `seen_position`: events after it are news to the run; with several waits
    // open it stays, and steps have theirs. `watched_at`: the run has waits of kind `cancel`. `held_from`:
    // what a held execution was before. `undo_count`: compensations that the worker has reported.
    // `gather_ms`: of several waits, for how long others are gathered once one is met. `ending`: JSON of what
    // the run ends with once they ran. `pinned_to`: the deployment that alone may have it, null for any.
    // `lane_id` is NULL for functions without a limit. In `executions_by_lane` the run's id is an expression
    // on PostgreSQL, which would otherwise use that index to find a run by its id, after counting the table
    // while it was empty, and read all of it for each flush.
    columns: `run_id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, function_id TEXT NOT NULL,
      function_version BIGINT NOT NULL, state TEXT NOT NULL, wake_at BIGINT NOT NULL,
      execution_seq BIGINT NOT NULL, attempt BIGINT NOT NULL, max_attempts BIGINT NOT NULL, lease_hash TEXT,
      worker_id TEXT, claimed_at BIGINT, acked_at BIGINT, started_at BIGINT, step_count BIGINT NOT NULL,
      history_count BIGINT NOT NULL, lost_count BIGINT NOT NULL, waiting_step_id TEXT, timeout_at BIGINT,
      pause_requested_at BIGINT, seen_position BIGINT NOT NULL DEFAULT 0, watched_at BIGINT,
      parent_run_id TEXT, held_from TEXT, held_wake_at BIGINT, held_at BIGINT, held_by TEXT, lane_id TEXT,
      undo_count BIGINT NOT NULL DEFAULT 0, ending TEXT, head_start_ms BIGINT, gather_ms BIGINT, pinned_to TEXT`,
    indexes: [
      { libsql: "executions_by_lane (environment_id, function_id, state, wake_at, run_id)" },
      "executions_by_wake (wake_at) WHERE state <> 'queued'",
      "executions_by_timeout (timeout_at) WHERE timeout_at IS NOT NULL",
      "executions_queued_in_lane (lane_id, wake_at, run_id) WHERE state = 'queued' AND lane_id IS NOT NULL",
      "executions_leased_in_lane (lane_id) WHERE state = 'leased' AND lane_id IS NOT NULL",
      "executions_timeout_by_environment (environment_id, (timeout_at + 0)) WHERE timeout_at IS NOT NULL",
      "executions_begun_in_lane (lane_id, wake_at, run_id) WHERE state = 'queued' AND lane_id IS NOT NULL AND execution_seq > 0",
      { postgres: "executions_by_lane (environment_id, function_id, state, wake_at, (run_id || ''))" },
      "executions_pinned (environment_id, function_id, pinned_to, state, run_id) WHERE pinned_to IS NOT NULL",
    ],
    room: `${changing}, autovacuum_vacuum_cost_delay = 0`,
    purge: { at: 50, under: "runs" },
    texts: { state: ours, expr: ours, pinned_to: deploymentCharsMax },
    exported: "of runs that are not over",
  },
  steps: {
    holds: "steps of runs",
    endsWith: "the run expires",
    // `child_run_id`: the run that the step started, also after it was yielded again, so that it starts no
    // second one. `failure_told_at` is set where the handler's worker understands failed steps among the
    // completed ones. `on_timeout`: `null` or `throw`; null fails the run. `is_kept`: a resume ran one before
    // it again, so that its place in the order says nothing.
    // `seen_position`: of one that something met, where in the log that stands.
    columns: `run_id TEXT NOT NULL, step_id TEXT NOT NULL, environment_id TEXT NOT NULL, name TEXT NOT NULL,
      type TEXT NOT NULL, sequence BIGINT NOT NULL, status TEXT NOT NULL, output TEXT, error TEXT,
      attempt BIGINT NOT NULL, started_at BIGINT, ended_at BIGINT, duration_ms BIGINT, original_output TEXT,
      patched_at BIGINT, patched_by TEXT, compensation_for TEXT, sleep_until BIGINT,
      created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, input TEXT, wait_event_name TEXT,
      wait_timeout_at BIGINT, child_run_id TEXT, failure_told_at BIGINT, on_timeout TEXT, is_kept BIGINT, seen_position BIGINT,
      redacted_at BIGINT, redacted_by TEXT, PRIMARY KEY (run_id, step_id)`,
    isClustered: true,
    room: kept,
    purge: { at: 230, ofRun: "run_id" },
    exported: {
      in: "steps",
      of: "runs",
      ids: "run_id child_run_id",
      leaves:
        "run_id step_id name type status patched_by compensation_for wait_event_name child_run_id on_timeout sequence attempt started_at ended_at duration_ms patched_at sleep_until created_at updated_at wait_timeout_at failure_told_at is_kept redacted_at redacted_by",
      json: "output error original_output input",
      stays: "seen_position",
    },
  },
  run_history: {
    holds: "what happened to runs",
    endsWith: "the run expires",
    columns: `run_id TEXT NOT NULL, sequence BIGINT NOT NULL, environment_id TEXT NOT NULL,
      type TEXT NOT NULL, at BIGINT NOT NULL, detail TEXT NOT NULL, PRIMARY KEY (run_id, sequence)`,
    isClustered: true,
    room: kept,
    purge: { at: 240, ofRun: "run_id" },
    exported: {
      in: "steps",
      of: "runs",
      ids: "run_id",
      leaves: "run_id type sequence at",
      json: "detail",
    },
  },
  run_streams: {
    holds: "which entity streams a run appended to or read",
    endsWith: "the run expires",
    columns: `run_id TEXT NOT NULL, entity_id TEXT NOT NULL, environment_id TEXT NOT NULL,
      PRIMARY KEY (run_id, entity_id)`,
    isClustered: true,
    purge: { at: 245, ofRun: "run_id" },
    exported: { in: "steps", of: "runs", ids: "run_id", leaves: "run_id entity_id" },
  },
  run_attribute_names: {
    holds: "names of attributes, each with its type",
    endsWith: "their owner deletes them, loop `attributes.purge`; at most 200",
    columns: `environment_id TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL,
      created_at BIGINT NOT NULL, deleted_at BIGINT, PRIMARY KEY (environment_id, name)`,
    indexes: ["run_attribute_names_deleted (environment_id, name) WHERE deleted_at IS NOT NULL"],
    purge: { at: 249 },
    texts: { name: 64 },
    exported: { in: "runs", leaves: "name type created_at deleted_at" },
  },
  run_attributes: {
    holds: "what runs are found by",
    endsWith: "the run expires",
    // `value` is the first letter of its type and a text that sorts as the values do; `created_at` is the
    // run's.
    columns: `environment_id TEXT NOT NULL, run_id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
      created_at BIGINT NOT NULL, PRIMARY KEY (run_id, name)`,
    indexes: ["run_attributes_by_value (environment_id, name, value, created_at, run_id)"],
    purge: { at: 246, ofRun: "run_id" },
    texts: { name: 64, value: utf8(65) },
    exported: {
      in: "runs",
      of: "runs",
      ids: "run_id",
      leaves: "run_id name value created_at",
    },
  },
  error_groups: {
    holds: "failures of functions that look alike, counted",
    endsWith: "their last run expires, loop `runs.expire`",
    columns: `environment_id TEXT NOT NULL, id TEXT NOT NULL, function_id TEXT NOT NULL, code TEXT NOT NULL,
      message TEXT NOT NULL, frame TEXT NOT NULL, count BIGINT NOT NULL, first_seen_at BIGINT NOT NULL,
      last_seen_at BIGINT NOT NULL, sample_run_id TEXT NOT NULL, PRIMARY KEY (environment_id, id)`,
    indexes: [
      "error_groups_by_time (environment_id, last_seen_at)",
      "error_groups_by_function (environment_id, function_id, last_seen_at)",
    ],
    room: changing,
    purge: { at: 247, under: "runs" },
    texts: { id: ours, function_id: functionIdBytesMax },
    exported: {
      in: "runs",
      ids: "sample_run_id",
      leaves: "id function_id code message frame sample_run_id count first_seen_at last_seen_at",
    },
  },
  waits: {
    holds: "events, versions of entities, changes of keys and ends of children that runs wait for",
    endsWith: "their match, their deadline or their run's end",
    // Of kind `cancel`: an event that ends the run. `match_path` is '' for any event of the name, 'cel' with
    // `expression`, else a path whose value has `value_hash`. `fresh_at` is set until the matcher has looked
    // at what was logged between `from_position` and its own cursor. `of_step`, `condition`, `mode` and
    // `met`: one of several conditions of a step, its name, `any` or `all`, and the JSON of the event that
    // met it. `place`: where it is looked for, `stream`, `run`, or `key:` and a bucket; null of a wait for an
    // event, whose name is then not ''. `subject`: the entity, the run or the key. `test`: what must be true
    // of it, with a version, a revision (`bound`) or a value in base64 (`wanted`). `due_at`: when it is
    // looked at without a change, at its beginning and when its key expires.
    columns: `run_id TEXT NOT NULL, kind TEXT NOT NULL, step_id TEXT NOT NULL, environment_id TEXT NOT NULL,
      event_name TEXT NOT NULL, match_path TEXT NOT NULL, value_hash TEXT NOT NULL, expression TEXT,
      from_position BIGINT NOT NULL, fresh_at BIGINT, of_step TEXT, condition TEXT, mode TEXT, met TEXT,
      place TEXT, subject TEXT, test TEXT, bound BIGINT, wanted TEXT, due_at BIGINT, PRIMARY KEY (run_id,
      kind, step_id)`,
    indexes: [
      "waits_by_event (environment_id, event_name, match_path, value_hash, run_id, step_id)",
      "waits_fresh (environment_id, fresh_at, run_id) WHERE fresh_at IS NOT NULL",
      "waits_by_subject (environment_id, place, subject, run_id, step_id) WHERE place IS NOT NULL AND met IS NULL",
      "waits_due (environment_id, due_at, run_id, step_id) WHERE due_at IS NOT NULL",
    ],
    room: changing,
    purge: { at: 60, under: "runs" },
    texts: { kind: ours, match_path: 512, value_hash: ours, place: ours, subject: 512 },
    exported: "of runs that are not over",
  },
  matchers: {
    holds: "how far waits were compared with a log",
    endsWith: "the environment is deleted: one row each that ever had a wait",
    // `generation` grows whenever waits cease to be fresh: a reader of the waits before may not move the
    // position past what they wait for.
    columns: `environment_id TEXT PRIMARY KEY, position BIGINT NOT NULL, generation BIGINT NOT NULL DEFAULT 0`,
    room: changing,
    purge: { at: 160 },
    exported: "of runs that are not over",
  },
  invocations: {
    holds: "children that are still to be started",
    endsWith: "the child is started, loop `runs.children`",
    // `any_function` is null where the function must have no event triggers.
    columns: `parent_run_id TEXT NOT NULL, step_id TEXT NOT NULL, environment_id TEXT NOT NULL,
      function_id TEXT NOT NULL, kind TEXT NOT NULL, due_at BIGINT NOT NULL, created_at BIGINT NOT NULL,
      any_function BIGINT, PRIMARY KEY (parent_run_id, step_id)`,
    indexes: [
      "invocations_by_time (due_at, parent_run_id, step_id)",
      "invocations_due_by_environment (environment_id, (due_at + 0), parent_run_id, step_id) WHERE due_at >= 0",
    ],
    room: changing,
    purge: { at: 200, ofRun: "parent_run_id" },
    texts: { parent_run_id: ours },
    exported: "of runs that are not over",
  },
  child_ends: {
    holds: "children that ended and whose parents are still to be told",
    endsWith: "the parent is told, loop `runs.children`",
    columns: `child_run_id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, ended_at BIGINT NOT NULL`,
    indexes: [
      "child_ends_by_time (ended_at, child_run_id)",
      "child_ends_by_environment (environment_id, (ended_at + 0), child_run_id) WHERE ended_at >= 0",
    ],
    room: changing,
    purge: { at: 210, ofRun: "child_run_id" },
    texts: { child_run_id: ours },
    exported: "of runs that are not over",
  },
  resumes: {
    holds: "resumes of the last two minutes",
    endsWith: "two minutes after the resume, loop `runs.resumes`",
    // Refuses a second resume for limits.resumeWindowMs, and says what is still to be done (`plan`, until it
    // is done) or undone.
    columns: `run_id TEXT PRIMARY KEY, environment_id TEXT NOT NULL, resumed_at BIGINT NOT NULL,
      resumed_by TEXT NOT NULL, plan TEXT`,
    indexes: ["resumes_by_time (resumed_at)"],
    purge: { at: 220, ofRun: "run_id" },
    exported: "of two minutes",
  },
  repairs: {
    holds: "actions on many runs: who started them, why, and how far they are",
    endsWith: "30 days after their end, loop `repairs.forget`",
    // `holder` works until `lease_until`; `fence` grows with each, and with each pause. `selected` runs down
    // to the place `cursor_at`, `cursor_id` are rows of `repair_items`. `counts` are of the end.
    columns: `environment_id TEXT NOT NULL, id TEXT NOT NULL, action TEXT NOT NULL, status TEXT NOT NULL,
      phase TEXT NOT NULL, reason TEXT NOT NULL, request TEXT NOT NULL, starter TEXT NOT NULL,
      started_by TEXT NOT NULL, note TEXT NOT NULL, cursor_at BIGINT, cursor_id TEXT,
      selected BIGINT NOT NULL, counts TEXT, holder TEXT, fence BIGINT NOT NULL, lease_until BIGINT NOT NULL,
      due_at BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, ended_at BIGINT,
      PRIMARY KEY (environment_id, id)`,
    indexes: [
      "repairs_by_time (environment_id, created_at, id)",
      "repairs_open (due_at) WHERE ended_at IS NULL",
      "repairs_ended (ended_at) WHERE ended_at IS NOT NULL",
    ],
    room: changing,
    purge: { at: 128 },
    texts: { id: ours },
    exported: "runs are named by their ids here",
  },
  repair_items: {
    holds: "what a repair is to do with each of its runs, and what became of it",
    endsWith: "their repair goes, loop `repairs.forget`",
    // `event_id`, of a replay: the event that the run was started on.
    columns: `environment_id TEXT NOT NULL, repair_id TEXT NOT NULL, run_id TEXT NOT NULL,
      function_id TEXT NOT NULL, outcome TEXT NOT NULL, error TEXT, tries BIGINT NOT NULL, at BIGINT NOT NULL,
      event_id TEXT, PRIMARY KEY (environment_id, repair_id, run_id)`,
    indexes: [
      "repair_items_by_outcome (environment_id, repair_id, outcome, run_id)",
      "repair_items_pending (environment_id, repair_id, function_id, run_id) WHERE outcome = 'pending'",
    ],
    room: changing,
    purge: { at: 129, under: "repairs" },
    texts: { repair_id: ours, outcome: ours },
    exported: "runs are named by their ids here",
  },
  workers: {
    holds: "workers and their heartbeats",
    endsWith: "90 seconds after the last heartbeat, loop `workers.forget`, or its goodbye",
    // `definition_hashes`: JSON, by function, of the hash of the definition that the worker serves; null from
    // workers that do not say. `holder`: the mark of its process (`holderOf`). `poll_end`: the end of its
    // held poll is a sign of death. `deployment`: which build it is; null from workers that do not say.
    columns: `environment_id TEXT NOT NULL, id TEXT NOT NULL, hostname TEXT NOT NULL,
      function_ids TEXT NOT NULL, labels TEXT NOT NULL, sdk TEXT NOT NULL, runtime TEXT NOT NULL,
      transport TEXT NOT NULL, max_concurrent BIGINT NOT NULL, active_jobs BIGINT NOT NULL,
      registered_at BIGINT NOT NULL, last_heartbeat_at BIGINT NOT NULL, compensates BIGINT NOT NULL DEFAULT 0,
      clock_off_ms BIGINT, definition_hashes TEXT, holder TEXT, poll_end BIGINT NOT NULL DEFAULT 0,
      deployment TEXT, PRIMARY KEY (environment_id, id)`,
    indexes: ["workers_by_heartbeat (last_heartbeat_at)"],
    purge: { at: 140 },
    texts: { id: functionIdBytesMax },
    exported: "who is connected here",
  },
} as const satisfies Tables;
