import type { StoreEngine } from "../store.ts";

/** What sessions need of users, and the platform's own users. */
export const sessions = {
  version: 12,
  name: "sessions",
  compatible: true,
  statements: (_engine: StoreEngine): string[] => [
    // Tokens issued before are believed no more: the password was changed.
    "ALTER TABLE users ADD COLUMN tokens_after BIGINT NOT NULL DEFAULT 0",
    "CREATE INDEX users_by_org ON users (org_id, created_at, id)",
    // Kept until deleted.
    `CREATE TABLE platform_users (
      id TEXT PRIMARY KEY, email TEXT NOT NULL, name TEXT NOT NULL, password_hash TEXT NOT NULL, roles TEXT NOT NULL,
      is_active BIGINT NOT NULL, tokens_after BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
      last_login_at BIGINT)`,
    "CREATE UNIQUE INDEX platform_users_by_email ON platform_users (email)",
  ],
};
