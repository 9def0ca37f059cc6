import { createHmac } from "node:crypto";
import type { Clock } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import { type OutwardCallerDeps, openOutwardCaller, TransportFailure } from "../../../kit/outward-call.ts";
import { parseJsonBytes } from "../../../kit/payload-json.ts";

export interface EndpointCall {
  url: string;
  /** JSON text; sent unchanged, because the signature covers its bytes. */
  body: string;
  /** Text of the shared key; undefined sends no signature. */
  signingKey: string | undefined;
  timeoutMs: number;
}

export interface EndpointCallerDeps extends OutwardCallerDeps {
  clock: Clock;
  answerBytesMax: number;
}

/**
 * Two signatures in one header, the old form first: old verifiers read hex up to the comma, new ones read `t`
 * and `v1`. The new form covers the time: an endpoint can refuse a recorded request that is sent again.
 */
export function signatureOf(key: string, body: string, unixSeconds: number): string {
  const hmac = (text: string) => createHmac("sha256", key).update(text).digest("hex");
  return `sha256=${hmac(body)},t=${unixSeconds},v1=${hmac(`${unixSeconds}.${body}`)}`;
}

/** Posts to endpoints of push functions, whose answer is JSON. */
export function openEndpointCaller({ answerBytesMax, ...deps }: EndpointCallerDeps) {
  const post = openOutwardCaller(deps);

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

  async function read(response: Response): Promise<unknown> {
    if (response.status !== 200) {
      await response.body?.cancel();
      throw new TransportFailure(`the endpoint answered ${response.status}`);
    }
    return answerOf(await bytesOf(response));
  }

  return function call({ url, body, signingKey, timeoutMs }: EndpointCall): Promise<unknown> {
    const seconds = Math.floor(deps.clock.now() / 1_000);
    const headers =
      signingKey === undefined ? {} : { "X-Svc-Signature": signatureOf(signingKey, body, seconds) };
    return post({ url, body, headers, timeoutMs }, read);
  };
}

function answerOf(bytes: Uint8Array): unknown {
  try {
    return parseJsonBytes(bytes);
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    const why = error.cause === undefined ? error.message : "not valid JSON";
    throw new TransportFailure(`the endpoint's answer is ${why.replace("malformed JSON: ", "")}`);
  }
}

export type CallEndpoint = ReturnType<typeof openEndpointCaller>;
