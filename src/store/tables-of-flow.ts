import { ours, type TableAbout } from "./table.ts";

/** Tables of environments that say when events and runs begin. */
export const tablesOfFlow: Record<string, TableAbout> = {
  delayed_events: {
    holds: "events that are emitted later",
    scope: "environment",
    endsWith: "they are emitted, loop `events.delayed`, or cancelled",
    purge: { at: 75, key: ["id"] },
    texts: { id: ours },
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
