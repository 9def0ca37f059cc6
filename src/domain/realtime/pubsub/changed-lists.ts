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
