import { isAction, roleGrants } from "./access/actions.ts";
import { type Gate, openGate, platformOrgId } from "./access/gate.ts";
import type { Bus } from "./bus/bus.ts";
import type { Keyring } from "./domain/keyring/service.ts";
import { openKeyManagement } from "./domain/keys/manage.ts";
import { keysOperations } from "./domain/keys/operations.ts";
import type { Keys } from "./domain/keys/service.ts";
import { policiesOperations, policyToolsOperations, tenantPolicies } from "./domain/policies/operations.ts";
import { openPolicies } from "./domain/policies/service.ts";
import { openSnapshots } from "./domain/policies/snapshots.ts";
import { rolesOperations, tenantRoles } from "./domain/roles/operations.ts";
import { openRoles, type RoleScope } from "./domain/roles/service.ts";
import { cookieValue, sessionsOperations } from "./domain/sessions/operations.ts";
import { openSessions, type Sessions } from "./domain/sessions/service.ts";
import { openThrottle } from "./domain/sessions/throttle.ts";
import { looksLikeToken, openTokens } from "./domain/sessions/tokens.ts";
import { openDeletion } from "./domain/tenancy/deletion.ts";
import { openEnvironments } from "./domain/tenancy/environments.ts";
import { environmentsOperations } from "./domain/tenancy/operations.ts";
import { orgsOperations, projectsOperations } from "./domain/tenancy/org-operations.ts";
import { openOrgs } from "./domain/tenancy/orgs.ts";
import type { Tenancy } from "./domain/tenancy/service.ts";
import { usersOperations } from "./domain/users/operations.ts";
import type { Users } from "./domain/users/service.ts";
import type { Clock } from "./kit/clock.ts";
import { Fault } from "./kit/fault.ts";
import type { Ids } from "./kit/ids.ts";
import { loginAddressAttemptsMax, loginAttemptsMax, sessionMs } from "./kit/limits.ts";
import type { Log } from "./kit/log.ts";
import type { LoopOptions } from "./kit/loop.ts";
import type { Call, Operation } from "./kit/operation.ts";
import type { Store } from "./store/store.ts";

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
  loops: readonly LoopOptions[];
}

export interface TenantsDeps {
  log: Log;
  bus: Bus;
  /** Nobody is handed work of this environment any more. */
  letGo: (environmentId: string) => void;
  store: Store;
  clock: Clock;
  ids: Ids;
  tenancy: Tenancy;
  keys: Keys;
  users: Users;
  keyring: Keyring;
  /** Resolves once no node believes any more what it knew of the key with this hash. */
  forgetKey: (hash: string) => Promise<void>;
}

/** Who may do what, put together: keys, roles, policies, and the gate that obeys them. */
export function openTenants(deps: TenantsDeps): Tenants {
  const { store, clock, ids, tenancy, keys, users, keyring } = deps;
  const snapshots = openSnapshots({ store, clock });
  const changed = snapshots.forget;
  const roles = openRoles({ store, clock, ids, changed });
  const policies = openPolicies({ store, clock, ids, roles, changed });
  const manage = openKeyManagement({ store, clock, keys, roles, tenancy, forgetEverywhere: deps.forgetKey });
  const { bus, log, forgetKey } = deps;
  const deletion = openDeletion({
    store,
    clock,
    onGone(environments) {
      tenancy.forget(environments);
      for (const { id } of environments) deps.letGo(id);
    },
    tell: (environments) => bus.hint("tenancy.deleted", JSON.stringify(environments)),
    onFrame: ({ subject, value }) => log.info("tenancy.frame", { subject, ...value }),
    forgetKeys: (hashes) => hashes.forEach(keys.forget),
    forgetEverywhere: forgetKey,
  });
  bus.onHint("tenancy.deleted", (payload) => deletion.heard(JSON.parse(new TextDecoder().decode(payload))));
  const environments = openEnvironments({
    store,
    clock,
    ids,
    keys,
    deletion,
    changed: (environment) => tenancy.forget([environment]),
    forgetEverywhere: forgetKey,
  });
  const orgs = openOrgs({ store, clock, ids, keys, deletion, changed: tenancy.forgetOrg });
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
      ...environmentsOperations(environments),
      ...projectsOperations(orgs),
      ...orgsOperations(orgs),
    ],
    loops: [{ name: "tenancy.follow", everyMs: 1_000, tick: deletion.followOnce }],
  };
}
