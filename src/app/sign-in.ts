import { openEnds } from "../domain/access/issuers/ends.ts";
import { openExchange } from "../domain/access/issuers/exchange.ts";
import { openIdentities } from "../domain/access/issuers/identities.ts";
import { identitiesOperations } from "../domain/access/issuers/identity-operations.ts";
import { issuersOperations } from "../domain/access/issuers/operations.ts";
import { originOf, signedOutPath } from "../domain/access/issuers/paths.ts";
import { openProviders } from "../domain/access/issuers/provider.ts";
import { platformIssuers, tenantIssuers } from "../domain/access/issuers/scopes.ts";
import { openIssuers } from "../domain/access/issuers/service.ts";
import { openIssuerSignIn } from "../domain/access/issuers/sign-in.ts";
import { issuerSignInOperations } from "../domain/access/issuers/sign-in-operations.ts";
import { cookieOf, type SignOutAt, tokenOf } from "../domain/access/sessions/operations.ts";
import type { Sessions } from "../domain/access/sessions/service.ts";
import type { Throttle } from "../domain/access/sessions/throttle.ts";
import type { Tokens } from "../domain/access/sessions/tokens.ts";
import type { AddressGuard } from "../kit/addresses.ts";
import { openOutwardCaller } from "../kit/outward-call.ts";
import type { IdentityPart } from "./identity.ts";
import type { Host, PartShape } from "./part.ts";

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
export function openSignInPart(host: Host, needs: SignInNeeds) {
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
