/** Runs that are undone before they end, waits that say what their timeout is, and clocks of workers. */
export const undo = {
  version: 39,
  name: "undo",
  compatible: true,
  statements: (): string[] => [
    // `undo_count`: compensations that the worker has told of. `ending`: JSON of what the run ends with once they ran.
    "ALTER TABLE executions ADD COLUMN undo_count BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE executions ADD COLUMN ending TEXT",
    // How many compensations failed for good; null when none did.
    "ALTER TABLE runs ADD COLUMN undo_failed BIGINT",
    "CREATE INDEX runs_undo_failed ON runs (environment_id, created_at, id) WHERE undo_failed IS NOT NULL",
    // Bits of `undoBits`: read where runs end without their worker.
    "ALTER TABLE functions ADD COLUMN undo_on BIGINT",
    // `null` or `throw`; null fails the run.
    "ALTER TABLE steps ADD COLUMN on_timeout TEXT",
    // One of several conditions of a step: its name, `any` or `all`, and the JSON of the event that met it.
    "ALTER TABLE waits ADD COLUMN of_step TEXT",
    "ALTER TABLE waits ADD COLUMN condition TEXT",
    "ALTER TABLE waits ADD COLUMN mode TEXT",
    "ALTER TABLE waits ADD COLUMN met TEXT",
    "ALTER TABLE workers ADD COLUMN compensates BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE workers ADD COLUMN clock_off_ms BIGINT",
  ],
};
