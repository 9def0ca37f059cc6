import { Fault, invalid } from "../../../kit/fault.ts";
import { issuerUrlBytesMax, providerTextBytesMax } from "../../../kit/limits.ts";
import {
  claimValuesMax,
  clientIdCharsMax,
  clientSecretCharsMax,
  issuerNameCharsMax,
  returnToCharsMax,
  scopesCharsMax,
} from "./limits.ts";
import type { RoleMapping } from "./rows.ts";

export const scopesDefault = "openid email profile";
export const rolesClaimDefault = "groups";
/** The value of a mapping that means everyone who signs in. */
export const everyone = "*";

const isLoopback = (hostname: string): boolean =>
  hostname === "localhost" || hostname === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(hostname);

/** Whether tokens and secrets may go there: over TLS, or within this machine, or by a setting. */
export function isTrustworthy(text: unknown, allowsHttp: boolean): text is string {
  if (typeof text !== "string" || text.length > 2_000 || !URL.canParse(text)) return false;
  const { protocol, hostname, username, password } = new URL(text);
  if (username !== "" || password !== "") return false;
  return protocol === "https:" || (protocol === "http:" && (allowsHttp || isLoopback(hostname)));
}

/** As the provider spells it: `iss` is compared letter by letter. */
export function readIssuerUrl(given: string, allowsHttp: boolean): string {
  const text = given.trim();
  if (!/^[\x21-\x7e]+$/.test(text) || text.length > issuerUrlBytesMax)
    throw invalid("issuer", `must be an https URL of at most ${issuerUrlBytesMax} characters`);
  if (!isTrustworthy(text, allowsHttp))
    throw invalid("issuer", "must be an https URL without credentials; http only of this machine");
  if (/[?#]/.test(text)) throw invalid("issuer", "must not have a query or a fragment");
  return text;
}

export function readLabel(given: string): string {
  const text = given.trim();
  if (text === "" || text.length > issuerNameCharsMax)
    throw invalid("name", `must be 1 to ${issuerNameCharsMax} characters`);
  if (/\p{C}/u.test(text)) throw invalid("name", "must not contain control characters");
  return text;
}

const isVisible = (text: string, charsMax: number): boolean =>
  text.length <= charsMax && /^[\x20-\x7e]*$/.test(text);

export function readClientId(given: string): string {
  const text = given.trim();
  if (text === "" || !isVisible(text, clientIdCharsMax))
    throw invalid("client_id", `must be 1 to ${clientIdCharsMax} printable characters`);
  return text;
}

export function readClientSecret(text: string): string {
  if (!isVisible(text, clientSecretCharsMax))
    throw invalid("client_secret", `must be at most ${clientSecretCharsMax} printable characters`);
  return text;
}

export function readScopes(given: string): string {
  const scopes = [...new Set(given.split(/ +/).filter((one) => one !== ""))];
  const text = scopes.join(" ");
  if (text.length > scopesCharsMax || !scopes.every((one) => /^[\x21\x23-\x5b\x5d-\x7e]+$/.test(one)))
    throw invalid("scopes", `must be names apart by spaces, at most ${scopesCharsMax} characters`);
  if (!scopes.includes("openid")) throw invalid("scopes", "must include openid");
  return text;
}

export function readRolesClaim(given: string): string {
  const text = given.trim();
  if (text === "" || !isVisible(text, providerTextBytesMax))
    throw invalid("roles_claim", `must be 1 to ${providerTextBytesMax} printable characters`);
  return text;
}

/** The mapping with ids of roles, which callers name by id or by name. */
export function readMapping(
  given: readonly { value: string; role: string }[],
  known: readonly { id: string; name: string }[],
): RoleMapping[] {
  return given.map(({ value, role }, at) => {
    if (nameIn(value) === undefined)
      throw invalid(`roles[${at}].value`, `must be 1 to ${providerTextBytesMax} bytes of text`);
    const found = known.find(({ id, name }) => id === role || name === role);
    if (!found) throw invalid(`roles[${at}].role`, `role ${role.slice(0, 80)} not found`);
    return { value, roleId: found.id };
  });
}

/** What a provider says of a person, in one value. */
export type ProviderClaims = Readonly<Record<string, unknown>>;

export interface Person {
  subject: string;
  /** Undefined when the provider says none, or something else than a text. */
  email: string | undefined;
  /** The provider says something else than that it has made sure of the address. */
  isUnverified: boolean;
  name: string;
  /** Of the claim with roles. */
  values: readonly string[];
}

/** The claim of this name, else the one that a path such as `realm_access.roles` leads to. */
export function claimAt(claims: ProviderClaims, path: string): unknown {
  if (Object.hasOwn(claims, path)) return claims[path];
  let at: unknown = claims;
  for (const step of path.split(".")) {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, step)) return undefined;
    at = (at as Record<string, unknown>)[step];
  }
  return at;
}

const isText = (value: unknown): value is string => typeof value === "string";

/** What a provider names something by, if it can be stored and compared; else undefined. */
export const nameIn = (value: unknown): string | undefined =>
  isText(value) &&
  value !== "" &&
  Buffer.byteLength(value) <= providerTextBytesMax &&
  !/[\p{Cc}\p{Cs}]/u.test(value)
    ? value
    : undefined;

/** A claim of another type counts as missing. */
export function personOf(claims: ProviderClaims, rolesClaim: string): Person {
  const { sub, email, email_verified, name } = claims;
  const subject = nameIn(sub);
  if (subject === undefined) throw refusedToken("it names no person");
  const roles = claimAt(claims, rolesClaim);
  const values = (Array.isArray(roles) ? roles : [roles]).slice(0, claimValuesMax).filter(isText);
  return {
    subject,
    email: isText(email) && email !== "" ? email : undefined,
    isUnverified: ![undefined, null, true, "true"].some((one) => one === email_verified),
    name: isText(name)
      ? name
          .replace(/[\p{Cc}\p{Cs}]/gu, "")
          .trim()
          .slice(0, issuerNameCharsMax)
      : "",
    values,
  };
}

/** Ids of the roles that a person gets, of those that there are. */
export function rolesFor(
  mapping: readonly RoleMapping[],
  values: readonly string[],
  known: ReadonlySet<string>,
): string[] {
  const said = new Set(values);
  const meant = mapping.filter(({ value }) => value === everyone || said.has(value));
  return [...new Set(meant.map(({ roleId }) => roleId))].filter((id) => known.has(id));
}

/** A place of our own to go to after the sign-in: a path, so that no one is led to another site. */
export function readReturnTo(given: string | undefined): string {
  const home = "/dashboard/";
  if (given === undefined || given === "") return home;
  const isPath = given.startsWith("/") && !/^\/[/\\]|[\\\p{Cc}]/u.test(given);
  if (!isPath || given.length > returnToCharsMax || !URL.canParse(given, "http://own.invalid"))
    throw invalid("return_to", "must be a path of this server, such as /dashboard/");
  const { origin, pathname, search } = new URL(given, "http://own.invalid");
  if (origin !== "http://own.invalid" || pathname.startsWith("//"))
    throw invalid("return_to", "must be a path of this server, such as /dashboard/");
  return `${pathname}${search}`;
}

export const refusedToken = (why: string): Fault =>
  new Fault("unauthenticated", `the provider's token is refused: ${why}`);

/** A word of a provider's error, such as `access_denied`; other texts are not repeated. */
export const errorWord = (given: unknown): string =>
  isText(given) && /^[a-z_]{1,60}$/.test(given) ? given : "error";
