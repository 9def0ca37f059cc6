import { type Action, isAction, roleGrants } from "./access/actions.ts";
import { type Gate, openGate, platformOrgId } from "./access/gate.ts";
import type { Keyring } from "./domain/keyring/service.ts";
import { openKeyManagement } from "./domain/keys/manage.ts";
import { keysOperations } from "./domain/keys/operations.ts";
import type { Keys } from "./domain/keys/service.ts";
import { policiesOperations, policyToolsOperations, tenantPolicies } from "./domain/policies/operations.ts";
import { openPolicies, type PastDecision } from "./domain/policies/service.ts";
import { openSnapshots } from "./domain/policies/snapshots.ts";
import { rolesOperations, tenantRoles } from "./domain/roles/operations.ts";
import { openRoles, type RoleScope } from "./domain/roles/service.ts";
import { cookieValue, sessionsOperations } from "./domain/sessions/operations.ts";
import { openSessions, type Sessions } from "./domain/sessions/service.ts";
import { openThrottle } from "./domain/sessions/throttle.ts";
import { looksLikeToken, openTokens } from "./domain/sessions/tokens.ts";
import type { Tenancy } from "./domain/tenancy/service.ts";
import { usersOperations } from "./domain/users/operations.ts";
import type { Users } from "./domain/users/service.ts";
import type { Clock } from "./kit/clock.ts";
import { Fault } from "./kit/fault.ts";
import type { Ids } from "./kit/ids.ts";
import { loginAddressAttemptsMax, loginAttemptsMax, sessionMs } from "./kit/limits.ts";
import type { Call, Operation } from "./kit/operation.ts";
import type { Store } from "./store/store.ts";

export interface Tenants {
  /** Whose session a token is, for authentication. */
  sessions: Pick<Sessions, "find"> & {
    looksLikeToken: typeof looksLikeToken;
    cookieOf: typeof cookieValue;
  };
  /** Whether the caller's roles grant the action in the org that it acts in. */
  grants(call: Call, action: Action): Promise<boolean>;
  /** Names of the roles that an org has made for itself. */
  roleNames(orgId: string): Promise<string[]>;
  /** What every call passes before it is handled. */
  gate: Gate;
  operations: readonly Operation[];
}

export interface TenantsDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  tenancy: Tenancy;
  keys: Keys;
  users: Users;
  keyring: Keyring;
  /** Resolves once no node believes any more what it knew of the key with this hash. */
  forgetKey: (hash: string) => Promise<void>;
  /** The org's last audited calls, newest first. */
  pastDecisions: (orgId: string, limit: number) => Promise<readonly PastDecision[]>;
}

/** Who may do what, put together: keys, roles, policies, and the gate that obeys them. */
export function openTenants(deps: TenantsDeps): Tenants {
  const { store, clock, ids, tenancy, keys, users, keyring } = deps;
  const snapshots = openSnapshots({ store, clock });
  const changed = snapshots.forget;
  const roles = openRoles({ store, clock, ids, changed });
  const policies = openPolicies({ store, clock, ids, roles, changed, pastDecisions: deps.pastDecisions });
  const manage = openKeyManagement({ store, clock, keys, roles, tenancy, forgetEverywhere: deps.forgetKey });
  const tokens = openTokens({ keyring, now: clock.now, ttlMs: sessionMs });
  const limits = { attemptsMax: loginAttemptsMax, addressAttemptsMax: loginAddressAttemptsMax };
  const throttle = openThrottle({ clock, ...limits });
  const sessions = openSessions({ clock, tokens, throttle, users, keys });

  /** Tenants have to do with their own keys, and with the platform's only where a platform role says so. */
  function keyScope({ caller }: Call, platform: boolean, action: string): RoleScope {
    const ofPlatform = caller.kind === "platform" && caller.impersonates !== true;
    if (ofPlatform !== platform || (platform && !(isAction(action) && roleGrants(caller.roles, action))))
      throw new Fault("permission_denied", "Insufficient permissions");
    return platform ? { orgId: platformOrgId, kind: "platform" } : { orgId: caller.orgId, kind: "tenant" };
  }

  /** For a second right that an operation asks for; who impersonates was asked for the right to do so. */
  const grants = async ({ caller }: Call, action: Action): Promise<boolean> =>
    caller.impersonates === true || (await snapshots.of(caller.orgId)).grants(caller.roles, action);
  const mayReadUsers = (call: Call) => grants(call, "users:read");

  return {
    sessions: { find: sessions.find, looksLikeToken, cookieOf: cookieValue },
    grants,
    roleNames: async (orgId) =>
      (await roles.list({ orgId, kind: "tenant" })).flatMap((role) => (role.isDefault ? [] : role.name)),
    gate: openGate({ snapshots, placeOf: tenancy.placeOf, now: clock.now }),
    operations: [
      ...rolesOperations({ roles, keyCounts: keys.roleCounts }, tenantRoles),
      ...policiesOperations(policies, roles, tenantPolicies),
      ...policyToolsOperations(policies),
      ...keysOperations({ manage, scopeOf: keyScope }),
      ...usersOperations(users, mayReadUsers),
      ...sessionsOperations(sessions),
    ],
  };
}
