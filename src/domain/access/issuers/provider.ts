import type { JSONWebKeySet, JWTVerifyGetKey, JWTVerifyOptions } from "jose";
import type { Clock } from "../../../kit/clock.ts";
import { type Fault, tryAgain } from "../../../kit/fault.ts";
import { type CallOutward, readJson, TransportFailure } from "../../../kit/outward-call.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import {
  keysAgainMs,
  providerAnswerBytesMax,
  providerClockSeconds,
  providerFailedMs,
  providerKeptMs,
  providersKept,
  providerTimeoutMs,
} from "./limits.ts";
import { isTrustworthy, type ProviderClaims, refusedToken } from "./rules.ts";

/** Loaded by the first sign-in. */
const jose = () => import("jose");

/**
 * Algorithms with a private key, which only the provider has. `none` signs nothing; HS256 would take the
 * public key as a shared secret.
 */
const algorithms = [
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
  ...["ES256", "ES384", "ES512", "EdDSA", "Ed25519"],
];

/** What the discovery of a provider says. */
export interface Metadata {
  issuer: string;
  authorization: string;
  token: string;
  keys: string;
  userinfo: string | undefined;
  device: string | undefined;
  /** Where browsers sign out; undefined also for an address that is not to be trusted. */
  endSession: string | undefined;
  /** The client's secret goes into the body, as the provider takes no other way. */
  postsSecret: boolean;
}

export type Providers = ReturnType<typeof openProviders>;

