import { hash } from "node:crypto";
import { platformOrgId } from "../../../gate/gate.ts";
import type { Caller } from "../../../kit/caller.ts";
import type { Instant } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import type { Basics, Session } from "../../../store/store.ts";
import { platformScope, type RoleScope, type ScopedRoutes, tenantScope } from "../roles/rules.ts";
import type { Roles } from "../roles/service.ts";
import type { LoginOrigin, SessionRegister } from "../sessions/register.ts";
import type { Sessions } from "../sessions/service.ts";
import type { Throttle } from "../sessions/throttle.ts";
import type { Tokens } from "../sessions/tokens.ts";
import type { Tenancy } from "../tenancy/service.ts";
import type { SignedInUsers } from "../users/service.ts";
import type { Exchange, Proven } from "./exchange.ts";
import { flowMs } from "./limits.ts";
import type { Issuer } from "./rows.ts";
import * as rows from "./rows.ts";
import { rolesFor } from "./rules.ts";

export type Ends = ReturnType<typeof openEnds>;

export interface EndsDeps extends Basics<"clock" | "log"> {
  exchange: Pick<Exchange, "loggedOut">;
  throttle: Pick<Throttle, "once" | "onceIn" | "latestIn">;
  sessions: Pick<Sessions, "endOfIssuer">;
  /** Called after sessions of the org ended. */
  onEnded: (orgId: string) => void;
}

/** What happens once, and what ends early. */
export function openEnds({ clock, log, exchange, throttle, sessions, onEnded }: EndsDeps) {
  const hashOf = (name: string) => hash("sha256", `oidc ${name}`, "hex");
  const noted = (session: Session, issuerId: string, times: Record<string, Instant>) =>
    throttle.latestIn(
      session,
      new Map(Object.entries(times).map(([name, at]) => [hashOf(`ended ${issuerId} ${name}`), at])),
      flowMs,
    );
  return {
    /**
     * In the transaction that begins a session: throws where a logout of the provider came while the sign-in
     * was under way. One that comes now waits for the commit, and ends the session.
     */
    async requireGoesOn(session: Session, { issuer, person, sid, askedAt }: Proven): Promise<void> {
      const { subject } = person;
      const own = sid === undefined ? `nameless ${subject}` : `session ${sid}`;
      if ((await noted(session, issuer.id, { [`person ${subject}`]: 0, [own]: 0 })) >= askedAt)
        throw new Fault("unauthenticated", "the provider ended its session meanwhile: sign in again");
    },

    /** Whether nothing came by this name within ten minutes, on any node. */
    once: (name: string) => throttle.once(hashOf(name), flowMs),

    /**
     * Ends the sessions that a logout token names; `invalid_argument` for any other token. A token that could
     * not be followed may come again.
     */
    async byProvider(issuerId: string, token: string): Promise<void> {
      const { issuer, tokenId, sid, subject } = await exchange.loggedOut(issuerId, token).catch((error) => {
        if (!(error instanceof Fault) || error.kind !== "unauthenticated") throw error;
        throw new Fault("invalid_argument", error.message, { field: "logout_token" });
      });
      const { orgId, issuer: url } = issuer;
      const ended = await sessions.endOfIssuer(issuerId, async (session) => {
        if (!(await throttle.onceIn(session, hashOf(`logout ${issuerId} ${tokenId}`), flowMs)))
          return undefined;
        // A session of the provider never comes back; a person does.
        await noted(session, issuerId, {
          ...(sid !== undefined && { [`session ${sid}`]: Number.MAX_SAFE_INTEGER }),
          ...(subject !== undefined && {
            [`${sid === undefined ? "person" : "nameless"} ${subject}`]: clock.now(),
          }),
        });
        return {
          sid,
          subjectId: subject && (await rows.userOf(session, { orgId, issuer: url, subject })),
        };
      });
      if (ended === undefined)
        throw new Fault("invalid_argument", "logout_token: was used before", { field: "logout_token" });
      if (ended > 0) onEnded(orgId);
      log.info("issuer.logged_out", { issuer: issuerId, ended });
    },
  };
}

/** Whose roles an issuer gives. */
const scopeOfIssuer = ({ orgId }: { orgId: string }): RoleScope =>
  orgId === platformOrgId ? platformScope() : { orgId, kind: "tenant" };

export const tenantIssuers: ScopedRoutes = {
  name: "issuers",
  path: "/api/v1/issuers",
  read: "users:read",
  manage: "users:manage",
  scopeOf: tenantScope,
};

export const platformIssuers: ScopedRoutes = {
  name: "platform.issuers",
  path: "/api/v1/platform/issuers",
  read: "platform:users:read",
  manage: "platform:users:manage",
  scopeOf: ({ caller }) => platformScope(caller),
};

export interface SignedIn {
  token: string;
  /** Who it is from now on. */
  caller: Caller;
}

export type IssuerSignIn = ReturnType<typeof openIssuerSignIn>;

export interface IssuerSignInDeps extends Basics<"store" | "clock" | "ids" | "log"> {
  tenancy: Pick<Tenancy, "shareOrg">;
  roles: Pick<Roles, "known">;
  register: Pick<SessionRegister, "add">;
  tokens: Pick<Tokens, "sign">;
  people: { tenant: SignedInUsers; platform: SignedInUsers };
  ends: Pick<Ends, "requireGoesOn">;
  /** Called after the commit of a session of the org. */
  onBegun: (orgId: string) => void;
}

