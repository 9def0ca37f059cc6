import { createHmac } from "node:crypto";
import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import type { AddressGuard } from "../../../kit/addresses.ts";
import type { Clock } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import { parseJsonBytes } from "../../../kit/payload-json.ts";

/** Why an endpoint could not be talked to; such failures count toward its breaker. */
export class TransportFailure extends Error {
  constructor(message: string) {
    super(message);
    this.name = "TransportFailure";
  }
}

export interface EndpointCall {
  url: string;
  /** JSON text; sent as these very bytes, which the signature covers. */
  body: string;
  /** Text of the shared key; undefined sends no signature. */
  signingKey: string | undefined;
  timeoutMs: number;
}

export interface EndpointCallerDeps {
  clock: Clock;
  guard: AddressGuard;
  answerBytesMax: number;
  /** Of a host's name; for tests of names that change. */
  resolve?: (host: string) => Promise<readonly string[]>;
}

/**
 * Both forms in one header, old first (proto/README.md 'Push signature'): the old verifier reads hex up to
 * the comma, the new ones pick `t` and `v1`.
 */
export function signatureOf(key: string, body: string, unixSeconds: number): string {
  const hmac = (text: string) => createHmac("sha256", key).update(text).digest("hex");
  return `sha256=${hmac(body)},t=${unixSeconds},v1=${hmac(`${unixSeconds}.${body}`)}`;
}

const resolveAll = async (host: string) => (await lookup(host, { all: true })).map(({ address }) => address);

/** Posts to endpoints that users registered: to the address that was checked, without following where it points. */
export function openEndpointCaller({
  clock,
  guard,
  answerBytesMax,
  resolve = resolveAll,
}: EndpointCallerDeps) {
  /** Every address of the name must be allowed: which one is dialled is not for a name server to choose. */
  async function addressOf(host: string): Promise<string> {
    const bare = host.replace(/^\[|\]$/g, "");
    const addresses = isIP(bare) ? [bare] : await resolve(bare).catch(() => []);
    const [first] = addresses;
    if (first === undefined) throw new TransportFailure("the host's name cannot be resolved");
    if (!addresses.every((address) => guard.allows(address)))
      throw new TransportFailure("the host's address is in a network that must not be called");
    return first;
  }

  async function bytesOf(response: Response): Promise<Uint8Array> {
    const pieces: Uint8Array[] = [];
    let size = 0;
    for await (const piece of response.body ?? []) {
      size += piece.byteLength;
      if (size > answerBytesMax)
        throw new TransportFailure(`the answer is larger than ${answerBytesMax} bytes`);
      pieces.push(piece);
    }
    return Buffer.concat(pieces);
  }

  return async function call({ url, body, signingKey, timeoutMs }: EndpointCall): Promise<unknown> {
    const target = new URL(url);
    const over = new AbortController();
    const cancel = clock.after(timeoutMs, () => over.abort());
    try {
      // A name server that is silent must not outlast the call.
      const address = await Promise.race([addressOf(target.hostname), aborted(over.signal)]);
      const at = new URL(target);
      at.hostname = address.includes(":") ? `[${address}]` : address;
      const isTls = target.protocol === "https:";
      const response = await fetch(at, {
        method: "POST",
        redirect: "manual",
        // One from the environment would be asked instead of the address that was checked.
        proxy: false,
        signal: over.signal,
        body,
        headers: {
          Host: target.host,
          "Content-Type": "application/json",
          ...(signingKey !== undefined && {
            "X-Svc-Signature": signatureOf(signingKey, body, Math.floor(clock.now() / 1_000)),
          }),
        },
        // A connection that was verified for one name must not serve another.
        ...(isTls && { keepalive: false, tls: { serverName: target.hostname } }),
      } as RequestInit);
      if (response.status !== 200) {
        await response.body?.cancel();
        throw new TransportFailure(`the endpoint answered ${response.status}`);
      }
      return answerOf(await bytesOf(response));
    } catch (error) {
      if (error instanceof TransportFailure) throw error;
      if (over.signal.aborted) throw new TransportFailure(`no answer within ${timeoutMs} ms`);
      const { code } = error as { code?: unknown };
      throw new TransportFailure(
        `the endpoint cannot be reached${typeof code === "string" ? ` (${code})` : ""}`,
      );
    } finally {
      cancel();
    }
  };
}

function answerOf(bytes: Uint8Array): unknown {
  try {
    return parseJsonBytes(bytes);
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    const why = error.cause === undefined ? error.message : "no JSON";
    throw new TransportFailure(`the endpoint's answer is ${why.replace("malformed JSON: ", "")}`);
  }
}

const aborted = (signal: AbortSignal) =>
  new Promise<never>((_, reject) =>
    signal.addEventListener("abort", () => reject(signal.reason), { once: true }),
  );

export type CallEndpoint = ReturnType<typeof openEndpointCaller>;
