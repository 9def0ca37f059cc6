import type { Static } from "@sinclair/typebox";
import type { IdentityShape, IssuerShape, SignInShape } from "../../domain/access/issuers/operations.ts";
import type { KeyShape } from "../../domain/access/keys/operations.ts";
import type { DryRunShape, PolicyShape, VersionShape } from "../../domain/access/policies/shapes.ts";
import type { RoleRow } from "../../domain/access/roles/operations.ts";
import type { SessionShape } from "../../domain/access/sessions/manage-operations.ts";
import { rest } from "./api.ts";
import { queryOf } from "./router.ts";
import { isAtHome } from "./session.ts";

/** Whose users, roles and policies are shown: the org's, or the platform's own. */
export interface AccessScope {
  isPlatform: boolean;
  path: string;
  keysQuery: string;
  /** Actions without which its buttons are not offered. */
  manages: Record<"users" | "roles" | "policies" | "keys", string>;
  reads: Record<"users" | "roles" | "policies" | "keys", string>;
}

const ofOrg: AccessScope = {
  ...{ isPlatform: false, path: "/api/v1", keysQuery: "" },
  manages: { users: "users:manage", roles: "orgs:manage", policies: "orgs:manage", keys: "apikeys:manage" },
  reads: { users: "users:read", roles: "orgs:read", policies: "orgs:read", keys: "apikeys:read" },
};

const platformActions = (verb: "manage" | "read") => ({
  users: `platform:users:${verb}`,
  roles: `platform:roles:${verb}`,
  policies: `platform:policies:${verb}`,
  keys: `platform:keys:${verb}`,
});

const ofPlatform: AccessScope = {
  ...{ isPlatform: true, path: "/api/v1/platform", keysQuery: "?platform=true" },
  ...{ manages: platformActions("manage"), reads: platformActions("read") },
};

export const accessScope = (): AccessScope => (isAtHome() ? ofPlatform : ofOrg);

export interface UserData {
  id: string;
  email: string;
  name: string;
  /** Of an org's user; one of the platform has `role_ids`. */
  roles?: string[];
  role_ids?: string[];
  is_active?: boolean;
  break_glass?: boolean;
  created_at: string;
  last_login_at?: string;
}

export const rolesOfUser = ({ roles, role_ids }: UserData): string[] => roles ?? role_ids ?? [];

export type RoleData = Static<typeof RoleRow>;

export type PolicyData = Static<typeof PolicyShape> & { role_count?: number };

export type AccessKeyData = Static<typeof KeyShape>;

export type PolicyVersionData = Static<typeof VersionShape>;

const one = (id: string) => encodeURIComponent(id);

export const listUsers = ({ path }: AccessScope, signal?: AbortSignal): Promise<UserData[]> =>
  rest(`${path}/users`, { signal });

export const createUser = ({ path }: AccessScope, body: object): Promise<UserData> =>
  rest(`${path}/users`, { body });

export const changeUser = ({ path }: AccessScope, id: string, body: object): Promise<UserData> =>
  rest(`${path}/users/${one(id)}`, { method: "PATCH", body });

export const deleteUser = ({ path }: AccessScope, id: string): Promise<void> =>
  rest(`${path}/users/${one(id)}`, { method: "DELETE" });

export const changePassword = (id: string, body: object): Promise<void> =>
  rest(`/api/v1/users/${one(id)}/password`, { method: "PATCH", body });

export const listRoles = ({ path }: AccessScope, signal?: AbortSignal): Promise<RoleData[]> =>
  rest(`${path}/roles`, { signal });

export const createRole = ({ path }: AccessScope, body: object): Promise<RoleData> =>
  rest(`${path}/roles`, { body });

export const deleteRole = ({ path }: AccessScope, id: string, force: boolean): Promise<void> =>
  rest(`${path}/roles/${one(id)}${force ? "?force=true" : ""}`, { method: "DELETE" });

export const policiesOfRole = async ({ path }: AccessScope, id: string, signal?: AbortSignal) =>
  (await rest<{ policies: PolicyData[] }>(`${path}/roles/${one(id)}/policies`, { signal })).policies;

export const assignPolicy = ({ path }: AccessScope, id: string, policyId: string): Promise<void> =>
  rest(`${path}/roles/${one(id)}/policies`, { body: { policy_id: policyId } });

export const unassignPolicy = ({ path }: AccessScope, id: string, policyId: string): Promise<void> =>
  rest(`${path}/roles/${one(id)}/policies/${one(policyId)}`, { method: "DELETE" });

export const listPolicies = ({ path }: AccessScope, signal?: AbortSignal): Promise<PolicyData[]> =>
  rest(`${path}/policies`, { signal });

export const getPolicy = ({ path }: AccessScope, id: string, signal?: AbortSignal): Promise<PolicyData> =>
  rest(`${path}/policies/${one(id)}`, { signal });

export const createPolicy = ({ path }: AccessScope, body: object): Promise<PolicyData> =>
  rest(`${path}/policies`, { body: { ...body, effect: "deny" } });

export const changePolicy = ({ path }: AccessScope, id: string, body: object): Promise<PolicyData> =>
  rest(`${path}/policies/${one(id)}`, { method: "PATCH", body });

export const deletePolicy = ({ path }: AccessScope, id: string): Promise<void> =>
  rest(`${path}/policies/${one(id)}`, { method: "DELETE" });

