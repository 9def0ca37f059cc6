import { createHmac } from "node:crypto";
import type { Clock } from "../../../kit/clock.ts";
import {
  type OutwardCallerDeps,
  openOutwardCaller,
  readJson,
  TransportFailure,
} from "../../../kit/outward-call.ts";

export interface EndpointCall {
  url: string;
  /** JSON text; sent unchanged, because the signature covers its bytes. */
  body: string;
  /** Text of the shared key; undefined sends no signature. */
  signingKey: string | undefined;
  timeoutMs: number;
  /** Header of that name; undefined for a run without a trace. */
  traceparent?: string | undefined;
}

export interface EndpointCallerDeps extends OutwardCallerDeps {
  clock: Clock;
  answerBytesMax: number;
  /** Changes an answer before anything in it is refused. */
  mend?: (answer: unknown) => void;
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
export function openEndpointCaller({ answerBytesMax, mend, ...deps }: EndpointCallerDeps) {
  const post = openOutwardCaller(deps);

  async function read(response: Response): Promise<unknown> {
    if (response.status !== 200) {
      await response.body?.cancel();
      throw new TransportFailure(`the endpoint answered ${response.status}`);
    }
    return readJson(response, answerBytesMax, mend);
  }

  return function call({ url, body, signingKey, timeoutMs, traceparent }: EndpointCall): Promise<unknown> {
    const seconds = Math.floor(deps.clock.now() / 1_000);
    const headers = {
      ...(signingKey !== undefined && { "X-Svc-Signature": signatureOf(signingKey, body, seconds) }),
      ...(traceparent !== undefined && { traceparent }),
    };
    return post({ url, body, headers, timeoutMs }, read);
  };
}

export type CallEndpoint = ReturnType<typeof openEndpointCaller>;
