/** From a run to what it emitted, appended and published. */
export const causality = {
  version: 44,
  name: "causality",
  compatible: true,
  statements: (): string[] => [
    "CREATE INDEX events_by_run ON events (environment_id, run_id, position) WHERE run_id IS NOT NULL",
    // The run that published it; messages of the version before name none.
    "ALTER TABLE topic_messages ADD COLUMN run_id TEXT",
    "CREATE INDEX topic_messages_by_run ON topic_messages (environment_id, run_id, position) WHERE run_id IS NOT NULL",
  ],
};