export interface ProvidersDeps {
  clock: Pick<Clock, "now" | "elapsed">;
  call: CallOutward;
  /** Providers may be asked without TLS. */
  allowsHttp: boolean;
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** What cannot be asked is told without a word of what answered there. */
export const unanswered = (error: unknown): Fault => {
  if (!(error instanceof TransportFailure)) throw error;
  return tryAgain("unavailable", `the provider gives no usable answer: ${error.message}`, { cause: error });
};

function readMetadata(found: unknown, issuer: string, allowsHttp: boolean): Metadata {
  if (!isObject(found)) throw new TransportFailure("its discovery is no object");
  if (found.issuer !== issuer) throw new TransportFailure("its discovery is of another issuer");
  const at = (name: string): string => {
    const url = found[name];
    if (!isTrustworthy(url, allowsHttp))
      throw new TransportFailure(`its discovery has no ${name} that is an https URL`);
    return url;
  };
  const maybe = (name: string) => (found[name] === undefined ? undefined : at(name));
  const ways = found.token_endpoint_auth_methods_supported;
  return {
    issuer,
    authorization: at("authorization_endpoint"),
    token: at("token_endpoint"),
    keys: at("jwks_uri"),
    userinfo: maybe("userinfo_endpoint"),
    device: maybe("device_authorization_endpoint"),
    endSession: isTrustworthy(found.end_session_endpoint, allowsHttp)
      ? found.end_session_endpoint
      : undefined,
    postsSecret: Array.isArray(ways) && !ways.includes("client_secret_basic"),
  };
}

interface DiscoveryDeps extends Pick<ProvidersDeps, "clock" | "allowsHttp"> {
  ask: (url: string) => Promise<unknown>;
}

const providersCached = { keptMs: providerKeptMs, entriesMax: providersKept };

/** The discovery of an issuer. One that could not be had is not asked for again at once. */
function openDiscovery({ clock, ask, allowsHttp }: DiscoveryDeps) {
  const discover = async (issuer: string): Promise<Metadata> => {
    const found = await ask(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
    return readMetadata(found, issuer, allowsHttp);
  };
  const discovered = ttlCache<{ found: Metadata } | { failure: TransportFailure; until: number }>({
    ...{ clock, ...providersCached },
    read: (issuer) =>
      discover(issuer).then(
        (found) => ({ found }),
        (failure) => {
          if (!(failure instanceof TransportFailure)) throw failure;
          return { failure, until: clock.elapsed() + providerFailedMs };
        },
      ),
  });
  return async (issuer: string): Promise<Metadata> => {
    const known = discovered.peek(issuer);
    if (known && "failure" in known && known.until <= clock.elapsed()) discovered.forget(issuer);
    const now = (await discovered.get(issuer))!;
    if ("failure" in now) throw now.failure;
    return now.found;
  };
}

/** What providers answer: their discovery, keys and tokens, through the guard of all outward calls. */
export function openProviders({ clock, call, allowsHttp }: ProvidersDeps) {
  const ask = async (url: string, headers: Record<string, string> = {}): Promise<unknown> =>
    call(
      { url, headers: { Accept: "application/json", ...headers }, timeoutMs: providerTimeoutMs },
      async (response) => {
        if (response.status !== 200) {
          await response.body?.cancel();
          throw new TransportFailure(`it answers ${response.status}`);
        }
        return readJson(response, providerAnswerBytesMax);
      },
    );

  const metadata = openDiscovery({ clock, ask, allowsHttp });
  // Made ready once: strangers send tokens, and a set of 1 MiB takes milliseconds.
  const keys = ttlCache<{ keyOf: JWTVerifyGetKey; readAt: number }>({
    ...{ clock, ...providersCached },
    async read(url) {
      const readAt = clock.elapsed();
      const set = await ask(url);
      const { createLocalJWKSet } = await jose();
      try {
        return { keyOf: createLocalJWKSet(set as JSONWebKeySet), readAt };
      } catch {
        throw new TransportFailure("its keys are no set of keys");
      }
    },
  });

  /** The claims of a token that the provider has signed for this client; throws `unauthenticated`. */
  async function verify(
    { issuer, keys: url }: Metadata,
    token: unknown,
    options: Pick<JWTVerifyOptions, "audience" | "requiredClaims" | "maxTokenAge">,
  ): Promise<ProviderClaims> {
    if (typeof token !== "string") throw refusedToken("there is none");
    const { errors, jwtVerify } = await jose();
    const check = async ({ keyOf }: { keyOf: JWTVerifyGetKey }) =>
      (
        await jwtVerify(token, keyOf, {
          ...{ ...options, algorithms, issuer },
          ...{ currentDate: new Date(clock.now()), clockTolerance: providerClockSeconds },
        })
      ).payload;
    const known = (await keys.get(url))!;
    try {
      return await check(known).catch(async (error) => {
        // The provider may have a new key by now. A stranger's token must not make us ask for each.
        if (!(error instanceof errors.JWKSNoMatchingKey) || clock.elapsed() - known.readAt < keysAgainMs)
          throw error;
        keys.forget(url);
        return check((await keys.get(url))!);
      });
    } catch (error) {
      if (error instanceof errors.JOSEError) throw refusedToken(error.message);
      // Keys and claims of forms that the library does not expect.
      if (error instanceof TypeError || error instanceof DOMException)
        throw refusedToken("it cannot be read");
      throw error;
    }
  }

  return {
    ...{ metadata, verify },
    /** What is said of the person besides the token. */
    async userinfo(url: string, accessToken: string): Promise<ProviderClaims> {
      const found = await ask(url, { Authorization: `Bearer ${accessToken}` });
      return isObject(found) ? found : {};
    },
    /** Asks an endpoint that the client signs in to. `error` of a refusal is in the answer. */
    async post(
      { postsSecret }: Pick<Metadata, "postsSecret">,
      url: string,
      client: { id: string; secret: string },
      form: Record<string, string>,
    ): Promise<ProviderClaims> {
      const isBasic = client.secret !== "" && !postsSecret;
      const body = new URLSearchParams({
        ...form,
        client_id: client.id,
        ...(client.secret !== "" && postsSecret && { client_secret: client.secret }),
      });
      const spelt = (text: string) => new URLSearchParams({ "": text }).toString().slice(1);
      const pair = Buffer.from(`${spelt(client.id)}:${spelt(client.secret)}`).toString("base64");
      const found = await call(
        {
          ...{ url, body: body.toString(), contentType: "application/x-www-form-urlencoded" },
          headers: { Accept: "application/json", ...(isBasic && { Authorization: `Basic ${pair}` }) },
          timeoutMs: providerTimeoutMs,
        },
        async (response) => {
          const { status } = response;
          if (status === 200 || status === 400 || status === 401)
            return { status, answer: await readJson(response, providerAnswerBytesMax) };
          await response.body?.cancel();
          throw new TransportFailure(`it answers ${status}`);
        },
      );
      if (!isObject(found.answer)) throw new TransportFailure("its answer is no object");
      if (found.status !== 200 && found.answer.error === undefined)
        throw new TransportFailure(`it answers ${found.status}`);
      return found.answer;
    },
  };
}
