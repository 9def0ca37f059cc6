import type { Action } from "./access/actions.ts";
import { type Gate, openGate } from "./access/gate.ts";
import { typesOf } from "./access/subject.ts";
import type { Bus } from "./bus/bus.ts";
import type { Keyring } from "./domain/access/keyring/service.ts";
import { type KeyChange, openKeyManagement } from "./domain/access/keys/manage.ts";
import { keysOperations } from "./domain/access/keys/operations.ts";
import { type Keys, keys as openKeys } from "./domain/access/keys/service.ts";
import type { PlatformAudit } from "./domain/access/platform/audit.ts";
import {
  platformAuditOperations,
  platformTenantsOperations,
  platformUsersOperations,
} from "./domain/access/platform/operations.ts";
import { openPlatformOrgs } from "./domain/access/platform/orgs.ts";
import { openPlatformUsers } from "./domain/access/platform/service.ts";
import {
  platformPolicies,
  policiesOperations,
  policyToolsOperations,
  tenantPolicies,
} from "./domain/access/policies/operations.ts";
import { openPolicies, type PastDecision } from "./domain/access/policies/service.ts";
import { openSnapshots } from "./domain/access/policies/snapshots.ts";
import { platformRoles, rolesOperations, tenantRoles } from "./domain/access/roles/operations.ts";
import { openRoles, platformScope, type RoleChange, type RoleScope } from "./domain/access/roles/service.ts";
import { cookieValue, sessionsOperations } from "./domain/access/sessions/operations.ts";
import {
  openSessionRegister,
  type SessionKind,
  type SessionRegister,
} from "./domain/access/sessions/register.ts";
import { openSessions, type Sessions } from "./domain/access/sessions/service.ts";
import { loginLimits, openThrottle } from "./domain/access/sessions/throttle.ts";
import { looksLikeToken, openTokens } from "./domain/access/sessions/tokens.ts";
import { openDeletion } from "./domain/access/tenancy/deletion.ts";
import { openEnvironments } from "./domain/access/tenancy/environments.ts";
import { environmentsOperations } from "./domain/access/tenancy/operations.ts";
import { orgsOperations, projectsOperations } from "./domain/access/tenancy/org-operations.ts";
import { openOrgs } from "./domain/access/tenancy/orgs.ts";
import type { Tenancy } from "./domain/access/tenancy/service.ts";
import { usersOperations } from "./domain/access/users/operations.ts";
import { users as openUsers, type Users } from "./domain/access/users/service.ts";
import type { Frames } from "./domain/realtime/pubsub/frames.ts";
import type { Clock } from "./kit/clock.ts";
import { Fault } from "./kit/fault.ts";
import type { Ids } from "./kit/ids.ts";
import { sessionMs } from "./kit/limits.ts";
import type { LoopOptions } from "./kit/loop.ts";
import type { Call, Operation } from "./kit/operation.ts";
import type { Session, Store } from "./store/store.ts";

export interface Tenants {
  /** Whose session a token is, for authentication. */
  sessions: Pick<Sessions, "find"> & {
    looksLikeToken: typeof looksLikeToken;
    cookieOf: typeof cookieValue;
  };
  /** Whether the caller's roles grant the action in the org that it acts in, and no deny policy keeps the thing from it. */
  may(call: Call, action: Action, thing: { type: string; id: string }): Promise<boolean>;
  /** All roles that users of an org may have. */
  rolesOf(
    reader: Pick<Store, "one" | "all">,
    orgId: string,
  ): Promise<readonly { id: string; name: string }[]>;
  /** Whether the platform has any user, which stays so until the transaction ends. */
  anyPlatformUser(session: Session): Promise<boolean>;
  /** Whether the caller runs the installation, or an org of it. */
  seesDetails(call: Call): Promise<boolean>;
  /** What every call passes before it is handled. */
  gate: Gate;
  operations: readonly Operation[];
  loops: readonly LoopOptions[];
}

