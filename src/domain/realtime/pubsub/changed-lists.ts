import type { Thing } from "../../../kit/operation.ts";

/** A list that callers read; frames say that it may be another now, and nothing of what stands in it. */
interface ChangedList {
  /** The action of the operation that answers the list. */
  reads: string;
  /** Its resource type, as deny policies name it. */
  type: string;
}

/** Lists of an environment: `system.changed.{list}`. */
const ofEnvironments = {
  projections: { reads: "projections:read", type: "projection" },
  kv: { reads: "secrets:read", type: "kv" },
  topics: { reads: "events:subscribe", type: "event" },
  tools: { reads: "agent:tools:read", type: "agent-tool" },
  repairs: { reads: "runs:read", type: "repair" },
  quotas: { reads: "functions:list", type: "environments" },
  retention: { reads: "runs:read", type: "retention" },
  alerts: { reads: "alerts:read", type: "alert" },
} as const satisfies Record<string, ChangedList>;

/** Lists of an org, told in each of its environments: `system.changed.{list}`. */
const ofOrgs = {
  users: { reads: "users:read", type: "user" },
  roles: { reads: "orgs:read", type: "role" },
  keys: { reads: "apikeys:read", type: "apikeys" },
  sessions: { reads: "users:read", type: "session" },
  policies: { reads: "orgs:read", type: "policy" },
  audit: { reads: "orgs:read", type: "org" },
} as const satisfies Record<string, ChangedList>;

/** Lists of the platform: `system.platform.{list}`, for its own credentials. */
const ofPlatform = {
  users: { reads: "platform:users:read", type: "user" },
  roles: { reads: "platform:roles:read", type: "role" },
  keys: { reads: "platform:keys:read", type: "apikeys" },
  sessions: { reads: "platform:users:read", type: "session" },
  policies: { reads: "platform:policies:read", type: "policy" },
  audit: { reads: "platform:audit:read", type: "audit" },
  tenants: { reads: "platform:tenants:read", type: "tenants" },
  capacity: { reads: "platform:tenants:read", type: "capacity" },
} as const satisfies Record<string, ChangedList>;

export type EnvironmentList = keyof typeof ofEnvironments;
export type OrgList = keyof typeof ofOrgs;
export type PlatformList = keyof typeof ofPlatform;

/** The lists by the namespace of their frames. */
export const changedLists = { changed: { ...ofEnvironments, ...ofOrgs }, platform: ofPlatform } as const;

/** Every action that a pattern of these namespaces may cost. */
export const changedListActions: readonly string[] = [
  ...new Set(
    Object.values(changedLists)
      .flatMap((lists) => Object.values<ChangedList>(lists))
      .map(({ reads }) => reads),
  ),
];

/** What is asked of a parsed pattern. */
interface AskedPattern {
  readonly namespace: string;
  readonly tokens: readonly string[];
}

/** Whether the pattern's frames are of lists that changed. */
export const isOfChanges = ({ namespace }: Pick<AskedPattern, "namespace">): boolean =>
  namespace === "changed" || namespace === "platform";

/** The lists that the pattern may match: with a wildcard all of the namespace. */
function listsOf({ namespace, tokens }: AskedPattern): ChangedList[] {
  if (namespace !== "changed" && namespace !== "platform") return [];
  const lists: Record<string, ChangedList> = changedLists[namespace];
  const [, name = ""] = tokens;
  if (name === "*" || name === ">") return Object.values(lists);
  return Object.hasOwn(lists, name) ? [lists[name]!] : [];
}

/** What its reader must be granted besides: to read each list that it may be told of. */
export const readsOf = (pattern: AskedPattern): string[] => [
  ...new Set(listsOf(pattern).map(({ reads }) => reads)),
];

/** The lists as deny policies are asked about them: as the operations that answer them are. */
export const listThingsOf = (pattern: AskedPattern): Thing[] =>
  listsOf(pattern).map(({ reads, type }) => ({ type, id: "*", action: reads }));

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
