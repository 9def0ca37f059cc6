import type { StoreEngine } from "../store.ts";

/** Sign-in by OpenID providers: issuers, people as these name them, and sessions that came from there. */
export const issuers = {
  version: 76,
  name: "sign-in by OpenID providers",
  compatible: true,
  statements: (engine: StoreEngine): string[] => {
    const text = engine === "postgres" ? 'TEXT COLLATE "C"' : "TEXT";
    return [
      "ALTER TABLE orgs ADD COLUMN passwords_off BIGINT NOT NULL DEFAULT 0",
      "ALTER TABLE platform_users ADD COLUMN break_glass BIGINT NOT NULL DEFAULT 0",
      `ALTER TABLE sessions ADD COLUMN issuer_id ${text}`,
      `ALTER TABLE sessions ADD COLUMN provider_sid ${text}`,
      "CREATE INDEX sessions_by_provider ON sessions (issuer_id, provider_sid) WHERE issuer_id IS NOT NULL",
      `CREATE TABLE issuers (id ${text} PRIMARY KEY, org_id ${text} NOT NULL, name ${text} NOT NULL, issuer ${text} NOT NULL,
      client_id ${text} NOT NULL, client_secret ${text} NOT NULL, scopes ${text} NOT NULL, roles_claim ${text} NOT NULL,
      is_enabled BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL)`,
      "CREATE UNIQUE INDEX issuers_by_url ON issuers (org_id, issuer)",
      `CREATE TABLE issuer_roles (issuer_id ${text} NOT NULL, value ${text} NOT NULL, role_id ${text} NOT NULL,
      org_id ${text} NOT NULL, PRIMARY KEY (issuer_id, value, role_id))`,
      "CREATE INDEX issuer_roles_by_org ON issuer_roles (org_id)",
      `CREATE TABLE identities (org_id ${text} NOT NULL, issuer ${text} NOT NULL, subject ${text} NOT NULL,
      user_id ${text} NOT NULL, created_at BIGINT NOT NULL, PRIMARY KEY (org_id, issuer, subject))`,
      "CREATE INDEX identities_by_user ON identities (user_id)",
    ];
  },
};
