/**
 * Changes by revision, by an expression that no query for a single key has. Also behind the bucket alone, a plan that was made
 * while the table was small took them for single keys, and read the whole bucket for each.
 */
export const kvByRevision = {
  version: 52,
  name: "kv by revision",
  compatible: true,
  statements: (): string[] => [
    "DROP INDEX kv_keys_by_revision",
    "DROP INDEX kv_history_by_revision",
    "CREATE INDEX kv_keys_by_revision ON kv_keys ((bucket_id || ''), revision)",
    "CREATE INDEX kv_history_by_revision ON kv_history ((bucket_id || ''), revision)",
  ],
};
