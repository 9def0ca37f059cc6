import { Type } from "@sinclair/typebox";
import type { Caller, Operation } from "../../../kit/operation.ts";
import { redacted, redactText } from "../../../kit/redact.ts";
import {
  capturedBodyBytesMax,
  capturedHeadersMax,
  capturedTextCharsMax,
  inspectedBodyBytesMax,
} from "./limits.ts";

/** A request as the edge reports it when it is over. */
export interface SeenRequest {
  request: Pick<Request, "method" | "url" | "headers">;
  operation: Operation;
  caller: Caller;
  environmentId: string;
  requestId: string;
  outcome: string;
  ms: number;
  message?: string | undefined;
  input?: unknown;
}

/** Takes secret fields out, and answers JSON text with the names of what it took. */
export type Redact = (input: unknown) => { payload: string | undefined; removed: readonly string[] };

export const CapturedRequest = Type.Object({
  request_id: Type.String(),
  node_id: Type.String(),
  at: Type.String({ format: "date-time" }),
  method: Type.String(),
  path: Type.String(),
  query: Type.Unsafe<Record<string, string>>(Type.Record(Type.String(), Type.String())),
  headers: Type.Unsafe<Record<string, string>>(Type.Record(Type.String(), Type.String())),
  operation: Type.String(),
  environment_id: Type.Optional(Type.String()),
  caller_kind: Type.String(),
  caller_id: Type.String(),
  status: Type.Integer(),
  outcome: Type.String(),
  message: Type.Optional(Type.String()),
  duration_ms: Type.Number(),
  body: Type.Optional(Type.Unknown()),
  removed_fields: Type.Array(Type.String()),
});

const credentialHeaders = new Set(["authorization", "cookie", "x-api-key", "proxy-authorization"]);
/** Headers of other names with what lets somebody in: bearer subprotocols of sockets, signatures, tokens of proxies. */
const secretHeader = /token|secret|signature|password|api-?key|auth|sec-websocket-protocol/;

const shortened = (text: string) => redactText(text).slice(0, capturedTextCharsMax);

export function capturedHeaders(headers: Headers): Record<string, string> {
  const kept: Record<string, string> = {};
  let room = capturedHeadersMax;
  for (const [name, value] of headers) {
    if (room-- === 0) break;
    const isSecret = credentialHeaders.has(name) || secretHeader.test(name);
    kept[shortened(name)] = isSecret ? redacted : shortened(value);
  }
  return kept;
}

const parsed = (json: string | undefined): unknown =>
  json === undefined
    ? undefined
    : Buffer.byteLength(json) > capturedBodyBytesMax
      ? { omitted_bytes: Buffer.byteLength(json) }
      : JSON.parse(json);

/** Path, query, headers and body without what is secret. */
export function capturedParts({ request, input }: Pick<SeenRequest, "request" | "input">, redact: Redact) {
  const { pathname, searchParams } = new URL(request.url);
  const query = redact(Object.fromEntries(searchParams));
  const length = Number(request.headers.get("content-length") ?? 0);
  const body = length > inspectedBodyBytesMax ? { payload: undefined, removed: [] } : redact(input);
  return {
    method: request.method,
    path: redactText(pathname).slice(0, 4 * capturedTextCharsMax),
    query: (parsed(query.payload) ?? {}) as Record<string, string>,
    headers: capturedHeaders(request.headers),
    removed_fields: [...new Set([...query.removed, ...body.removed])],
    body: length > inspectedBodyBytesMax ? { omitted_bytes: length } : parsed(body.payload),
  };
}