const identityOf = ({ issuer, person }: Proven): rows.NamedPerson => ({
  ...{ orgId: issuer.orgId, issuer: issuer.issuer, subject: person.subject },
});

const noRole = (): Fault =>
  new Fault("permission_denied", "no role is mapped to this person here: ask an admin of the org", {
    code: "NO_ROLE",
  });

/** Makes users and sessions of what providers have proven. */
export function openIssuerSignIn(deps: IssuerSignInDeps) {
  const { store, clock, ids, log, tenancy, roles, register, tokens, people, ends, onBegun } = deps;

  /**
   * The issuer as it is now, with the org held: whoever changes or deletes it waits, or has ended before. The
   * platform's org is held alone, as its admins are counted.
   */
  async function holdIssuer(session: Session, { id, orgId }: Issuer): Promise<Issuer> {
    if (orgId === platformOrgId) await rows.holdOrg(session, orgId);
    else await tenancy.shareOrg(session, orgId);
    const issuer = await rows.issuerById(session, id);
    if (!issuer?.isEnabled) throw missing("issuer", id);
    return issuer;
  }

  /** The user of the person, locked; a new one at the first sign-in, never one that has the same email. */
  async function enter(session: Session, proven: Proven) {
    const { issuer, person } = proven;
    const { kind } = scopeOfIssuer(issuer);
    const identity = identityOf(proven);
    const at = clock.now();
    const known = await rows.userOf(session, identity);
    const account = known && (await people[kind].enter(session, issuer.orgId, known));
    if (account) return { id: known, ...account, isNew: false };
    // The user was deleted by a node of an older version, which knows no identities.
    if (known !== undefined) await rows.dropIdentity(session, identity);
    const own = ids.next(kind === "platform" ? "puser" : "usr");
    const id = await rows.claimIdentity(session, identity, { userId: own, at });
    if (id === own) {
      const { email, isUnverified, name } = person;
      if (email === undefined || isUnverified)
        throw new Fault("permission_denied", "the provider tells no verified email of this person");
      await people[kind].make(session, issuer.orgId, { id, email, name });
    }
    const made = await people[kind].enter(session, issuer.orgId, id);
    if (!made) throw missing("user", id);
    return { id, ...made, isNew: id === own };
  }

  return {
    /**
     * A session of the person, with the roles that the mapping gives now. Who gets none is refused: a user
     * who is there already loses the roles all the same, and nobody new is made.
     */
    async begin(proven: Proven, from: LoginOrigin): Promise<SignedIn> {
      const { person, sid } = proven;
      const done = await store.write(async (session) => {
        const issuer = await holdIssuer(session, proven.issuer);
        const { kind, ...scope } = scopeOfIssuer(issuer);
        const known = new Set((await roles.known(session, { ...scope, kind })).map(({ id }) => id));
        const mapped = rolesFor(issuer.roles, person.values, known);
        const isMapped = issuer.roles.length > 0;
        const isKnown = (await rows.userOf(session, identityOf({ ...proven, issuer }))) !== undefined;
        if (mapped.length === 0 && !isKnown) throw noRole();
        const user = await enter(session, { ...proven, issuer });
        if (mapped.length === 0 && user.isNew) throw noRole();
        // Without a mapping the users keep the roles that admins gave them.
        if (isMapped) await people[kind].setRoles(session, issuer.orgId, user.id, mapped);
        if (mapped.length === 0 && isMapped) return undefined;
        await ends.requireGoesOn(session, proven);
        const made = await register.add(session, {
          ...{ kind: kind === "platform" ? "platform" : "user", subjectId: user.id, orgId: issuer.orgId },
          ...{ after: user.tokensAfter, from, by: { issuerId: issuer.id, sid } },
        });
        return { made, user, mapped };
      });
      const { id: issuerId, orgId } = proven.issuer;
      onBegun(orgId);
      if (!done) throw noRole();
      const { made, user, mapped } = done;
      if (user.isNew) log.info("issuer.first_sign_in", { issuer: issuerId, org: orgId, user: user.id });
      const kind = made.kind === "platform" ? "platform" : "user";
      const caller: Caller = { kind, id: user.id, orgId, roles: mapped, email: user.email };
      return { token: (await tokens.sign(made)).token, caller };
    },

    /** Joins the person to the user who is signed in: the one way to one who was there before. */
    async link(proven: Proven, caller: Caller): Promise<void> {
      const { issuer } = proven;
      if (caller.orgId !== issuer.orgId) throw missing("issuer", issuer.id);
      await store.write(async (session) => {
        const held = await holdIssuer(session, issuer);
        const { kind } = scopeOfIssuer(held);
        if (!(await people[kind].enter(session, caller.orgId, caller.id))) throw missing("user", caller.id);
        const at = clock.now();
        const owner = await rows.claimIdentity(session, identityOf({ ...proven, issuer: held }), {
          ...{ userId: caller.id, at },
        });
        if (owner !== caller.id)
          throw new Fault("already_exists", "this person of the provider signs in as another user");
      });
    },
  };
}
