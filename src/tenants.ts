import { type Gate, openGate } from "./access/gate.ts";
import type { Keyring } from "./domain/keyring/service.ts";
import { type KeyChange, openKeyManagement } from "./domain/keys/manage.ts";
import { keysOperations } from "./domain/keys/operations.ts";
import type { Keys } from "./domain/keys/service.ts";
import type { PlatformAudit } from "./domain/platform/audit.ts";
import {
  platformAuditOperations,
  platformTenantsOperations,
  platformUsersOperations,
} from "./domain/platform/operations.ts";
import { orgRowWrites } from "./domain/platform/org-writes.ts";
import { openPlatformOrgs } from "./domain/platform/orgs.ts";
import { openPlatformUsers } from "./domain/platform/service.ts";
import {
  platformPolicies,
  policiesOperations,
  policyToolsOperations,
  tenantPolicies,
} from "./domain/policies/operations.ts";
import { openPolicies } from "./domain/policies/service.ts";
import { openSnapshots } from "./domain/policies/snapshots.ts";
import { platformRoles, rolesOperations, tenantRoles } from "./domain/roles/operations.ts";
import { openRoles, platformScope, type RoleChange, type RoleScope } from "./domain/roles/service.ts";
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
import type { Session, Store } from "./store/store.ts";

export interface Tenants {
  /** Whose session a token is, for authentication. */
  sessions: Pick<Sessions, "find"> & {
    looksLikeToken: typeof looksLikeToken;
    cookieOf: typeof cookieValue;
  };
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
  platformAudit: PlatformAudit;
}

/** How changes of roles and keys are told to the platform's audit; tenants' are none of its business. */
function recordsOf(audit: PlatformAudit) {
  return {
    role: (session: Session, { kind, by }: RoleScope, payload: RoleChange) =>
      kind === "platform"
        ? audit.record(session, { type: "platform.role.changed", by, payload: { ...payload } })
        : Promise.resolve(),
    async key(session: Session, { kind, by }: RoleScope, payload: KeyChange): Promise<void> {
      if (kind !== "platform") return;
      const types = { created: "created", deleted: "revoked", rotated: "revoked" } as const;
      const type =
        payload.change === "roles_replaced"
          ? "platform.role.changed"
          : (`platform.key.${types[payload.change]}` as const);
      await audit.record(session, { type, by, payload: { ...payload } });
    },
  };
}

/** Who may do what, put together: keys, roles, policies, and the gate that obeys them. */
export function openTenants(deps: TenantsDeps): Tenants {
  const { store, clock, ids, tenancy, keys, users, keyring, platformAudit } = deps;
  const snapshots = openSnapshots({ store, clock });
  const changed = snapshots.forget;
  const ofPlatform = recordsOf(platformAudit);
  const roles = openRoles({ store, clock, ids, changed, record: ofPlatform.role });
  const policies = openPolicies({ store, clock, ids, roles, changed });
  const manage = openKeyManagement({
    store,
    clock,
    keys,
    roles,
    tenancy,
    forgetEverywhere: deps.forgetKey,
    record: ofPlatform.key,
  });
  const platformUsers = openPlatformUsers({
    store,
    clock,
    ids,
    roles,
    audit: platformAudit,
    scope: platformScope(),
  });
  const tokens = openTokens({ keyring, now: clock.now, ttlMs: sessionMs });
  const limits = { attemptsMax: loginAttemptsMax, addressAttemptsMax: loginAddressAttemptsMax };
  const throttle = openThrottle({ clock, ...limits });
  const sessions = openSessions({ clock, tokens, throttle, users, keys, platformUsers });

  /** Tenants have to do with their own keys, and with the platform's only where a platform role says so. */
  function keyScope({ caller }: Call, platform: boolean): RoleScope {
    // The gate has asked for the platform action of whoever comes as the platform.
    if ((caller.kind === "platform" && caller.impersonates !== true) !== platform)
      throw new Fault("permission_denied", "Insufficient permissions");
    return platform ? platformScope(caller) : { orgId: caller.orgId, kind: "tenant" };
  }

  async function mayReadUsers({ caller }: Call): Promise<boolean> {
    return (
      caller.impersonates === true || (await snapshots.of(caller.orgId)).grants(caller.roles, "users:read")
    );
  }

  return {
    sessions: { find: sessions.find, looksLikeToken, cookieOf: cookieValue },
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
      ...platformUsersOperations(platformUsers),
      ...rolesOperations({ roles, keyCounts: keys.roleCounts }, platformRoles),
      ...policiesOperations(policies, roles, platformPolicies),
      ...platformTenantsOperations(openPlatformOrgs({ store, writes: orgRowWrites({ store, clock, ids }) })),
      ...platformAuditOperations(platformAudit),
    ],
  };
}
