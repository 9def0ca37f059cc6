/** Where a session began, by what client, and when it was last used: for those who look for one that is not theirs. */
export const sessionsListed = {
  version: 64,
  name: "sessions listed",
  compatible: true,
  statements: (): string[] => [
    "ALTER TABLE sessions ADD COLUMN address TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN user_agent TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE sessions ADD COLUMN last_used_at BIGINT",
    "CREATE INDEX sessions_by_org_newest ON sessions (org_id, created_at, id)",
    "DROP INDEX sessions_by_org",
  ],
};
