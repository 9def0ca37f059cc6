import { ours, type TableAbout } from "./table.ts";

/** Tables of environments that say when events and runs begin. */
export const tablesOfFlow: Record<string, TableAbout> = {
  batch_events: {
    holds: "events that wait to start one run together, and the run that they were given to",
    scope: "environment",
    endsWith: "their run expires, loop `runs.expire`, or their function is deleted",
    purge: { at: 72, key: ["environment_id", "batch_id", "position"] },
    texts: { batch_id: ours },
  },
  batches: {
    holds: "how many events of a function, and of a value of its key, wait",
    scope: "environment",
    endsWith: "they are full or their time is over, loop `batches.close`, or their function is deleted",
    purge: { at: 71, key: ["id"] },
    texts: { id: ours },
  },
  delayed_events: {
    holds: "events that are emitted later",
    scope: "environment",
    endsWith: "they are emitted, loop `events.delayed`, or cancelled",
    purge: { at: 75, key: ["id"] },
    texts: { id: ours },
  },
  quotas: {
    holds: "what an environment may use, and what of it is used",
    scope: "environment",
    endsWith: "its limits are taken back, or the environment is deleted",
    purge: { at: 76, key: ["environment_id"] },
  },
  run_deadlines: {
    holds:
      "when runs are cancelled: those that have not begun in time, and those whose singleton has a newer run",
    scope: "environment",
    endsWith: "their time, loop `runs.deadlines`",
    purge: { at: 235, key: ["run_id", "cause"], ofRun: "run_id" },
    texts: { run_id: ours, cause: 32 },
  },
  start_gates: {
    holds: "what a rate limit, an idempotency or a singleton counts, for each value of its key",
    scope: "environment",
    endsWith: "their period is over and their run has ended, loop `runs.lanes`",
    purge: { at: 155, key: ["id"] },
    texts: { id: ours },
  },
};
