import type { StoreEngine } from "../store.ts";

/** What an org's deleted environments still have is looked up by the org. */
export const purging = {
  version: 17,
  name: "purging",
  compatible: true,
  statements: (_engine: StoreEngine): string[] => [
    "CREATE INDEX deleted_environments_unpurged_by_org ON deleted_environments (org_id, deleted_at) WHERE purged_at IS NULL",
  ],
};
