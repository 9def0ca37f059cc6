import { platformOrgId } from "../gate/gate.ts";
import { type Caller, namedEnvironment } from "../kit/caller.ts";
import type { Instant } from "../kit/clock.ts";
import { Fault, missing } from "../kit/fault.ts";
import { type Authenticate, type Authenticated, RefusedCaller } from "./call.ts";
import { credentialOf, queryValue, requireOwnPage } from "./credential.ts";

/** Workers of some generations always send the header, and name `default` unless SVC_ENV says another one. */
const otherEnvironment =
  "environment does not match API key scope: leave X-Svc-Environment away, or set it (SVC_ENV) to the name of the key's environment";

/** A key that was found, whatever keeps it. */
export interface Credential {
  readonly caller: Caller;
  readonly environmentId: string | undefined;
  readonly expiresAt: Instant | undefined;
}

export interface AuthenticateHost<Key extends Credential> {
  clock: { now(): Instant };
  keys: {
    find(text: string): Key | undefined | Promise<Key | undefined>;
    used(key: Key): void;
  };
  /** Dashboard and platform sessions; tokens look like no key. */
  sessions?: {
    looksLikeToken(text: string): boolean;
    cookieOf(header: string | null): string | undefined;
    find(token: string): Credential | undefined | Promise<Credential | undefined>;
  };
  environments: {
    /** What the selector names, without a check of rights; of any org where the org is empty. */
    environmentMeant(selector: string, orgId: string): Promise<{ id: string }>;
    /** The id of what it names within the org; the default when nothing is selected. */
    resolveEnvironment(selector: string | undefined, orgId: string): Promise<string>;
    /**
     * The same, and where nothing is selected and the default is not the org's, its oldest, or empty when it
     * has none.
     */
    homeEnvironment(selector: string | undefined, orgId: string): Promise<string>;
    orgExists(orgId: string): Promise<boolean>;
  };
  /** Set when every caller is let in as this one (`--dev`). */
  everyone: Caller | undefined;
}

const selectorOf = (request: Request): string | undefined =>
  namedEnvironment(request.headers.get("x-svc-environment")) ??
  namedEnvironment(queryValue(request.url, "env"));

/** A browser says in the query of a socket what it cannot say in a header. */
const orgNamedBy = ({ url, headers }: Request): string | undefined =>
  headers.get("x-svc-org") ?? (headers.has("upgrade") ? queryValue(url, "org") : undefined);

const refused = (message: string) => new Fault("unauthenticated", message);

/** Finds the caller of a request and its environment. */
export function authenticator<Key extends Credential>(host: AuthenticateHost<Key>): Authenticate {
  const { clock, keys, sessions, environments, everyone } = host;
  // One answer for all requests of a key, for as long as the key is remembered.
  const answers = new WeakMap<Key, Promise<Authenticated>>();

  const inOwnEnvironment = (key: Key, environmentId: string): Promise<Authenticated> => {
    keys.used(key);
    const known = answers.get(key);
    if (known) return known;
    const answer = Promise.resolve({ caller: key.caller, environmentId });
    answers.set(key, answer);
    return answer;
  };

  const admitted = (request: Request, key: Key): Promise<Authenticated> => {
    if (key.expiresAt !== undefined && key.expiresAt <= clock.now()) throw refused("API key expired");
    if (key.caller.kind === "platform") {
      keys.used(key);
      return ofPlatform(request, key.caller);
    }
    const own = key.environmentId;
    if (own === undefined) throw new RefusedCaller(key.caller, "request has no environment scope");
    const selector = selectorOf(request);
    if (selector === undefined || selector === own) return inOwnEnvironment(key, own);
    return environments.environmentMeant(selector, key.caller.orgId).then((meant) => {
      if (meant.id === own) return inOwnEnvironment(key, own);
      throw new RefusedCaller(key.caller, otherEnvironment);
    });
  };

  const asEveryone = async (request: Request, caller: Caller): Promise<Authenticated> => ({
    caller,
    environmentId: await environments.resolveEnvironment(selectorOf(request), caller.orgId),
  });

  /** For itself, or in the tenant's org that it names. */
  const ofPlatform = async (request: Request, caller: Caller): Promise<Authenticated> => {
    const orgId = orgNamedBy(request);
    const { pathname } = new URL(request.url);
    if (!orgId || pathname.startsWith("/api/v1/platform/")) {
      // The one thing in environments that it may do without naming their org.
      const selector = pathname.startsWith("/api/v1/debounce/") ? selectorOf(request) : undefined;
      const meant = selector === undefined ? undefined : await environments.environmentMeant(selector, "");
      return { caller, environmentId: meant?.id ?? "" };
    }
    // As a tenant's, the platform's own roles and keys would be open to callers who may only impersonate.
    if (orgId === platformOrgId || !(await environments.orgExists(orgId))) throw missing("org", orgId);
    return {
      caller: { ...caller, orgId, impersonates: true },
      environmentId: await environments.homeEnvironment(selectorOf(request), orgId),
    };
  };

  const ofSession = async (request: Request, token: string): Promise<Authenticated> => {
    const who = await ofKnownSession(request, token);
    return { ...who, session: token };
  };

  const ofKnownSession = async (request: Request, token: string): Promise<Authenticated> => {
    const session = await sessions?.find(token);
    if (!session || (session.expiresAt !== undefined && session.expiresAt <= clock.now()))
      throw refused("Authentication required");
    const { caller, environmentId: own } = session;
    if (caller.kind === "platform") return ofPlatform(request, caller);
    const selector = selectorOf(request);
    if (own !== undefined) {
      const meant =
        selector === undefined ? own : (await environments.environmentMeant(selector, caller.orgId)).id;
      if (meant === own) return { caller, environmentId: own };
      throw new RefusedCaller(caller, otherEnvironment);
    }
    return { caller, environmentId: await environments.homeEnvironment(selector, caller.orgId) };
  };

  const looked = async (request: Request, asked: Promise<Key | undefined>): Promise<Authenticated> => {
    const key = await asked;
    if (!key) throw refused("Invalid API key");
    return admitted(request, key);
  };

  return (request, operation) => {
    if (everyone) return asEveryone(request, everyone);
    const { source, text } = credentialOf(request, sessions?.cookieOf);
    try {
      if (source === "none") throw refused("Authentication required");
      if (source === "cookie") {
        requireOwnPage(request, operation);
        return ofSession(request, text);
      }
      if (sessions?.looksLikeToken(text)) return ofSession(request, text);
      const found = keys.find(text);
      if (found instanceof Promise) return looked(request, found);
      if (!found) throw refused("Invalid API key");
      return admitted(request, found);
    } catch (error) {
      return Promise.reject(error);
    }
  };
}
