import { Type } from "@sinclair/typebox";
import type { Caller } from "../../../kit/caller.ts";
import { maybe, shape } from "../../../kit/described.ts";
import type { Operation } from "../../../kit/operation.ts";
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
export type Redact = (
  input: unknown,
  hidden?: readonly string[],
) => { payload: string | undefined; removed: readonly string[] };

export const CapturedRequest = Type.Object({
  request_id: shape.text("The id of the answer's header `X-Request-Id`."),
  node_id: shape.text("The node that answered."),
  at: shape.time("When the request came."),
  method: shape.text("The request's HTTP method."),
  path: shape.text("The path, without its query."),
  query: Type.Unsafe<Record<string, string>>(
    Type.Record(Type.String(), Type.String(), { description: "The query, without credentials." }),
  ),
  headers: Type.Unsafe<Record<string, string>>(
    Type.Record(Type.String(), Type.String(), {
      description: "The headers, without credentials; names in lower case.",
    }),
  ),
  operation: shape.text("The operation that was asked."),
  environment_id: maybe.text("The environment that it was about; none for what stands outside any."),
  caller_kind: shape.text("key, user, platform, anonymous or dev."),
  caller_id: shape.text("The id of the key or user."),
  status: shape.count("The HTTP status of the answer."),
  outcome: shape.text("ok, or the kind of its error."),
  message: maybe.text("The text of its error."),
  duration_ms: shape.number("How long it took, in milliseconds."),
  body: Type.Optional(Type.Unknown({ description: "The JSON that was sent, cut, without secret fields." })),
  removed_fields: Type.Array(Type.String(), { description: "What was left out of the body, as paths." }),
});

const credentialHeaders = new Set(["authorization", "cookie", "x-api-key", "proxy-authorization"]);
/** Headers that let someone in under other names: bearer subprotocols, signatures, tokens of proxies. */
const secretHeader =
  /token|secret|signature|password|api-?key|auth|session|credential|cookie|sec-websocket-protocol/;

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
export function capturedParts(
  { request, input, operation }: Pick<SeenRequest, "request" | "input" | "operation">,
  redact: Redact,
) {
  const { pathname, searchParams } = new URL(request.url);
  const query = redact(Object.fromEntries(searchParams), operation.hides);
  const length = Number(request.headers.get("content-length") ?? 0);
  const body =
    length > inspectedBodyBytesMax ? { payload: undefined, removed: [] } : redact(input, operation.hides);
  return {
    method: request.method,
    path: redactText(pathname).slice(0, 4 * capturedTextCharsMax),
    query: (parsed(query.payload) ?? {}) as Record<string, string>,
    headers: capturedHeaders(request.headers),
    removed_fields: [...new Set([...query.removed, ...body.removed])],
    body: length > inspectedBodyBytesMax ? { omitted_bytes: length } : parsed(body.payload),
  };
}
