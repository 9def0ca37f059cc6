import type { Instant } from "../../../kit/clock.ts";
import { Fault, missing } from "../../../kit/fault.ts";
import { openOrgLimit } from "../../../kit/holder-limit.ts";
import { TransportFailure } from "../../../kit/outward-call.ts";
import type { Basics } from "../../../store/store.ts";
import {
  deviceCodeCharsMax,
  deviceIntervalSeconds,
  exchangesMax,
  exchangesOfAllMax,
  logoutTokenSeconds,
} from "./limits.ts";
import { type Metadata, type Providers, unanswered } from "./provider.ts";
import type { Issuer } from "./rows.ts";
import {
  claimAt,
  errorWord,
  nameIn,
  type Person,
  type ProviderClaims,
  personOf,
  refusedToken,
} from "./rules.ts";

/** An issuer with its client's secret. */
export interface OpenedIssuer extends Issuer {
  clientSecret: string;
}

/** What a provider has proven: who the person is, and which of its sessions that is. */
export interface Proven {
  issuer: Issuer;
  person: Person;
  sid: string | undefined;
  /** Before it was asked. */
  askedAt: Instant;
}

/** What a logout token ends: a session of the provider, or all of a person's. */
export interface ProviderLogout {
  issuer: Issuer;
  /** Tells one logout token from another. */
  tokenId: string;
  sid: string | undefined;
  subject: string | undefined;
}

export type Exchange = ReturnType<typeof openExchange>;

export interface ExchangeDeps extends Basics<"clock"> {
  providers: Providers;
  opened: (issuerId: string) => Promise<OpenedIssuer | undefined>;
}

const deviceGrant = "urn:ietf:params:oauth:grant-type:device_code";
const logoutEvent = "http://schemas.openid.net/event/backchannel-logout";

const refusedBy = (answer: ProviderClaims): Fault =>
  new Fault("unauthenticated", `the provider refuses the sign-in: ${errorWord(answer.error)}`);

/** The person of an answer with tokens. */
async function proven(
  providers: Providers,
  issuer: OpenedIssuer,
  found: Metadata,
  answer: ProviderClaims,
  { nonce, askedAt }: { nonce?: string; askedAt: Instant },
): Promise<Proven> {
  const audience = issuer.clientId;
  const claims = await providers.verify(found, answer.id_token, {
    ...{ audience, requiredClaims: ["sub", "aud", "iat", "exp"] },
  });
  if (nonce !== undefined && claims.nonce !== nonce) throw refusedToken("its nonce is another one");
  const isShared = Array.isArray(claims.aud) && claims.aud.length > 1;
  if (claims.azp === undefined ? isShared : claims.azp !== audience)
    throw refusedToken("it was made for another client");
  const lacks = claims.email === undefined || claimAt(claims, issuer.rolesClaim) === undefined;
  const { access_token } = answer;
  let more: ProviderClaims = {};
  if (lacks && found.userinfo !== undefined && typeof access_token === "string") {
    more = await providers.userinfo(found.userinfo, access_token);
    if (more.sub !== claims.sub) throw refusedToken("the provider tells of another person");
  }
  return {
    issuer,
    person: personOf({ ...more, ...claims }, issuer.rolesClaim),
    sid: nameIn(claims.sid),
    askedAt,
  };
}

/** The provider's answer, as far as it is used: terminals show it. */
function deviceCodeOf(answer: ProviderClaims) {
  const { device_code, user_code, verification_uri, verification_uri_complete: whole } = answer;
  const isText = (given: unknown, charsMax: number): given is string =>
    typeof given === "string" && given.length <= charsMax && /^[\x20-\x7e]+$/.test(given);
  const isPage = (given: unknown): given is string => isText(given, 2_000) && /^https?:\/\/\S+$/.test(given);
  if (!isText(device_code, deviceCodeCharsMax) || !isText(user_code, 100) || !isPage(verification_uri))
    throw new TransportFailure("its device code has no form");
  return {
    ...{ device_code, user_code, verification_uri },
    ...(isPage(whole) && { verification_uri_complete: whole }),
    expires_in: Math.min(3_600, Math.max(1, Number(answer.expires_in) || 600)),
    interval: Math.min(60, Math.max(deviceIntervalSeconds, Number(answer.interval) || 0)),
  };
}

function logoutOf(issuer: Issuer, { events, nonce, jti, sid, sub }: ProviderClaims): ProviderLogout {
  const isLogout = typeof events === "object" && events !== null && Object.hasOwn(events, logoutEvent);
  if (!isLogout || nonce !== undefined) throw refusedToken("it is no logout token");
  const [session, subject, tokenId] = [nameIn(sid), nameIn(sub), nameIn(jti)];
  if (tokenId === undefined || (session ?? subject) === undefined)
    throw refusedToken("it names neither a session nor a person");
  return { issuer, tokenId, sid: session, subject };
}

