import { idempotencyKeyBytesMax } from "../kit/limits.ts";
import { callerIdBytes, nodeIdBytes, ours, type TableAbout, utf8 } from "./table.ts";

/** Tables whose rows belong to orgs, or to the whole installation. */
export const tablesOfOrgs: Record<string, TableAbout> = {
  api_keys: {
    holds: "API keys, by the hash of their value",
    scope: "org",
    endsWith: "their owner deletes them, or their environment is deleted",
    purge: { at: 30, key: ["id"] },
    texts: { id: ours, key_hash: ours },
  },
  auth_audit: {
    holds: "the signed chain of what callers did",
    scope: "org",
    endsWith: "`SVC_AUDIT_RETENTION_DAYS`, oldest first, loop `audit.forget`; 0 keeps them",
    texts: { caller_id: callerIdBytes },
  },
  auth_audit_heads: {
    holds: "the signed end of each chain",
    scope: "org",
    endsWith: "nothing: one row an org",
  },
  deleted_environments: {
    holds: "tombstones",
    scope: "org",
    endsWith: "nothing: one row an environment that was",
    texts: { id: ours },
  },
  environments: {
    holds: "environments",
    scope: "org",
    endsWith: "their owner deletes them",
    texts: { id: ours, name: 63 },
  },
  exports: {
    holds: "leases of exports under way",
    scope: "org",
    endsWith: "the export ends; what a dead node left is taken over by the next export, or goes with the org",
  },
  imports: {
    holds: "imports that are not finished",
    scope: "org",
    endsWith: "the import is finished or undone, or the org is deleted",
  },
  keyring: {
    holds: "sealed secrets of the installation",
    scope: "installation",
    endsWith: "24 hours after they were replaced, loop `cluster.forget`; keys of the audit stay",
    texts: { kind: ours },
  },
  leaders: {
    holds: "who leads which duty",
    scope: "installation",
    endsWith: "nothing: one row a duty",
    texts: { duty: ours },
  },
  primary_server: {
    holds: "the server of PostgreSQL that the database was last written on, and its timeline",
    scope: "installation",
    endsWith: "nothing: one row",
    texts: { id: ours },
  },
  login_attempts: {
    holds: "counts of logins, under hashes",
    scope: "installation",
    endsWith: "a minute after the first attempt; a known address after 30 days, loop `sessions.attempts`",
    texts: { key: ours },
  },
  nodes: {
    holds: "nodes and their heartbeats",
    scope: "installation",
    endsWith: "an hour after the last heartbeat, loop `cluster.forget`",
    texts: { id: nodeIdBytes },
  },
  orgs: {
    holds: "orgs",
    scope: "installation",
    endsWith: "their owner deletes them",
    texts: { id: ours },
  },
  platform_audit: {
    holds: "what platform credentials did",
    scope: "installation",
    endsWith: "366 days, loop `platform.forget`",
    texts: { id: ours, event_type: ours, impersonated_org_id: ours, platform_key_id: callerIdBytes },
  },
  platform_users: {
    holds: "users of the platform",
    scope: "installation",
    endsWith: "they are deleted; at most 1,000",
    texts: { id: ours, email: utf8(254) },
  },
  policies: {
    holds: "deny policies",
    scope: "org",
    endsWith: "their org deletes them",
    texts: { id: ours, name: utf8(100) },
  },
  policy_versions: {
    holds: "versions of policies",
    scope: "org",
    endsWith: "the policy is deleted; at most 10,000 of one policy",
  },
  projects: {
    holds: "projects",
    scope: "org",
    endsWith: "their owner deletes them",
    texts: { id: ours },
  },
  role_policies: {
    holds: "which policies a role carries",
    scope: "org",
    endsWith: "the role or the policy is deleted",
  },
  roles: {
    holds: "custom roles",
    scope: "org",
    endsWith: "their org deletes them",
    texts: { id: ours, name: utf8(100) },
  },
  rotations: {
    holds: "rotations of secrets that nodes still take up",
    scope: "installation",
    endsWith: "24 hours after the rotation, loop `cluster.forget`",
    texts: { id: ours, idempotency_key: idempotencyKeyBytesMax },
  },
  sessions: {
    holds: "logins, by the hash of their secret part, with address and client",
    scope: "installation",
    endsWith:
      "24 hours, loop `cluster.forget`; a logout, an admin, a new password, a rotation, or with their user, key or org; at most 200 each",
    texts: { id: ours, kind: ours, subject_id: callerIdBytes },
  },
  users: {
    holds: "users of orgs",
    scope: "org",
    endsWith: "their owner deletes them",
    texts: { id: ours, email: utf8(254) },
  },
};
