import { hash } from "node:crypto";
import type { Instant } from "../../../kit/clock.ts";
import type { Fault } from "../../../kit/fault.ts";
import { flowMs } from "./limits.ts";

/** Where providers and browsers come back to. */
export const oidcPath = "/api/v1/auth/oidc";

/** A redirect URI of its own for each issuer: a code that one provider made never reaches another. */
export const callbackPath = (issuerId: string, end: "callback" | "logout"): string =>
  `${oidcPath}/${issuerId}/${end}`;

/** This server as the browser names it; undefined for what is no host. */
export function originOf({ isSecure, host }: { isSecure: boolean; host: string }): string | undefined {
  const origin = `${isSecure ? "https" : "http"}://${host}`;
  return /^[A-Za-z0-9.:[\]-]+$/.test(host) && URL.canParse(origin) ? origin : undefined;
}

/** Where a provider sends browsers that have signed out: to be registered there. */
export const signedOutPath = "/dashboard/";

/**
 * A sign-in that a browser has begun. It stands in the browser's cookie alone: what goes to the provider is
 * derived from its secret, so that a callback counts only in the browser that began it.
 */
export interface SignInFlow {
  secret: string;
  startedAt: Instant;
  returnTo: string;
  /** Joins the person to the user who is signed in. */
  links: boolean;
}

export const flowCookie = "svc_sign_in";

const digest = (text: string): string => hash("sha256", text, "buffer").toString("base64url");

/** `session` is the token of the session that began a linking flow: the state is bound to that session. */
export function proofsOf({ secret, startedAt, returnTo, links }: SignInFlow, issuerId: string, session = "") {
  const of = (word: string) =>
    digest(JSON.stringify([word, issuerId, secret, startedAt, returnTo, links, links ? session : ""]));
  const verifier = of("verifier");
  return { state: of("state"), nonce: of("nonce"), verifier, challenge: digest(verifier) };
}

/** Lax: it comes back with the redirect from the provider, and with no form of a foreign page. */
export function flowCookieOf({ secret, startedAt, returnTo, links }: SignInFlow, isSecure: boolean): string {
  const value = [secret, startedAt, links ? 1 : 0, Buffer.from(returnTo).toString("base64url")].join(".");
  const secure = isSecure ? "; Secure" : "";
  return `${flowCookie}=${value}; Path=${oidcPath}; HttpOnly; SameSite=Lax; Max-Age=${flowMs / 1_000}${secure}`;
}

/** Undefined for anything but a flow that is not over. */
export function readFlow(header: string | null, now: Instant): SignInFlow | undefined {
  const pattern = new RegExp(
    `(?:^|;\\s*)${flowCookie}=([0-9a-f]{64})\\.(\\d{1,15})\\.([01])\\.([\\w-]+)(?:;|$)`,
  );
  const [, secret, at, links, place] = pattern.exec(header ?? "") ?? [];
  if (secret === undefined || place === undefined) return undefined;
  const startedAt = Number(at);
  if (startedAt > now + flowMs || startedAt + flowMs <= now) return undefined;
  const returnTo = Buffer.from(place, "base64url").toString();
  return { secret, startedAt, returnTo, links: links === "1" };
}

const byKind = {
  invalid_argument: "begun_elsewhere",
  permission_denied: "refused",
  already_exists: "known",
  unauthenticated: "not_believed",
  unavailable: "provider_away",
  not_found: "no_issuer",
  resource_exhausted: "too_many",
} as const satisfies Partial<Record<Fault["kind"], string>>;

/** Why a sign-in was refused, as the address of the sign-in page says it: words of ours alone. */
export type SignInRefusal = (typeof byKind)[keyof typeof byKind] | "no_role" | "failed";

export function refusalOf({ kind, code }: Pick<Fault, "kind" | "code">): SignInRefusal {
  if (code === "NO_ROLE") return "no_role";
  return (byKind as Partial<Record<Fault["kind"], SignInRefusal>>)[kind] ?? "failed";
}

/** Where the browser of a refused sign-in goes. */
export const refusalPage = (fault: Pick<Fault, "kind" | "code">): string =>
  `/dashboard/sign-in?refused=${refusalOf(fault)}`;
