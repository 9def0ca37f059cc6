import { Fault } from "../kit/fault.ts";
import type { Operation } from "../kit/operation.ts";

/** The place of a request's credential. */
export type CredentialSource = "header" | "subprotocol" | "query" | "cookie" | "none";

/** The one credential of a request. Everything that depends on it reads this value. */
export interface UsedCredential {
  source: CredentialSource;
  /** Empty when there is none. */
  text: string;
}

/** Headers that decide which credential a request uses, and whether it counts. */
export const decidingHeaders = [
  "authorization",
  "cookie",
  "host",
  "origin",
  "sec-fetch-site",
  "sec-websocket-protocol",
  "upgrade",
] as const;

/** Subprotocol of a browser's socket, which can send no header. */
export const credentialPrefix = "svc.auth.bearer.";

/** One value of the query; undefined when absent or empty. */
export function queryValue(url: string, name: string): string | undefined {
  const mark = url.indexOf("?");
  if (mark < 0 || !url.includes(`${name}=`, mark)) return undefined;
  return new URLSearchParams(url.slice(mark + 1)).get(name) || undefined;
}

const bearer = /^bearer +(\S+) *$/i;

function ofHeader({ headers }: Request): string | undefined {
  const header = headers.get("authorization");
  if (header === null) return undefined;
  const text = header.startsWith("Bearer ") ? header.slice(7).trim() : bearer.exec(header)?.[1];
  return text || undefined;
}

export const protocolsOf = ({ headers }: Request): string[] =>
  (headers.get("sec-websocket-protocol") ?? "")
    .split(",")
    .map((one) => one.trim())
    .filter((one) => one !== "");

function ofSubprotocol(request: Request): string | undefined {
  if (!request.headers.has("sec-websocket-protocol") || !request.headers.has("upgrade")) return undefined;
  const offered = protocolsOf(request).find((one) => one.startsWith(credentialPrefix));
  if (offered === undefined) return undefined;
  const text = Buffer.from(offered.slice(credentialPrefix.length), "base64url").toString();
  // Text that cannot be a key is refused like an unknown key.
  return /^[\x21-\x7e]+$/.test(text) ? text : "-";
}

/**
 * The first that can be used: a header that is no Bearer (a proxy's own, say) and an empty query parameter
 * are none, and hide no other.
 */
export function credentialOf(
  request: Request,
  cookieOf: ((header: string | null) => string | undefined) | undefined,
): UsedCredential {
  const header = ofHeader(request);
  if (header !== undefined) return { source: "header", text: header };
  const subprotocol = ofSubprotocol(request);
  if (subprotocol !== undefined) return { source: "subprotocol", text: subprotocol };
  const query = queryValue(request.url, "token");
  if (query !== undefined) return { source: "query", text: query };
  const cookie = cookieOf?.(request.headers.get("cookie"));
  return cookie === undefined ? { source: "none", text: "" } : { source: "cookie", text: cookie };
}

const isAsked = (method: string): boolean => method === "GET" || method === "HEAD";

/** By host and port: a proxy that ends TLS is on neither side. */
function isOwnOrigin(origin: string, host: string | null): boolean {
  if (host === null || !URL.canParse(origin)) return false;
  const { protocol, host: named } = new URL(origin);
  return (
    named !== "" && URL.canParse(`${protocol}//${host}`) && new URL(`${protocol}//${host}`).host === named
  );
}

const notOurs = () =>
  new Fault("permission_denied", "session cookies are accepted only from this site's own pages");

/**
 * A cookie is sent by whatever page asks, so it speaks for our own pages alone: for those the browser says
 * are of this origin, and what a person has typed where nothing is changed. Who sends neither header is no
 * browser. A link is a GET: what changes anything gets no cookie by one, from whichever page.
 */
export function requireOwnPage(
  { method, headers }: Pick<Request, "method" | "headers">,
  { reads = false }: Pick<Operation, "reads">,
): void {
  if (isAsked(method) && !reads)
    throw new Fault("permission_denied", "session cookies are not accepted for a GET that changes something");
  const site = headers.get("sec-fetch-site");
  if (site === "same-origin" || (site === "none" && isAsked(method))) return;
  if (site !== null) throw notOurs();
  const origin = headers.get("origin");
  if (origin !== null && !isOwnOrigin(origin, headers.get("host"))) throw notOurs();
}
