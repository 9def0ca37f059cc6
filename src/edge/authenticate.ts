import type { Instant } from "../kit/clock.ts";
import { Fault } from "../kit/fault.ts";
import type { Caller } from "../kit/operation.ts";
import type { Authenticate, Authenticated } from "./perform.ts";

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
  environments: {
    /** What the selector names, whoever may use it. */
    environmentMeant(selector: string, orgId: string): Promise<{ id: string }>;
    /** The id of what it names within the org; the default when nothing is selected. */
    resolveEnvironment(selector: string | undefined, orgId: string): Promise<string>;
  };
  /** Set when every caller is let in as this one (`--dev`). */
  everyone: Caller | undefined;
}

/** One value of the query; undefined when absent or empty. */
function queryValue(url: string, name: string): string | undefined {
  const mark = url.indexOf("?");
  if (mark < 0 || !url.includes(`${name}=`, mark)) return undefined;
  return new URLSearchParams(url.slice(mark + 1)).get(name) || undefined;
}

const bearer = /^bearer +(\S+) *$/i;

/** The key of the Authorization header, else of `?token=`; undefined when there is none. */
function keyTextOf(request: Request): string | undefined {
  const header = request.headers.get("authorization");
  if (header !== null) {
    const text = header.startsWith("Bearer ") ? header.slice(7).trim() : bearer.exec(header)?.[1];
    if (text) return text;
  }
  return queryValue(request.url, "token");
}

const selectorOf = (request: Request): string | undefined =>
  request.headers.get("x-svc-environment") || queryValue(request.url, "env");

/** Where credentials of the platform are admitted without an environment (design: rulings). */
const isForPlatform = (request: Request): boolean =>
  new URL(request.url).pathname.startsWith("/api/v1/capacity/");

const refused = (message: string) => new Fault("unauthenticated", message);

/** Who sends a request and into which environment (spec.md 'Validation order', 'Environment selection'). */
export function authenticator<Key extends Credential>(host: AuthenticateHost<Key>): Authenticate {
  const { clock, keys, environments, everyone } = host;
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

  const above = (key: Key): Promise<Authenticated> => {
    keys.used(key);
    return Promise.resolve({ caller: key.caller, environmentId: "" });
  };

  const admitted = (request: Request, key: Key): Promise<Authenticated> => {
    if (key.expiresAt !== undefined && key.expiresAt <= clock.now()) throw refused("API key expired");
    if (key.caller.kind === "platform" && isForPlatform(request)) return above(key);
    const own = key.environmentId;
    if (own === undefined) throw new Fault("permission_denied", "request has no environment scope");
    const selector = selectorOf(request);
    if (selector === undefined || selector === own) return inOwnEnvironment(key, own);
    return environments.environmentMeant(selector, key.caller.orgId).then((meant) => {
      if (meant.id === own) return inOwnEnvironment(key, own);
      throw new Fault("permission_denied", "environment does not match API key scope");
    });
  };

  const asEveryone = async (request: Request, caller: Caller): Promise<Authenticated> => ({
    caller,
    environmentId: await environments.resolveEnvironment(selectorOf(request), caller.orgId),
  });

  const looked = async (request: Request, asked: Promise<Key | undefined>): Promise<Authenticated> => {
    const key = await asked;
    if (!key) throw refused("Invalid API key");
    return admitted(request, key);
  };

  return (request) => {
    if (everyone) return asEveryone(request, everyone);
    const text = keyTextOf(request);
    if (text === undefined) return Promise.reject(refused("Authentication required"));
    const found = keys.find(text);
    if (found instanceof Promise) return looked(request, found);
    try {
      if (!found) throw refused("Invalid API key");
      return admitted(request, found);
    } catch (error) {
      return Promise.reject(error);
    }
  };
}
