/**
 * Changes by revision. Behind the environment these indexes had the same beginning as the primary keys: a young table's plan
 * took them for single keys, and read the whole bucket for each.
 */
export const kvRevisions = {
  version: 43,
  name: "kv_revisions",
  compatible: true,
  statements: () => [
    "DROP INDEX kv_keys_by_revision",
    "DROP INDEX kv_history_by_revision",
    "CREATE INDEX kv_keys_by_revision ON kv_keys (bucket_id, revision)",
    "CREATE INDEX kv_history_by_revision ON kv_history (bucket_id, revision)",
  ],
};
