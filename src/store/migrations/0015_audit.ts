import type { StoreEngine } from "../store.ts";

/** What callers were allowed and refused, and what they changed: one chain of hashes an org. */
export const audit = {
  version: 15,
  name: "audit",
  compatible: true,
  statements: (_engine: StoreEngine): string[] => [
    // Left by the retention of the setting, oldest first; `hash` covers the row and the hash before it.
    `CREATE TABLE auth_audit (
      org_id TEXT NOT NULL, sequence BIGINT NOT NULL, id TEXT NOT NULL, at BIGINT NOT NULL, event_type TEXT NOT NULL,
      operation TEXT NOT NULL, action TEXT NOT NULL, reads BIGINT NOT NULL, environment_id TEXT NOT NULL,
      resource TEXT NOT NULL, allowed BIGINT NOT NULL, rule TEXT NOT NULL, outcome TEXT NOT NULL,
      caller_kind TEXT NOT NULL, caller_id TEXT NOT NULL, roles TEXT NOT NULL, impersonated_org_id TEXT NOT NULL,
      request_id TEXT NOT NULL, payload TEXT, removed TEXT NOT NULL, key_id TEXT NOT NULL, hash TEXT NOT NULL,
      PRIMARY KEY (org_id, sequence))`,
    "CREATE INDEX auth_audit_by_time ON auth_audit (org_id, at, sequence)",
    "CREATE INDEX auth_audit_by_caller ON auth_audit (org_id, caller_id, at, sequence)",
    // One row an org that was ever audited: where its chain ends and, after retention, begins; signed as a whole.
    `CREATE TABLE auth_audit_heads (
      org_id TEXT PRIMARY KEY, sequence BIGINT NOT NULL, hash TEXT NOT NULL, floor_sequence BIGINT NOT NULL,
      floor_hash TEXT NOT NULL, key_id TEXT NOT NULL, signature TEXT NOT NULL)`,
  ],
};
