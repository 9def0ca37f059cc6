/** Which server of PostgreSQL the database was last written on: a stray copy of before a promotion has an older one. */
export const primaryServer = {
  version: 56,
  name: "primary server",
  compatible: true,
  statements: (): string[] => [
    `CREATE TABLE primary_server (id TEXT PRIMARY KEY, system_identifier TEXT NOT NULL, timeline BIGINT NOT NULL,
      seen_at BIGINT NOT NULL)`,
  ],
};
