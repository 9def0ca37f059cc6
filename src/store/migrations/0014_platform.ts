import type { StoreEngine } from "../store.ts";

/** What platform credentials changed, and where they acted for a tenant. */
export const platform = {
  version: 14,
  name: "platform",
  compatible: true,
  statements: (_engine: StoreEngine): string[] => [
    // Kept for `limits.platformAuditKeptMs`. Ids are empty where there is none.
    `CREATE TABLE platform_audit (
      id TEXT PRIMARY KEY, event_type TEXT NOT NULL, platform_key_id TEXT NOT NULL, platform_user_id TEXT NOT NULL,
      impersonated_org_id TEXT NOT NULL, payload TEXT NOT NULL, created_at BIGINT NOT NULL)`,
    "CREATE INDEX platform_audit_by_time ON platform_audit (created_at, id)",
    "CREATE INDEX platform_audit_by_type ON platform_audit (event_type, created_at, id)",
    "CREATE INDEX platform_audit_by_key ON platform_audit (platform_key_id, created_at, id)",
    "CREATE INDEX platform_audit_by_org ON platform_audit (impersonated_org_id, created_at, id)",
  ],
};