export interface TenantsDeps {
  bus: Bus;
  frames: Frames;
  /** Nobody is handed work of this environment any more. */
  letGo: (environmentId: string) => void;
  store: Store;
  clock: Clock;
  ids: Ids;
  tenancy: Tenancy;
  keys: Keys;
  users: Users;
  register: SessionRegister;
  keyring: Keyring;
  /** Resolves once no node believes any more what it knew of the key with this hash. */
  forgetKey: (hash: string) => Promise<void>;
  platformAudit: PlatformAudit;
  /** All that the server offers, once it is put together. */
  registry: () => readonly Operation[];
  /** The org's last audited calls, newest first. */
  pastDecisions: (orgId: string, limit: number) => Promise<readonly PastDecision[]>;
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

/** Keys, users and their sessions: what the first boot needs already. */
export function openPeople(deps: {
  store: Store;
  clock: Clock;
  ids: Ids;
  tenancy: Tenancy;
  /** Of the tenants' part, which is put together later. */
  rolesOf: Tenants["rolesOf"];
}): { register: SessionRegister; keys: Keys; users: Users } {
  const register = openSessionRegister({ ...deps, ttlMs: sessionMs });
  const endSessions = (kind: SessionKind) => (session: Session, id: string) =>
    register.endOf(session, kind, id);
  return {
    register,
    keys: openKeys({ ...deps, endSessions: endSessions("desktop") }),
    users: openUsers({ ...deps, endSessions: endSessions("user") }),
  };
}

/** Who may do what, put together: keys, roles, policies, and the gate that obeys them. */
export function openTenants(deps: TenantsDeps): Tenants {
  const { store, clock, ids, tenancy, keys, users, register, keyring, platformAudit } = deps;
  const snapshots = openSnapshots({ store, clock });
  const changed = snapshots.forget;
  const ofPlatform = recordsOf(platformAudit);
  const carriers = ({ kind }: RoleScope) => ({
    user: kind === "platform" ? platformUsers : users,
    key: keys,
  });
  const roles = openRoles({ store, clock, ids, carriers, changed, record: ofPlatform.role });
  const { pastDecisions } = deps;
  const resourceTypes = () => typesOf(deps.registry());
  const policies = openPolicies({ store, clock, ids, roles, changed, pastDecisions, resourceTypes });
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
    endSessions: (session, id) => register.endOf(session, "platform", id),
  });
  const { bus, frames, forgetKey } = deps;
  const deletion = openDeletion({
    store,
    clock,
    onGone(environments) {
      tenancy.forget(environments);
      for (const { id } of environments) deps.letGo(id);
    },
    publishHint: (environments) => bus.hint("tenancy.deleted", JSON.stringify(environments)),
    onFrame: ({ environmentId, topic, payload }) => frames.publish(environmentId, topic, payload),
    forgetKeys: (hashes) => hashes.forEach(keys.forget),
    forgetEverywhere: forgetKey,
  });
  bus.onHint("tenancy.deleted", (payload) =>
    deletion.onDeletedElsewhere(JSON.parse(new TextDecoder().decode(payload))),
  );
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
  const tokens = openTokens({ keyring, now: clock.now });
  const throttle = openThrottle({ store, clock, ...loginLimits });
  const sessions = openSessions({ store, clock, register, tokens, throttle, users, keys, platformUsers });

  /** Tenants have to do with their own keys, and with the platform's only where a platform role says so. */
  function keyScope({ caller }: Call, platform: boolean): RoleScope {
    // The gate has asked for the platform action of whoever comes as the platform.
    if ((caller.kind === "platform" && caller.impersonates !== true) !== platform)
      throw new Fault("permission_denied", "Insufficient permissions");
    return platform ? platformScope(caller) : { orgId: caller.orgId, kind: "tenant" };
  }

  /** For a second right that an operation asks for; who impersonates was asked for the right to do so. */
  const grants = async ({ caller }: Call, action: Action): Promise<boolean> =>
    caller.impersonates === true || (await snapshots.of(caller.orgId)).grants(caller.roles, action);
  /** The same where deny policies count too. */
  const may: Tenants["may"] = async (call, action, { type, id }) => {
    if (!(await grants(call, action))) return false;
    const screen = await call.screen(action, type);
    return (await screen?.refusalOf([id])) === undefined;
  };
  const mayReadUser = (call: Call, id: string) => may(call, "users:read", { type: "user", id });

  return {
    sessions: { find: sessions.find, looksLikeToken, cookieOf: cookieValue },
    may,
    rolesOf: (reader, orgId) => roles.known(reader, { orgId, kind: "tenant" }),
    anyPlatformUser: platformUsers.anyHeld,
    seesDetails: async (call) => call.caller.kind === "platform" || grants(call, "cluster:rotate-token"),
    gate: openGate({ snapshots, scopeOf: tenancy.findEnvironment, clock }),
    operations: [
      ...rolesOperations({ roles, keyCounts: keys.roleCounts }, tenantRoles),
      ...policiesOperations(policies, roles, tenantPolicies),
      ...policyToolsOperations(policies),
      ...keysOperations({ manage, scopeOf: keyScope }),
      ...usersOperations(users, { mayRead: mayReadUser, throttle }),
      ...sessionsOperations(sessions),
      ...platformUsersOperations(platformUsers),
      ...rolesOperations({ roles, keyCounts: keys.roleCounts }, platformRoles),
      ...policiesOperations(policies, roles, platformPolicies),
      ...platformTenantsOperations(
        openPlatformOrgs({
          store,
          writes: { create: orgs.create, remove: (id) => orgs.remove(id, id) },
        }),
      ),
      ...platformAuditOperations(platformAudit),
      ...environmentsOperations(environments),
      ...projectsOperations(orgs),
      ...orgsOperations(orgs),
    ],
    loops: [
      {
        name: "tenancy.follow",
        about: "Takes notice of environments that other nodes deleted.",
        everyMs: 1_000,
        tick: deletion.followOnce,
      },
      {
        name: "sessions.attempts",
        about: "Deletes counts of failed logins whose window is over.",
        everyMs: 60_000,
        tick: throttle.forgetOnce,
      },
    ],
  };
}
