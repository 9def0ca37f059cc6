import type { StoreEngine } from "../store.ts";

/** Roles and deny policies of orgs. */
export const access = {
  version: 11,
  name: "access",
  compatible: true,
  statements: (_engine: StoreEngine): string[] => [
    // Grows with every change of a role or policy of the org: nodes see by it whether what they know is current.
    "ALTER TABLE orgs ADD COLUMN access_version BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE orgs ADD COLUMN preferences TEXT",
    // The org of the platform's own roles, policies and keys; listed with no tenants.
    `INSERT INTO orgs (id, name, created_at, updated_at) VALUES ('org_platform', 'Platform', 0, 0)
      ON CONFLICT (id) DO NOTHING`,
    // Kept until deleted by their org; `base` is the built-in role whose grants it has.
    `CREATE TABLE roles (
      id TEXT PRIMARY KEY, org_id TEXT NOT NULL, name TEXT NOT NULL, base TEXT NOT NULL,
      created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL)`,
    "CREATE UNIQUE INDEX roles_by_name ON roles (org_id, name)",
    // The current text; every version of it stays in policy_versions as long as the policy.
    `CREATE TABLE policies (
      id TEXT PRIMARY KEY, org_id TEXT NOT NULL, name TEXT NOT NULL, actions TEXT NOT NULL, resources TEXT NOT NULL,
      condition TEXT NOT NULL, version BIGINT NOT NULL, template_id TEXT, template_version TEXT,
      created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL)`,
    "CREATE UNIQUE INDEX policies_by_name ON policies (org_id, name)",
    `CREATE TABLE policy_versions (
      policy_id TEXT NOT NULL, version BIGINT NOT NULL, org_id TEXT NOT NULL, name TEXT NOT NULL,
      actions TEXT NOT NULL, resources TEXT NOT NULL, condition TEXT NOT NULL, author_id TEXT NOT NULL,
      change_reason TEXT, template_id TEXT, template_version TEXT, created_at BIGINT NOT NULL,
      PRIMARY KEY (policy_id, version))`,
    // Which deny policies a role has; built-in roles may have some in each org.
    `CREATE TABLE role_policies (
      org_id TEXT NOT NULL, role_id TEXT NOT NULL, policy_id TEXT NOT NULL, created_at BIGINT NOT NULL,
      PRIMARY KEY (org_id, role_id, policy_id))`,
    "CREATE INDEX role_policies_by_policy ON role_policies (policy_id)",
  ],
};
