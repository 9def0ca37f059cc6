/** What runs wait for besides events: entities at a version, keys, and runs that they started. */
export const stateWaits = {
  version: 48,
  name: "state_waits",
  compatible: true,
  statements: (): string[] => [
    // Where it is looked for: `stream`, `run`, or `key:` and a bucket; null of a wait for an event, whose name is then not ''.
    "ALTER TABLE waits ADD COLUMN place TEXT",
    // The entity, the run or the key.
    "ALTER TABLE waits ADD COLUMN subject TEXT",
    // What must be true of it, with a version, a revision or a value in base64.
    "ALTER TABLE waits ADD COLUMN test TEXT",
    "ALTER TABLE waits ADD COLUMN bound BIGINT",
    "ALTER TABLE waits ADD COLUMN wanted TEXT",
    // When it is looked at without a change: at its beginning, and when its key expires.
    "ALTER TABLE waits ADD COLUMN due_at BIGINT",
    `CREATE INDEX waits_by_subject ON waits (environment_id, place, subject, run_id, step_id)
      WHERE place IS NOT NULL AND met IS NULL`,
    "CREATE INDEX waits_due ON waits (environment_id, due_at, run_id, step_id) WHERE due_at IS NOT NULL",
  ],
};
