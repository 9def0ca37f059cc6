import { Type } from "@sinclair/typebox";
import { openExchange } from "../domain/access/issuers/exchange.ts";
import { originOf, signedOutPath } from "../domain/access/issuers/flow.ts";
import { openIdentities } from "../domain/access/issuers/identities.ts";
import { identitiesOperations, issuersOperations } from "../domain/access/issuers/operations.ts";
import { openProviders } from "../domain/access/issuers/provider.ts";
import { arePasswordsOff, openIssuers } from "../domain/access/issuers/service.ts";
import {
  openEnds,
  openIssuerSignIn,
  platformIssuers,
  tenantIssuers,
} from "../domain/access/issuers/sign-in.ts";
import { issuerSignInOperations } from "../domain/access/issuers/sign-in-operations.ts";
import { openKeyManagement } from "../domain/access/keys/manage.ts";
import { keysOperations } from "../domain/access/keys/operations.ts";
import {
  platformAuditOperations,
  platformTenantsOperations,
  platformUsersOperations,
} from "../domain/access/platform/operations.ts";
import { openPlatformOrgs } from "../domain/access/platform/service.ts";
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
  cookieOf,
  cookieValue,
  type SignOutAt,
  sessionsOperations,
  tokenOf,
} from "../domain/access/sessions/operations.ts";
import { openSessions, type Sessions } from "../domain/access/sessions/service.ts";
import { loginLimits, openThrottle, type Throttle } from "../domain/access/sessions/throttle.ts";
import { looksLikeToken, openTokens, type Tokens } from "../domain/access/sessions/tokens.ts";
import { openDeletion } from "../domain/access/tenancy/deletion.ts";
import { openEnvironments } from "../domain/access/tenancy/environments.ts";
import { environmentsOperations } from "../domain/access/tenancy/operations.ts";
import { orgsOperations, projectsOperations } from "../domain/access/tenancy/org-operations.ts";
import { openOrgs } from "../domain/access/tenancy/orgs.ts";
import { openPurge } from "../domain/access/tenancy/purge.ts";
import { usersOperations } from "../domain/access/users/operations.ts";
import { typesOf } from "../gate/subject.ts";
import type { AddressGuard } from "../kit/addresses.ts";
import { actsForPlatform } from "../kit/caller.ts";
import { insufficientPermissions } from "../kit/fault.ts";
import type { Call, Operation } from "../kit/operation.ts";
import { openOutwardCaller } from "../kit/outward-call.ts";
import type { IdentityPart, People } from "./identity.ts";
import { foldParts, type Host, type Part, type PartShape } from "./part.ts";
import type { AppRights } from "./rights.ts";

export interface SignInNeeds {
  identity: IdentityPart;
  sessions: Sessions;
  throttle: Throttle;
  tokens: Tokens;
  guard: AddressGuard;
  /** Called after a session of the org began or ended. */
  onSessions: (orgId: string) => void;
}

/** Sign-in by OpenID providers. */
function openSignInPart(host: Host, needs: SignInNeeds) {
  const { store, clock, ids, log, config } = host;
  const { identity, sessions, throttle, tokens, guard, onSessions } = needs;
  const { keyring, roles, platformAudit, tenancy, register, signedIn } = identity;
  const allowsHttp = config.oidcAllowHttp;
  const issuers = openIssuers({
    ...{ store, clock, ids, keyring, roles, allowsHttp },
    async record(session, { kind, by }, payload) {
      if (kind === "platform")
        await platformAudit.record(session, { type: "platform.issuer.changed", by, payload: { ...payload } });
    },
  });
  const call = openOutwardCaller({ clock, guard });
  const exchange = openExchange({
    ...{ clock, opened: issuers.opened },
    providers: openProviders({ clock, call, allowsHttp }),
  });
  const ends = openEnds({ ...{ clock, log, exchange, throttle, sessions }, onEnded: onSessions });
  const signIn = openIssuerSignIn({
    ...{ store, clock, ids, log, tenancy, roles, register, tokens },
    ...{ people: signedIn, ends, onBegun: onSessions },
  });
  const identities = openIdentities({
    ...{ store, register, sessions, onEnded: onSessions },
    record: (session, by, payload) =>
      platformAudit.record(session, { type: "platform.user.updated", by, payload }),
  });
  /** A provider that does not answer holds up no sign-out. */
  const signOutAt: SignOutAt = async (issuerId, here) => {
    const origin = originOf(here);
    if (origin === undefined) return undefined;
    return exchange.signOutUrl(issuerId, `${origin}${signedOutPath}`).catch((error) => {
      log.info("issuer.sign_out_failed", { issuer: issuerId, error });
      return undefined;
    });
  };
  return {
    signOutAt,
    operations: [
      ...issuersOperations(issuers, tenantIssuers),
      ...issuersOperations(issuers, platformIssuers),
      ...identitiesOperations(identities, tenantIssuers),
      ...identitiesOperations(identities, platformIssuers),
      ...issuerSignInOperations({
        ...{ issuers, exchange, signIn, ends, throttle, clock, ids },
        sessionOf: sessions.find,
        cookies: { write: cookieOf, read: tokenOf },
      }),
    ],
    /** Seals the secrets of clients again, in the transaction that rotates the master key. */
    reseal: issuers.reseal,
  } satisfies PartShape;
}

/** What a node tells the others of environments that it deleted. */
const DeletedEnvironments = Type.Array(
  Type.Object({
    id: Type.String(),
    orgId: Type.String(),
    projectId: Type.Union([Type.String(), Type.Null()]),
    name: Type.String(),
  }),
);

interface TenancyNeeds {
  people: People;
  /** The environment was deleted: nothing of it is handed out any more. */
  forgetEnvironment: (environmentId: string) => void;
  /** Resolves once no node accepts the key with this hash from its memory. */
  forgetKey: (hash: string) => Promise<void>;
}

/** Orgs, projects and environments: made, changed, and deleted with everything in them. */
function openTenancyPart(host: Host, needs: TenancyNeeds) {
  const { store, clock, ids, bus, frames } = host;
  const { tenancy, keys } = needs.people;
  const forgetEverywhere = needs.forgetKey;
  const deleted = bus.channel("tenancy.deleted", DeletedEnvironments);
  const deletion = openDeletion({
    ...{ store, clock, forgetEverywhere },
    onGone(environments) {
      tenancy.forget(environments);
      for (const { id } of environments) needs.forgetEnvironment(id);
    },
    publishHint: (environments) => deleted.publish([...environments]),
    onFrame: ({ environmentId, topic, payload }) => frames.publish(environmentId, topic, payload),
    forgetKeys: (hashes) => hashes.forEach(keys.forget),
  });
  deleted.listen(deletion.onDeletedElsewhere);
  const environments = openEnvironments({
    ...{ store, clock, ids, keys, deletion, forgetEverywhere },
    changed: (environment) => tenancy.forget([environment]),
  });
  const orgs = openOrgs({ store, clock, ids, keys, deletion, changed: tenancy.forgetOrg });
  const { duty } = openPurge({ store, clock, metrics: host.watch.metrics });
  return {
    orgs,
    isGoing: deletion.isGoing,
    operations: [
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
    ],
    duties: [duty],
  } satisfies PartShape;
}

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
