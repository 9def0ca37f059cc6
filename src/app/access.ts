import { type Action, impersonated, knownActions } from "../access/actions.ts";
import { type Gate, openGate, platformOrgId } from "../access/gate.ts";
import { ungranted } from "../access/gated-call.ts";
import { typesOf } from "../access/subject.ts";
import { openKeyManagement } from "../domain/access/keys/manage.ts";
import { keysOperations } from "../domain/access/keys/operations.ts";
import {
  platformAuditOperations,
  platformTenantsOperations,
  platformUsersOperations,
} from "../domain/access/platform/operations.ts";
import { openPlatformOrgs } from "../domain/access/platform/orgs.ts";
import {
  platformPolicies,
  policiesOperations,
  policyToolsOperations,
  tenantPolicies,
} from "../domain/access/policies/operations.ts";
import { openPolicies, type PastAsked, type PastDecision } from "../domain/access/policies/service.ts";
import { platformRoles, rolesOperations, tenantRoles } from "../domain/access/roles/operations.ts";
import { platformScope, tenantScope } from "../domain/access/roles/rules.ts";
import type { RoleScope } from "../domain/access/roles/service.ts";
import { openSessionManagement } from "../domain/access/sessions/manage.ts";
import { sessionManagementOperations } from "../domain/access/sessions/manage-operations.ts";
import {
  cookieValue,
  type GrantedActions,
  sessionsOperations,
} from "../domain/access/sessions/operations.ts";
import { openSessions, type Sessions } from "../domain/access/sessions/service.ts";
import { loginLimits, openThrottle } from "../domain/access/sessions/throttle.ts";
import { looksLikeToken, openTokens } from "../domain/access/sessions/tokens.ts";
import { usersOperations } from "../domain/access/users/operations.ts";
import { insufficientPermissions } from "../kit/fault.ts";
import type { Call, Operation } from "../kit/operation.ts";
import type { IdentityPart } from "./identity.ts";
import { foldParts, type Host, type Part } from "./part.ts";
import { openTenancyPart, type TenancyNeeds } from "./tenancy.ts";

export interface AccessPart extends Part {
  /** Whose session a token is, for authentication. */
  sessions: Pick<Sessions, "find"> & {
    looksLikeToken: typeof looksLikeToken;
    cookieOf: typeof cookieValue;
  };
  /**
   * Whether the caller's roles grant the action in the org that it acts in, and no deny policy keeps the
   * thing from it.
   */
  may(call: Call, action: Action, thing: { type: string; id: string }): Promise<boolean>;
  /** The same; throws why not. */
  require(call: Call, action: Action, thing: { type: string; id: string }): Promise<void>;
  /** Whether the caller runs the installation, or an org of it. */
  seesDetails(call: Call): Promise<boolean>;
  /** What every call passes before it is handled. */
  gate: Gate;
}

export interface AccessNeeds extends Omit<TenancyNeeds, "people"> {
  identity: IdentityPart;
  /** Every operation of the server; called once all parts are open. */
  registry: () => readonly Operation[];
  /** Audited calls of the org, newest first. */
  pastDecisions: (orgId: string, asked: PastAsked) => Promise<readonly PastDecision[]>;
}

/**
 * The scope of keys that a call works on: a tenant's own, or the platform's where the caller comes as the
 * platform.
 */
function keyScope({ caller }: Call, platform: boolean): RoleScope {
  // The gate has asked for the platform action of a caller that comes as the platform.
  if ((caller.kind === "platform" && caller.impersonates !== true) !== platform)
    throw insufficientPermissions(platform ? "a platform credential is required" : "name an org: X-Svc-Org");
  return platform ? platformScope(caller) : tenantScope({ caller });
}

/** Who may do what: keys, roles, policies, sessions, tenancy, and the gate that obeys them. */
export function openAccess(host: Host, needs: AccessNeeds): AccessPart {
  const { store, clock, ids } = host;
  const { forgetEnvironment, forgetKey, pastDecisions, identity } = needs;
  const { tenancy, keys, users, register, keyring, platformAudit, platformUsers, roles, snapshots } =
    identity;
  const policies = openPolicies({
    ...{ store, clock, ids, roles, pastDecisions },
    changed: snapshots.forget,
    resourceTypes: () => typesOf(needs.registry()),
  });
  const manage = openKeyManagement({
    ...{ store, clock, keys, roles, tenancy },
    forgetEverywhere: forgetKey,
    record: identity.recordKey,
  });
  const tenancyPart = openTenancyPart(host, { people: identity, forgetEnvironment, forgetKey });
  const { orgs } = tenancyPart;
  const tokens = openTokens({ keyring, now: clock.now });
  const throttle = openThrottle({ store, clock, ...loginLimits });
  const sessions = openSessions({
    ...{ store, clock, register, tokens, throttle, users, keys, platformUsers },
    links: identity.links,
    // The list of users says when each came last.
    onBegun(orgId) {
      host.changes.ofOrg(orgId, "sessions");
      host.changes.ofOrg(orgId, "users");
    },
  });
  const sessionManagement = openSessionManagement({
    ...{ store, clock, sessions },
    requireUser: users.get,
    record: (session, by, payload) =>
      platformAudit.record(session, { type: "platform.session.ended", by, payload }),
  });

  /**
   * For a second right that an operation needs; a caller that impersonates needed the right to do so already.
   */
  const grants = async ({ caller }: Call, action: Action): Promise<boolean> =>
    caller.impersonates === true || (await snapshots.of(caller.orgId)).grants(caller.roles, action);
  const refusalOf = async (call: Call, action: Action, { type, id }: { type: string; id: string }) => {
    if (!(await grants(call, action))) return ungranted(await snapshots.of(call.caller.orgId), call, action);
    const screen = await call.screen(action, type);
    return screen?.refusalOf([id]);
  };
  const may: AccessPart["may"] = async (...asked) => (await refusalOf(...asked)) === undefined;
  const require: AccessPart["require"] = async (...asked) => {
    const refused = await refusalOf(...asked);
    if (refused) throw refused;
  };
  const granted: GrantedActions = async ({ caller }) => {
    const isPlatform = caller.kind === "platform";
    const snapshot = await snapshots.of(isPlatform ? platformOrgId : caller.orgId);
    const own = knownActions.filter((action) => snapshot.grants(caller.roles, action));
    return caller.impersonates === true ? [...own, ...impersonated(own)] : own;
  };
  const requireReadUser = (call: Call, id: string) => require(call, "users:read", { type: "user", id });

  const own: Part = {
    operations: [
      ...rolesOperations({ roles, keyCounts: keys.roleCounts }, tenantRoles),
      ...policiesOperations(policies, roles, tenantPolicies),
      ...policyToolsOperations(policies),
      ...keysOperations({ manage, scopeOf: keyScope }),
      ...usersOperations(users, { requireRead: requireReadUser, throttle }),
      ...sessionsOperations(sessions, granted),
      ...sessionManagementOperations(sessionManagement),
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
    ],
    loops: [
      {
        name: "sessions.attempts",
        about: "Deletes counts of failed logins whose window is over.",
        everyMs: 60_000,
        tick: throttle.forgetOnce,
      },
    ],
    duties: [],
  };
  return {
    ...foldParts([own, tenancyPart]),
    sessions: { find: sessions.find, looksLikeToken, cookieOf: cookieValue },
    ...{ may, require },
    seesDetails: async (call) => call.caller.kind === "platform" || grants(call, "cluster:rotate-token"),
    gate: openGate({ snapshots, scopeOf: tenancy.findEnvironment, clock }),
  };
}
