import { arePasswordsOff } from "../domain/access/issuers/service.ts";
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
import { cookieValue, sessionsOperations } from "../domain/access/sessions/operations.ts";
import { openSessions } from "../domain/access/sessions/service.ts";
import { loginLimits, openThrottle } from "../domain/access/sessions/throttle.ts";
import { looksLikeToken, openTokens } from "../domain/access/sessions/tokens.ts";
import { usersOperations } from "../domain/access/users/operations.ts";
import { typesOf } from "../gate/subject.ts";
import type { AddressGuard } from "../kit/addresses.ts";
import { actsForPlatform } from "../kit/caller.ts";
import { insufficientPermissions } from "../kit/fault.ts";
import type { Call, Operation } from "../kit/operation.ts";
import type { IdentityPart } from "./identity.ts";
import { foldParts, type Host, type Part, type PartShape } from "./part.ts";
import type { AppRights } from "./rights.ts";
import { openSignInPart } from "./sign-in.ts";
import { openTenancyPart, type TenancyNeeds } from "./tenancy.ts";

export type AccessPart = ReturnType<typeof openAccess>;

export interface AccessNeeds extends Omit<TenancyNeeds, "people"> {
  identity: IdentityPart;
  rights: Pick<AppRights, "require" | "granted">;
  /** Which addresses providers may have. */
  guard: AddressGuard;
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
  if (actsForPlatform(caller) !== platform)
    throw insufficientPermissions(platform ? "a platform credential is required" : "name an org: X-Svc-Org");
  return platform ? platformScope(caller) : tenantScope({ caller });
}

/** Who may do what: keys, roles, policies, sessions and tenancy. */
export function openAccess(host: Host, needs: AccessNeeds) {
  const { store, clock, ids } = host;
  const { forgetEnvironment, forgetKey, pastDecisions, identity, rights } = needs;
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
  // The list of users says when each came last.
  const onSessions = (orgId: string) => {
    host.changes.ofOrg(orgId, "sessions");
    host.changes.ofOrg(orgId, "users");
  };
  const sessions = openSessions({
    ...{ store, clock, register, tokens, throttle, users, keys, platformUsers },
    links: identity.links,
    onBegun: onSessions,
    passwords: {
      areOff: arePasswordsOff,
      async recordBreakGlass(session, id, address) {
        const payload = { user_id: id, address };
        await platformAudit.record(session, {
          type: "platform.break_glass",
          by: { kind: "platform", id },
          payload,
        });
        host.log.warn("platform.break_glass", { user: id, address });
      },
    },
  });
  const signIn = openSignInPart(host, {
    ...{ identity, sessions, throttle, tokens, guard: needs.guard, onSessions },
  });
  const sessionManagement = openSessionManagement({
    ...{ store, clock, sessions },
    requireUser: users.get,
    record: (session, by, payload) =>
      platformAudit.record(session, { type: "platform.session.ended", by, payload }),
  });

  const own: Part = {
    operations: [
      ...rolesOperations({ roles, keyCounts: keys.roleCounts }, tenantRoles),
      ...policiesOperations(policies, roles, tenantPolicies),
      ...policyToolsOperations(policies),
      ...keysOperations({ manage, scopeOf: keyScope }),
      ...usersOperations(users, {
        requireRead: (call, id) => rights.require(call, "users:read", { type: "user", id }),
        throttle,
      }),
      ...sessionsOperations(sessions, rights.granted, signIn.signOutAt),
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
  };
  return {
    ...foldParts([own, signIn, tenancyPart]),
    reseal: signIn.reseal,
    isGoing: tenancyPart.isGoing,
    /** Whose session a token is, for authentication. */
    sessions: { find: sessions.find, looksLikeToken, cookieOf: cookieValue },
  } satisfies PartShape;
}
