import type { StoreEngine } from "../store.ts";

/** Sessions as rows, keys whose rotation ends what was made with them, users who carry their roles by id. */
export const credentials = {
  version: 21,
  name: "credentials",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    // The names that still are a role's, each with its id: built-in ones, and the org's own.
    const carried =
      engine === "postgres"
        ? `json_array_elements_text(users.roles::json) WITH ORDINALITY AS given(value, key)`
        : `json_each(users.roles) AS given`;
    const listOf = (value: string) =>
      engine === "postgres"
        ? `(SELECT '[' || COALESCE(string_agg(to_json(${value})::text, ',' ORDER BY given.key), '') || ']' FROM ${found})`
        : `(SELECT json_group_array(value) FROM (SELECT ${value} AS value FROM ${found} ORDER BY given.key))`;
    const found = `${carried} LEFT JOIN roles AS own ON own.org_id = users.org_id AND own.name = given.value
      WHERE own.id IS NOT NULL OR given.value IN ('admin', 'developer', 'viewer')`;
    return [
      // A token is believed as long as its row is here: until it expires, its owner logs out or is gone. `id` is the hash
      // of what the token carries, `subject_id` a user's or a platform user's id, of a desktop session a key's.
      `CREATE TABLE sessions (
        id TEXT PRIMARY KEY, kind TEXT NOT NULL, subject_id TEXT NOT NULL, org_id TEXT NOT NULL,
        created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL)`,
      "CREATE INDEX sessions_by_subject ON sessions (kind, subject_id, created_at)",
      "CREATE INDEX sessions_by_org ON sessions (org_id)",
      "CREATE INDEX sessions_by_end ON sessions (expires_at)",
      // Sessions made with the key before are believed no more: it was rotated.
      "ALTER TABLE api_keys ADD COLUMN tokens_after BIGINT NOT NULL DEFAULT 0",
      // `roles` keeps their names, for nodes of the version before. What it was when `role_ids` was written: where it
      // is another by now, such a node has changed it, and the names count.
      "ALTER TABLE users ADD COLUMN role_ids TEXT",
      "ALTER TABLE users ADD COLUMN role_ids_of TEXT",
      `UPDATE users SET role_ids = ${listOf(`COALESCE(own.id, 'role_' || given.value)`)}, roles = ${listOf("given.value")}`,
      "UPDATE users SET role_ids_of = roles",
    ];
  },
};
