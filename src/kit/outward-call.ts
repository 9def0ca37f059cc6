import { isIP } from "node:net";
import { dns } from "bun";
import type { AddressGuard } from "./addresses.ts";
import type { Clock } from "./clock.ts";
import { Fault, invalid } from "./fault.ts";
import { parseJsonBytes } from "./payload-json.ts";

/** An address that a caller registered gave no usable answer. Counts as a failure for its breaker. */
export class TransportFailure extends Error {
  constructor(message: string) {
    super(message);
    this.name = "TransportFailure";
  }
}

/** Throws the fault that names the field unless we may be told to post there; calls check the address. */
export function requireCallableUrl(field: string, text: string): void {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || (url.protocol !== "http:" && url.protocol !== "https:"))
    throw invalid(field, "must be an absolute http or https URL");
  if (url.username !== "" || url.password !== "") throw invalid(field, "must not contain credentials");
}

const networkRefused = "is in a network that must not be called (see SVC_PUSH_ALLOW_PRIVATE)";

/** The host of a URL, of IPv6 without its brackets. */
const bareHost = (hostname: string): string => hostname.replace(/^\[|\]$/g, "");

/**
 * Throws the fault that names the field where every call would be refused for the address. What a name leads
 * to is known only when it is called, but for `localhost`.
 */
export function requireAllowedHost(field: string, url: string, guard: AddressGuard): void {
  const host = bareHost(new URL(url).hostname);
  const addresses = /^(.*\.)?localhost\.?$/.test(host) ? ["127.0.0.1", "::1"] : isIP(host) ? [host] : [];
  if (addresses.length > 0 && !addresses.some((address) => guard.allows(address)))
    throw invalid(field, `its address ${networkRefused}`);
}

export interface OutwardCall {
  url: string;
  /** Sent unchanged, because a signature covers its bytes. Without one the call is a GET. */
  body?: string;
  /** Of the body: JSON when left out. */
  contentType?: string;
  headers: Readonly<Record<string, string>>;
  /** Of the whole call, with the name's resolution and what `read` reads. */
  timeoutMs: number;
  /** Raised when the caller gives the answer up. */
  signal?: AbortSignal;
}

export interface OutwardCallerDeps {
  clock: Pick<Clock, "after">;
  guard: AddressGuard;
  /** Resolves a host name; replaced by tests. */
  resolve?: (host: string) => Promise<readonly string[]>;
}

/**
 * By c-ares: the system's own resolver waits on one of the few threads that read files and hash passwords,
 * and a name server that never answers would keep those of the whole server.
 */
const resolveAll = async (host: string) =>
  (await dns.lookup(host, { backend: "c-ares" })).map(({ address }) => address);

const aborted = (signal: AbortSignal) =>
  new Promise<never>((_, reject) =>
    signal.addEventListener("abort", () => reject(signal.reason), { once: true }),
  );

/**
 * Posts to URLs that users registered, or reads them. It connects to the very address that was checked and
 * follows no redirect: otherwise a name server or the one called could point the call into a private network.
 */
export function openOutwardCaller({ clock, guard, resolve = resolveAll }: OutwardCallerDeps) {
  /**
   * Every address of the name must be allowed, not only the one that is used: a name server chooses their
   * order.
   */
  async function addressOf(host: string): Promise<string> {
    const bare = bareHost(host);
    const addresses = isIP(bare) ? [bare] : await resolve(bare).catch(() => []);
    const [first] = addresses;
    if (first === undefined) throw new TransportFailure("the host's name cannot be resolved");
    if (!addresses.every((address) => guard.allows(address)))
      throw new TransportFailure(`the host's address ${networkRefused}`);
    return first;
  }

  return async function call<Answer>(
    { url, body, contentType = "application/json", headers, timeoutMs, signal }: OutwardCall,
    read: (response: Response) => Answer | Promise<Answer>,
  ): Promise<Answer> {
    if (signal?.aborted) throw new TransportFailure("the caller gave the answer up");
    const target = new URL(url);
    const over = new AbortController();
    const cut = () => over.abort();
    const cancel = clock.after(timeoutMs, cut);
    signal?.addEventListener("abort", cut, { once: true });
    try {
      const address = await Promise.race([addressOf(target.hostname), aborted(over.signal)]);
      const at = new URL(target);
      at.hostname = address.includes(":") ? `[${address}]` : address;
      const isTls = target.protocol === "https:";
      const response = await fetch(at, {
        method: body === undefined ? "GET" : "POST",
        redirect: "manual",
        // A proxy from the environment variables would connect to another address than the one that was
        // checked.
        proxy: false,
        signal: over.signal,
        body: body ?? null,
        // The runtime decompresses whole, whatever is read of it: 400 bytes become gigabytes.
        decompress: false,
        headers: {
          ...headers,
          ...{ Host: target.host, "Accept-Encoding": "identity" },
          ...(body !== undefined && { "Content-Type": contentType }),
        },
        // A kept connection whose certificate was verified for one name must not serve another name.
        ...(isTls && { keepalive: false, tls: { serverName: target.hostname } }),
      } as RequestInit);
      return await read(response);
    } catch (error) {
      if (error instanceof TransportFailure) throw error;
      if (over.signal.aborted) throw new TransportFailure(`no answer within ${timeoutMs} ms`);
      const { code } = error as { code?: unknown };
      throw new TransportFailure(
        `the endpoint cannot be reached${typeof code === "string" ? ` (${code})` : ""}`,
      );
    } finally {
      cancel();
      signal?.removeEventListener("abort", cut);
    }
  };
}

/** The JSON that an endpoint answers. Throws TransportFailure for what is larger, or none. */
export async function readJson(
  response: Response,
  bytesMax: number,
  mend?: (answer: unknown) => void,
): Promise<unknown> {
  const encoding = response.headers.get("content-encoding") ?? "identity";
  if (encoding !== "identity") throw new TransportFailure(`the answer is compressed (${encoding})`);
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of response.body ?? []) {
    size += piece.byteLength;
    if (size > bytesMax) throw new TransportFailure(`the answer is larger than ${bytesMax} bytes`);
    pieces.push(piece);
  }
  try {
    return parseJsonBytes(Buffer.concat(pieces), undefined, mend);
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    const why = error.cause === undefined ? error.message : "not valid JSON";
    throw new TransportFailure(`the endpoint's answer is ${why.replace("malformed JSON: ", "")}`);
  }
}

export type CallOutward = ReturnType<typeof openOutwardCaller>;
