import { issuerUrlBytesMax, providerTextBytesMax } from "../../kit/limits.ts";
import { callerIdBytes, changing, ours, type Tables, utf8 } from "./table.ts";

/** Orgs, their environments and people, and what they may do. */
export const tablesOfAccess = {
  orgs: {
    holds: "orgs",
    scope: "installation",
    endsWith: "their owner deletes them",
    // `access_version` grows with every change of a role or policy of the org: nodes see by it whether what
    // they know is current.
    // `passwords_off`: its users sign in by an issuer alone.
    columns: `id TEXT PRIMARY KEY, name TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
      access_version BIGINT NOT NULL DEFAULT 0, preferences TEXT, passwords_off BIGINT NOT NULL DEFAULT 0`,
    texts: { id: ours },
    exported: "the first line has it",
  },
  projects: {
    holds: "projects",
    scope: "org",
    endsWith: "their owner deletes them",
    columns: `id TEXT PRIMARY KEY, org_id TEXT NOT NULL, name TEXT NOT NULL, created_at BIGINT NOT NULL,
      updated_at BIGINT NOT NULL, description TEXT`,
    indexes: ["projects_by_org (org_id)"],
    texts: { id: ours },
    exported: {
      in: "environments",
      of: "org",
      ids: "id",
      leaves: "id name description created_at updated_at",
    },
  },
  environments: {
    holds: "environments",
    scope: "org",
    endsWith: "their owner deletes them",
    // `retention_days`: days that events and runs are kept; null takes the installation's settings, 0 keeps
    // them without an end. `compat_key_id`: the key that EnvironmentService makes and rotates; one that was
    // deleted is made again. `schema_mode`: `off`, `warn` or `enforce`; NULL is `enforce`.
    // `tells_failures`: 1 where each run that fails for good leads to the event `svc.run.failed`.
    columns: `id TEXT PRIMARY KEY, org_id TEXT NOT NULL, project_id TEXT, name TEXT NOT NULL,
      color TEXT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, retention_days BIGINT,
      compat_key_id TEXT, schema_mode TEXT, tells_failures BIGINT`,
    indexes: ["UNIQUE environments_by_name (org_id, name)", "environments_by_project (project_id)"],
    texts: { id: ours, name: 63 },
    exported: {
      in: "environments",
      of: "org",
      ids: "id project_id",
      leaves: "id project_id name color schema_mode created_at updated_at retention_days tells_failures",
      stays: "compat_key_id",
    },
  },
  deleted_environments: {
    holds: "tombstones",
    scope: "org",
    endsWith: "nothing: one row an environment that was",
    // `purged_at` is set when no table has a row of it.
    columns: `id TEXT PRIMARY KEY, org_id TEXT NOT NULL, project_id TEXT, name TEXT NOT NULL,
      deleted_at BIGINT NOT NULL, purged_at BIGINT`,
    indexes: [
      "deleted_environments_by_time (deleted_at)",
      "deleted_environments_unpurged (deleted_at) WHERE purged_at IS NULL",
      "deleted_environments_unpurged_by_org (org_id, deleted_at) WHERE purged_at IS NULL",
    ],
    texts: { id: ours },
    exported: "what was deleted",
  },
  api_keys: {
    holds: "API keys, by the hash of their value",
    scope: "org",
    endsWith: "their owner deletes them, or their environment is deleted",
    // Sessions made with the key before `tokens_after` are believed no more: it was rotated.
    columns: `id TEXT PRIMARY KEY, org_id TEXT NOT NULL, environment_id TEXT, name TEXT NOT NULL,
      key_hash TEXT NOT NULL, key_prefix TEXT NOT NULL, role_ids TEXT NOT NULL, platform_at BIGINT,
      created_at BIGINT NOT NULL, expires_at BIGINT, last_used_at BIGINT,
      tokens_after BIGINT NOT NULL DEFAULT 0`,
    indexes: [
      "UNIQUE api_keys_by_hash (key_hash)",
      "api_keys_by_org (org_id)",
      "api_keys_by_environment (environment_id)",
    ],
    purge: { at: 30 },
    texts: { id: ours, key_hash: ours },
    exported: "credentials",
  },
  users: {
    holds: "users of orgs",
    scope: "org",
    endsWith: "their owner deletes them",
    // Tokens issued before `tokens_after` are believed no more: the password was changed. `roles` keeps the
    // names of `role_ids`, for nodes of the version before. `role_ids_of`: what `roles` was when `role_ids`
    // was written; where it is another by now, such a node has changed it, and the names count.
    columns: `id TEXT PRIMARY KEY, org_id TEXT NOT NULL, email TEXT NOT NULL, name TEXT NOT NULL,
      password_hash TEXT NOT NULL, roles TEXT NOT NULL, created_at BIGINT NOT NULL,
      updated_at BIGINT NOT NULL, last_login_at BIGINT, tokens_after BIGINT NOT NULL DEFAULT 0, role_ids TEXT,
      role_ids_of TEXT`,
    indexes: ["UNIQUE users_by_email (email)", "users_by_org (org_id, created_at, id)"],
    texts: { id: ours, email: utf8(254) },
    exported: {
      in: "users",
      of: "org",
      ids: "id",
      leaves: "id email name created_at updated_at last_login_at",
      json: "roles role_ids",
      stays: "password_hash role_ids_of tokens_after",
    },
  },
  sessions: {
    holds: "logins, by the hash of their secret part, with address and client",
    scope: "installation",
    endsWith:
      "24 hours, loop `cluster.forget`; a logout, an admin, a new password, a rotation, or with their user, key or org; at most 200 each",
    // A token is believed as long as its row is here. `id` is the hash of what the token carries,
    // `subject_id` a user's or a platform user's id, of a desktop session a key's. `issuer_id` and
    // `provider_sid`: the issuer that it came from, and the session there, which may end it.
    columns: `id TEXT PRIMARY KEY, kind TEXT NOT NULL, subject_id TEXT NOT NULL, org_id TEXT NOT NULL,
      created_at BIGINT NOT NULL, expires_at BIGINT NOT NULL, address TEXT NOT NULL DEFAULT '',
      user_agent TEXT NOT NULL DEFAULT '', last_used_at BIGINT, issuer_id TEXT, provider_sid TEXT`,
    indexes: [
      "sessions_by_subject (kind, subject_id, created_at)",
      "sessions_by_end (expires_at)",
      "sessions_by_org_newest (org_id, created_at, id)",
      "sessions_by_provider (issuer_id, provider_sid) WHERE issuer_id IS NOT NULL",
    ],
    texts: {
      id: ours,
      kind: ours,
      subject_id: callerIdBytes,
      issuer_id: ours,
      provider_sid: providerTextBytesMax,
    },
    exported: "credentials",
  },
  login_attempts: {
    holds: "counts of logins and what signs in once, under hashes",
    scope: "installation",
    endsWith:
      "a minute after the first attempt, ten after a sign-in by an issuer; a known address after 30 days, loop `sessions.attempts`",
    // `key`: a hash of what is counted, so that no address and no mistyped password stands here.
    columns: `key TEXT PRIMARY KEY, count BIGINT NOT NULL, ends_at BIGINT NOT NULL`,
    indexes: ["login_attempts_by_end (ends_at)"],
    room: changing,
    texts: { key: ours },
    exported: "of the installation",
  },
  platform_users: {
    holds: "users of the platform",
    scope: "installation",
    endsWith: "they are deleted; at most 1,000",
    // `break_glass`: the password works although passwords are off.
    columns: `id TEXT PRIMARY KEY, email TEXT NOT NULL, name TEXT NOT NULL, password_hash TEXT NOT NULL,
      roles TEXT NOT NULL, is_active BIGINT NOT NULL, tokens_after BIGINT NOT NULL,
      created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL, last_login_at BIGINT,
      break_glass BIGINT NOT NULL DEFAULT 0`,
    indexes: ["UNIQUE platform_users_by_email (email)"],
    texts: { id: ours, email: utf8(254) },
    exported: "of the platform",
  },
  issuers: {
    holds: "OpenID providers by which an org's people sign in, or the platform's",
    scope: "org",
    endsWith: "their org deletes them; at most 10 an org",
    // `client_secret` is sealed, and empty where the client has none. `roles_claim` names the claim that
    // `issuer_roles` translates. Of `org_platform`: users of the platform sign in by it.
    columns: `id TEXT PRIMARY KEY, org_id TEXT NOT NULL, name TEXT NOT NULL, issuer TEXT NOT NULL,
      client_id TEXT NOT NULL, client_secret TEXT NOT NULL, scopes TEXT NOT NULL, roles_claim TEXT NOT NULL,
      is_enabled BIGINT NOT NULL, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL,
      ends_at_provider BIGINT NOT NULL DEFAULT 0`,
    indexes: ["UNIQUE issuers_by_url (org_id, issuer)"],
    texts: { id: ours, issuer: issuerUrlBytesMax },
    exported: "it has the client's secret",
  },
  issuer_roles: {
    holds: "which role a value of an issuer's claim means",
    scope: "org",
    endsWith: "their issuer is changed or deleted; at most 200 of one",
    // `value` `*` means everyone who signs in there. A role that was deleted gives nothing.
    columns: `issuer_id TEXT NOT NULL, value TEXT NOT NULL, role_id TEXT NOT NULL, org_id TEXT NOT NULL,
      PRIMARY KEY (issuer_id, value, role_id)`,
    indexes: ["issuer_roles_by_org (org_id)"],
    texts: { issuer_id: ours, value: providerTextBytesMax },
    exported: "it goes with its issuer",
  },
  identities: {
    holds: "people as their issuers name them",
    scope: "org",
    endsWith: "their user or org is deleted",
    // A person is (issuer, subject) within an org; the issuer's row may be gone and come back.
    columns: `org_id TEXT NOT NULL, issuer TEXT NOT NULL, subject TEXT NOT NULL, user_id TEXT NOT NULL,
      created_at BIGINT NOT NULL, PRIMARY KEY (org_id, issuer, subject)`,
    indexes: ["identities_by_user (user_id)"],
    texts: { issuer: issuerUrlBytesMax, subject: providerTextBytesMax, user_id: ours },
    exported: "credentials",
  },
  roles: {
    holds: "custom roles",
    scope: "org",
    endsWith: "their org deletes them",
    // `base` is the built-in role whose grants it has.
    columns: `id TEXT PRIMARY KEY, org_id TEXT NOT NULL, name TEXT NOT NULL, base TEXT NOT NULL,
      created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL`,
    indexes: ["UNIQUE roles_by_name (org_id, name)"],
    texts: { id: ours, name: utf8(100) },
    exported: { in: "roles", of: "org", ids: "id", leaves: "id name base created_at updated_at" },
  },
  role_policies: {
    holds: "which policies a role carries",
    scope: "org",
    endsWith: "the role or the policy is deleted",
    // Built-in roles may have some in each org.
    columns: `org_id TEXT NOT NULL, role_id TEXT NOT NULL, policy_id TEXT NOT NULL,
      created_at BIGINT NOT NULL, PRIMARY KEY (org_id, role_id, policy_id)`,
    indexes: ["role_policies_by_policy (policy_id)"],
    exported: {
      in: "roles",
      of: "org",
      ids: "role_id policy_id",
      leaves: "role_id policy_id created_at",
    },
  },
  policies: {
    holds: "deny policies",
    scope: "org",
    endsWith: "their org deletes them",
    // The current text; every version of it stays in `policy_versions` as long as the policy.
    columns: `id TEXT PRIMARY KEY, org_id TEXT NOT NULL, name TEXT NOT NULL, actions TEXT NOT NULL,
      resources TEXT NOT NULL, condition TEXT NOT NULL, version BIGINT NOT NULL, template_id TEXT,
      template_version TEXT, created_at BIGINT NOT NULL, updated_at BIGINT NOT NULL`,
    indexes: ["UNIQUE policies_by_name (org_id, name)"],
    texts: { id: ours, name: utf8(100) },
    exported: {
      in: "policies",
      of: "org",
      ids: "id",
      leaves:
        "id name actions resources condition template_id template_version version created_at updated_at",
    },
  },
  policy_versions: {
    holds: "versions of policies",
    scope: "org",
    endsWith: "the policy is deleted; at most 10,000 of one policy",
    columns: `policy_id TEXT NOT NULL, version BIGINT NOT NULL, org_id TEXT NOT NULL, name TEXT NOT NULL,
      actions TEXT NOT NULL, resources TEXT NOT NULL, condition TEXT NOT NULL, author_id TEXT NOT NULL,
      change_reason TEXT, template_id TEXT, template_version TEXT, created_at BIGINT NOT NULL,
      PRIMARY KEY (policy_id, version)`,
    exported: {
      in: "policies",
      of: "org",
      ids: "policy_id",
      leaves:
        "policy_id name actions resources condition author_id change_reason template_id template_version version created_at",
    },
  },
} as const satisfies Tables;
