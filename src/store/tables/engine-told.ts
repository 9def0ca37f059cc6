import { idempotencyKeyBytesMax } from "../../kit/limits.ts";
import { stepIdBytesMax } from "../../kit/step-id.ts";
import { changing, kept, restless, type Tables } from "./table.ts";

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
