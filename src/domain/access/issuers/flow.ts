import { hash } from "node:crypto";
import type { Instant } from "../../../kit/clock.ts";
import { flowMs } from "./limits.ts";
import { oidcPath } from "./paths.ts";

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
