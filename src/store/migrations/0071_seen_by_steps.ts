import type { Migration } from "../migrate.ts";

/**
 * For a step that something met, where in the log that stands: what its branch waits for next is looked for
 * after it. For an execution with several waits, for how long what meets them is gathered.
 */
export const seenBySteps: Migration = {
  version: 71,
  name: "seen by steps",
  compatible: true,
  statements: [
    "ALTER TABLE steps ADD COLUMN seen_position BIGINT",
    "ALTER TABLE executions ADD COLUMN gather_ms BIGINT",
  ],
};
