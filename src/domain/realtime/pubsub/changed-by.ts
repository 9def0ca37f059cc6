import type { EnvironmentList, OrgList, PlatformList } from "./changed-lists.ts";

interface ToldLists {
  environment?: readonly EnvironmentList[];
  org?: readonly OrgList[];
  platform?: readonly PlatformList[];
}

const nothing: ToldLists = {};

/** The same lists for several operations of one capability. */
const all = (capability: string, verbs: string, changed: ToldLists): [string, ToldLists][] =>
  verbs.split(" ").map((verb) => [`${capability}.${verb}`, changed]);

/** What an operation changes for a tenant: lists of the environment and org, and the platform's of orgs. */
const byTenants = new Map<string, ToldLists>([
  ...all("projections", "register createSql delete pause resume rebuild cancelRebuild reportRebuild fail", {
    environment: ["projections"],
  }),
  ...all("kv", "buckets.create buckets.delete put delete", { environment: ["kv"] }),
  ...all("topics", "publish publishBatch", { environment: ["topics"] }),
  ...all("agentTools", "register unregister", { environment: ["tools"] }),
  ...all("repairs", "start pause continue stop", { environment: ["repairs"] }),
  ...all("replays", "start", { environment: ["repairs"] }),
  ...all("quotas", "set", { environment: ["quotas"] }),
  ...all("retention", "set", { environment: ["retention"] }),
  ...all("alerts", "putRule deleteRule silenceRule resolve", { environment: ["alerts"] }),
  ...all("users", "create update delete endSessions changePassword", { org: ["users", "sessions"] }),
  ...all("roles", "create update delete", { org: ["roles"] }),
  ...all("policies", "assign unassign create update delete rollback", { org: ["policies", "roles"] }),
  ...all("policyTemplates", "install", { org: ["policies", "roles"] }),
  ...all("keys", "create delete rotate setRoles", { org: ["keys", "roles", "sessions"] }),
  ...all("environments", "create delete rotateKey", { org: ["keys", "sessions"] }),
  ...all("sessions", "end", { org: ["sessions"] }),
  ...all("auth", "logout endSession endOtherSessions", { org: ["sessions"] }),
  ...all("orgs", "create update delete", { platform: ["tenants"] }),
  ...all("tenants", "provision", { platform: ["tenants"] }),
  ...all("platform", "bootstrap", { platform: ["users"] }),
]);

/** What it changes for the platform, whose credentials call for themselves. */
const byPlatform = new Map<string, ToldLists>([
  ...all("platform.users", "create update delete", { platform: ["users", "sessions"] }),
  ...all("platform.roles", "create update delete", { platform: ["roles"] }),
  ...all("platform.policies", "assign unassign create update delete", { platform: ["policies", "roles"] }),
  ...all("platform.sessions", "end", { platform: ["sessions"] }),
  ...all("platform.tenants", "create delete", { platform: ["tenants"] }),
  ...all("keys", "create delete rotate setRoles", { platform: ["keys", "roles", "sessions"] }),
  ...all("auth", "logout endSession endOtherSessions", { platform: ["sessions"] }),
  ...all("quotas", "set", { environment: ["quotas"] }),
]);

/** The lists that a successful call of the operation may have changed. */
export const changedBy = (name: string, isForPlatform: boolean): ToldLists =>
  (isForPlatform ? byPlatform.get(name) : undefined) ?? byTenants.get(name) ?? nothing;

/** Every operation that is listed here, for a check that each is one. */
export const changingOperations = (): string[] => [...new Set([...byTenants.keys(), ...byPlatform.keys()])];