export const listPolicyVersions = (id: string, signal?: AbortSignal): Promise<PolicyVersionData[]> =>
  rest(`/api/v1/policies/${one(id)}/versions`, { signal });

export const rollbackPolicy = (id: string, version: number): Promise<PolicyData> =>
  rest(`/api/v1/policies/${one(id)}/rollback/${version}`, { method: "POST" });

export type DryRunData = Static<typeof DryRunShape>;

export const dryRun = (body: object, signal: AbortSignal): Promise<DryRunData> =>
  rest("/api/v1/policies/dry-run", { body, signal });

const keys = "/api/v1/apikeys";

export const listKeys = ({ keysQuery }: AccessScope, signal?: AbortSignal): Promise<AccessKeyData[]> =>
  rest(`${keys}${keysQuery}`, { signal });

/** The answer alone holds the text of the key. */
export const createKey = (
  { isPlatform }: AccessScope,
  body: object,
): Promise<AccessKeyData & { key: string }> =>
  rest(keys, { body: { ...body, ...(isPlatform && { platform: true }) } });

export const rotateKey = (id: string): Promise<AccessKeyData & { key: string }> =>
  rest(`${keys}/${one(id)}/rotate`, { method: "POST" });

export const setKeyRoles = (id: string, roleIds: readonly string[]): Promise<AccessKeyData> =>
  rest(`${keys}/${one(id)}/roles`, { method: "PUT", body: { role_ids: roleIds } });

export const deleteKey = (id: string): Promise<void> => rest(`${keys}/${one(id)}`, { method: "DELETE" });

/** A sign-in session, as the server lists it. */
export type SessionData = Static<typeof SessionShape>;

const ownSessions = "/api/v1/auth/sessions";

async function sessionPage(path: string, cursor: string, signal: AbortSignal) {
  const query = queryOf({ cursor });
  const page = await rest<{ sessions: SessionData[]; next_cursor?: string }>(`${path}${query}`, { signal });
  return { rows: page.sessions, next: page.next_cursor };
}

export const listOwnSessions = (cursor: string, signal: AbortSignal) =>
  sessionPage(ownSessions, cursor, signal);

export const listSessions = ({ path }: AccessScope, cursor: string, signal: AbortSignal) =>
  sessionPage(`${path}/sessions`, cursor, signal);

export const endOwnSession = (id: string): Promise<void> =>
  rest(`${ownSessions}/${one(id)}`, { method: "DELETE" });

export const endOtherSessions = (): Promise<{ ended: number }> =>
  rest(`${ownSessions}/end-others`, { method: "POST" });

export const endSession = ({ path }: AccessScope, id: string): Promise<void> =>
  rest(`${path}/sessions/${one(id)}`, { method: "DELETE" });

export type IssuerData = Static<typeof IssuerShape>;

export const listIssuers = ({ path }: AccessScope, signal?: AbortSignal): Promise<IssuerData[]> =>
  rest(`${path}/issuers`, { signal });

export const createIssuer = ({ path }: AccessScope, body: object): Promise<IssuerData> =>
  rest(`${path}/issuers`, { body });

export const changeIssuer = ({ path }: AccessScope, id: string, body: object): Promise<IssuerData> =>
  rest(`${path}/issuers/${one(id)}`, { method: "PATCH", body });

export const deleteIssuer = ({ path }: AccessScope, id: string): Promise<void> =>
  rest(`${path}/issuers/${one(id)}`, { method: "DELETE" });

export const getSignIn = ({ path }: AccessScope, signal?: AbortSignal): Promise<Static<typeof SignInShape>> =>
  rest(`${path}/sign-in`, { signal });

export const setPasswords = ({ path }: AccessScope, passwords: boolean): Promise<void> =>
  rest(`${path}/sign-in`, { method: "PATCH", body: { passwords } });

export type IdentityData = Static<typeof IdentityShape>;

/** As whom the user may sign in at providers. */
export const listIdentities = async ({ path }: AccessScope, user: string, signal?: AbortSignal) =>
  (await rest<{ identities: IdentityData[] }>(`${path}/users/${one(user)}/identities`, { signal }))
    .identities;

export const unlink = ({ path }: AccessScope, user: string, identity: string): Promise<void> =>
  rest(`${path}/users/${one(user)}/identities/${one(identity)}`, { method: "DELETE" });

export interface OfferedIssuer {
  id: string;
  name: string;
  is_platform: boolean;
}

/** Issuers of the org; without one, those of the default org and of the platform. Asks for no credential. */
export const offeredIssuers = async (org: string, signal?: AbortSignal) =>
  (
    await rest<{ issuers: OfferedIssuer[] }>(`/api/v1/auth/issuers${queryOf({ org })}`, {
      signal,
      isSigningIn: true,
    })
  ).issuers;

/** Where a sign-in by the issuer begins, to come back to this page. */
export const startOf = ({ id }: OfferedIssuer): string =>
  `/api/v1/auth/oidc/${one(id)}/start${queryOf({ return_to: `${location.pathname}${location.search}` })}`;

/** Where to go to join a person of the provider to the user who is signed in. */
export const linkIssuer = async (id: string): Promise<string> =>
  (
    await rest<{ url: string }>(`/api/v1/auth/oidc/${one(id)}/link`, {
      body: { return_to: `${location.pathname}${location.search}` },
    })
  ).url;
