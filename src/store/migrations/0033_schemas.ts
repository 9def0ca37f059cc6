/** Schemas of events, by name and version. */
export const schemas = {
  version: 33,
  name: "schemas",
  compatible: true,
  statements: (): string[] => [
    `CREATE TABLE event_schemas (
      environment_id TEXT NOT NULL, event_name TEXT NOT NULL, version BIGINT NOT NULL, hash TEXT NOT NULL,
      schema_json TEXT NOT NULL, bytes BIGINT NOT NULL, description TEXT NOT NULL, created_at BIGINT NOT NULL,
      PRIMARY KEY (environment_id, event_name, version))`,
    // `off`, `warn` or `enforce`; NULL is `enforce`.
    "ALTER TABLE environments ADD COLUMN schema_mode TEXT",
    // The schema that an event was checked by, and the rule that it broke where that is no reason to refuse it.
    "ALTER TABLE events ADD COLUMN schema_hash TEXT",
    "ALTER TABLE events ADD COLUMN schema_breach TEXT",
  ],
};