/** Of an issuer that wants it, at a provider that can: OpenID Connect RP-Initiated Logout 1.0. */
function signOutOf({ clientId, endsAtProvider }: Issuer, { endSession }: Metadata, returnTo: string) {
  if (!endsAtProvider || endSession === undefined) return undefined;
  const url = new URL(endSession);
  url.searchParams.set("client_id", clientId);
  url.searchParams.set("post_logout_redirect_uri", returnTo);
  return url.href;
}

/** What is asked of providers for one sign-in. */
export function openExchange({ clock, providers, opened }: ExchangeDeps) {
  const underWay = openOrgLimit({
    ...{ most: exchangesMax, all: exchangesOfAllMax, what: "sign-ins", whose: "issuer" },
  });

  /** Asks the provider of an issuer that is enabled, or `ends` something; any other looks like none. */
  async function within<Answer>(
    issuerId: string,
    work: (issuer: OpenedIssuer, metadata: Metadata) => Promise<Answer>,
    { ends = false } = {},
  ): Promise<Answer> {
    const issuer = await opened(issuerId);
    if (!issuer?.isEnabled && !(issuer && ends)) throw missing("issuer", issuerId);
    const leave = underWay.acquire(issuer);
    try {
      return await work(issuer, await providers.metadata(issuer.issuer));
    } catch (error) {
      throw error instanceof TransportFailure ? unanswered(error) : error;
    } finally {
      leave();
    }
  }

  const post = (
    { clientId: id, clientSecret: secret }: OpenedIssuer,
    found: Metadata,
    url: string,
    form: Record<string, string>,
  ) => providers.post(found, url, { id, secret }, form);

  return {
    /** Where a browser goes to sign in. */
    authorizationUrl: (
      issuerId: string,
      asked: { redirectUri: string; state: string; nonce: string; challenge: string },
    ): Promise<string> =>
      within(issuerId, async ({ clientId, scopes }, { authorization }) => {
        const url = new URL(authorization);
        for (const [name, value] of Object.entries({
          ...{ response_type: "code", client_id: clientId, scope: scopes, redirect_uri: asked.redirectUri },
          ...{ state: asked.state, nonce: asked.nonce },
          ...{ code_challenge: asked.challenge, code_challenge_method: "S256" },
        }))
          url.searchParams.set(name, value);
        return url.href;
      }),

    byCode: (
      issuerId: string,
      {
        code,
        redirectUri,
        verifier,
        nonce,
      }: { code: string; redirectUri: string; verifier: string; nonce: string },
    ): Promise<Proven> =>
      within(issuerId, async (issuer, found) => {
        const askedAt = clock.now();
        const answer = await post(issuer, found, found.token, {
          ...{ grant_type: "authorization_code", code, redirect_uri: redirectUri, code_verifier: verifier },
        });
        if (answer.error !== undefined) throw refusedBy(answer);
        return proven(providers, issuer, found, answer, { nonce, askedAt });
      }),

    /** Where a browser signs out, to come back to `returnTo`; undefined for nowhere. */
    signOutUrl: (issuerId: string, returnTo: string): Promise<string | undefined> =>
      within(issuerId, async (issuer, found) => signOutOf(issuer, found, returnTo), { ends: true }),

    beginDevice: (issuerId: string) =>
      within(issuerId, async (issuer, found) => {
        if (found.device === undefined)
          throw new Fault("failed_precondition", "the provider knows no sign-in by a device code");
        const answer = await post(issuer, found, found.device, { scope: issuer.scopes });
        if (answer.error !== undefined) throw refusedBy(answer);
        return deviceCodeOf(answer);
      }),

    /** `aborted` with code `AUTHORIZATION_PENDING` while the person has not said yes. */
    byDevice: (issuerId: string, deviceCode: string): Promise<Proven> =>
      within(issuerId, async (issuer, found) => {
        const askedAt = clock.now();
        const answer = await post(issuer, found, found.token, {
          ...{ grant_type: deviceGrant, device_code: deviceCode },
        });
        if (answer.error === "authorization_pending" || answer.error === "slow_down")
          throw new Fault("aborted", "the sign-in is not confirmed yet", {
            ...{ code: "AUTHORIZATION_PENDING", headers: { "Retry-After": String(deviceIntervalSeconds) } },
          });
        if (answer.error !== undefined) throw refusedBy(answer);
        return proven(providers, issuer, found, answer, { askedAt });
      }),

    /** Of a logout token (OpenID Connect Back-Channel Logout 1.0, section 2.6); throws `invalid_argument`. */
    loggedOut: (issuerId: string, token: string): Promise<ProviderLogout> =>
      within(
        issuerId,
        async (issuer, found) => {
          return logoutOf(
            issuer,
            await providers.verify(found, token, {
              ...{ audience: issuer.clientId, requiredClaims: ["aud", "iat", "jti", "events"] },
              maxTokenAge: logoutTokenSeconds,
            }),
          );
        },
        { ends: true },
      ),
  };
}
