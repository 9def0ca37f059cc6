import { KindGuard, type TSchema } from "@sinclair/typebox";
import { Fault, invalid } from "../kit/fault.ts";
import type { RestReply, RestRequest, UnaryOperation } from "../kit/operation.ts";
import { minSequenceQuery, sequenceHeader } from "../kit/sequence.ts";
import { headOf, isJson, readBytes, readJsonBody, UnreadBody } from "./body.ts";
import { type BodyBudget, publicBodyBytesMax, sentInPieces } from "./body-budget.ts";
import { type Edge, faultOf, type RequestCall } from "./call.ts";
import { restForm } from "./fault-encoding.ts";
import { type BaseHeaders, jsonHeaders, requestIdOf, withHeaders } from "./headers.ts";
import { admit, type PreparedOperation, perform } from "./perform.ts";
import { keepAuthorized } from "./reauthorize.ts";
import { lookFor, unknownTo } from "./unknown-fields.ts";

/**
 * What an HTTP handler gets from the router: the path's parameters, decoded except the last of a `{key...}`
 * route.
 */
export type HttpHandler = (
  request: Request,
  params: Record<string, string>,
  server: IdleTimer,
) => Promise<Response>;

/** The part of the server that lifts the idle limit of one request's connection. */
export interface IdleTimer {
  timeout(request: Request, seconds: number): void;
  requestIP?(request: Request): { address: string; port: number } | null;
}

export interface Surface {
  edge: Edge;
  /** The last entry of `X-Forwarded-For` is the client's address. */
  trustProxy?: boolean;
  headers: BaseHeaders;
  bodyBytesMax: number;
  /** For bodies that are being read. */
  room: BodyBudget;
  /** For answers that are not taken yet. */
  unsent: BodyBudget;
  /** Of a connection without a byte, until it is closed; a held call waits for longer. */
  idleSeconds: number;
}

export interface Route {
  method: string;
  /** As written in the registry: `/api/v1/kv/buckets/{bucket}/keys/{key...}`. */
  path: string;
}

export function parseRoute(text: string): Route {
  const [method, path] = text.split(" ");
  if (!method || !path?.startsWith("/")) throw new Error(`not a route: ${text}`);
  return { method, path };
}

export interface FullBinding {
  route: string;
  raw?: boolean;
  status?: number;
  also?: readonly number[];
  body?: TSchema;
  query?: TSchema;
  decode?: (request: RestRequest) => unknown;
  encode?: (output: unknown, input: unknown) => RestReply;
  json?: (output: unknown) => unknown;
  refused?: (fault: Fault) => Omit<RestReply, "body" | "text">;
}

/** The routes of an operation in one form. */
export function restBindings(operation: Pick<UnaryOperation, "rest">): FullBinding[] {
  if (operation.rest === undefined) return [];
  const bindings = Array.isArray(operation.rest) ? operation.rest : [operation.rest];
  return bindings.map((binding) => (typeof binding === "string" ? { route: binding } : binding));
}

/** Query values are text; a number, a boolean or a list is read from it here, and nowhere guessed. */
type FromText = (values: string[]) => unknown;

function fromText(schema: TSchema): FromText {
  if (KindGuard.IsInteger(schema) || KindGuard.IsNumber(schema)) {
    return ([text = ""]) => (/^-?\d+(\.\d+)?$/.test(text) ? Number(text) : text);
  }
  if (KindGuard.IsBoolean(schema))
    return ([text]) => (text === "true" ? true : text === "false" ? false : text);
  if (KindGuard.IsArray(schema)) {
    const item = fromText(schema.items);
    return (values) => values.flatMap((value) => value.split(",")).map((text) => item([text]));
  }
  return ([text]) => text;
}

function textReaders(schema: TSchema): (readonly [name: string, read: FromText])[] {
  const fields = KindGuard.IsObject(schema) ? Object.entries(schema.properties) : [];
  return fields.map(([name, property]) => [name, fromText(property)] as const);
}

/**
 * Path, query and body under their wire names; the path wins, then the body. Unknown query parameters are
 * left out.
 */
export function defaultDecode(schema: TSchema): (request: RestRequest) => unknown {
  const readers = textReaders(schema);
  return ({ params, query, body }) => {
    if (body !== undefined && (typeof body !== "object" || body === null || Array.isArray(body))) {
      throw invalid("body", "must be an object");
    }
    // An object without a prototype, filled name by name: `__proto__` is then an unknown field like any
    // other.
    const input: Record<string, unknown> = Object.create(null);
    for (const [name, read] of readers) if (query.has(name)) input[name] = read(query.getAll(name));
    for (const name in body) input[name] = (body as Record<string, unknown>)[name];
    for (const [name, read] of readers) if (params[name] !== undefined) input[name] = read([params[name]]);
    return input;
  };
}

function encoderOf({ encode, json: bodyOf, status = 200 }: FullBinding): NonNullable<FullBinding["encode"]> {
  if (encode) return encode;
  if (bodyOf) return (output) => ({ status, body: bodyOf(output) });
  return (output) => (output === undefined ? { status: 204 } : { status, body: output });
}

const noQuery = new URLSearchParams();

/** Without the position to wait for: it is for the edge, and no operation's field. */
export function queryOf(url: string): URLSearchParams {
  const at = url.indexOf("?");
  if (at < 0) return noQuery;
  const query = new URLSearchParams(url.slice(at + 1));
  query.delete(minSequenceQuery);
  return query;
}

/** The last parameter of a `{key...}` route arrives undecoded from the router, under the name `*`. */
function nameRest(params: Record<string, string>, name: string): Record<string, string> {
  const { "*": rest = "", ...others } = params;
  try {
    return { ...others, [name]: decodeURIComponent(rest) };
  } catch {
    throw invalid(name, "is not valid percent-encoding");
  }
}

const isIterable = (body: unknown): body is AsyncIterable<string | Uint8Array> =>
  typeof body === "object" && body !== null && Symbol.asyncIterator in body;

/** The pieces as long as their caller may have them: a body without its end says that it was cut. */
function whileAuthorized(
  edge: Edge,
  { operation }: PreparedOperation,
  call: RequestCall,
  input: unknown,
  pieces: AsyncIterable<string | Uint8Array>,
): AsyncIterable<string | Uint8Array> {
  const source = pieces[Symbol.asyncIterator]();
  const { leave, refused } = keepAuthorized(edge, operation, call, () => [input]);
  const ended = { done: true, value: undefined } as const;
  const iterator: AsyncIterator<string | Uint8Array> = {
    async next() {
      try {
        const fault = refused();
        if (fault) throw fault;
        const piece = await source.next();
        if (piece.done) leave();
        return piece;
      } catch (error) {
        leave();
        await source.return?.();
        const { requestId } = call;
        const fault = faultOf(edge, error, operation, requestId);
        edge.log.warn("request.cut", { operation: operation.name, requestId, error: fault });
        throw fault;
      }
    },
    async return() {
      leave();
      await source.return?.();
      return ended;
    },
  };
  return { [Symbol.asyncIterator]: () => iterator };
}

function bodyStream(pieces: AsyncIterable<string | Uint8Array>): ReadableStream<Uint8Array> {
  const source = pieces[Symbol.asyncIterator]();
  const encoder = new TextEncoder();
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await source.next();
        if (done) return controller.close();
        controller.enqueue(typeof value === "string" ? encoder.encode(value) : value);
      } catch {
        // Called by the reader of the pieces. Without a reason Bun cuts the connection and logs no stack.
        controller.error();
      }
    },
    async cancel() {
      await source.return?.();
    },
  });
}

const json = "application/json";

/** `headers` are those of an answer in JSON, and are the answer's from here on. */
function answer(
  { status, body, text, headers: own }: RestReply,
  headers: Headers,
  send: (body: string | Uint8Array, init: ResponseInit) => Response,
): Response {
  let isTyped = false;
  if (own)
    for (const [name, value] of Object.entries(own)) {
      headers.set(name, value);
      isTyped ||= name.toLowerCase() === "content-type";
    }
  if (text !== undefined) return send(text, { status, headers });
  if (body === undefined) {
    headers.delete("content-type");
    return new Response(null, { status, headers });
  }
  if (isTyped && (typeof body === "string" || body instanceof Uint8Array))
    return send(body, { status, headers });
  if (body instanceof Blob) return new Response(body, { status, headers });
  if (isIterable(body)) return new Response(bodyStream(body), { status, headers });
  return send(JSON.stringify(body), { status, headers });
}

/** A fault in REST's own form. */
export function restFault(fault: Fault, base: Record<string, string>): Response {
  const { status, body, headers } = restForm(fault);
  base["content-type"] = json;
  return new Response(JSON.stringify(body), { status, headers: withHeaders(base, headers) });
}

const bodyless = new Set(["GET", "HEAD"]);

/** The handler of one route of one operation. Whatever can be known per route is worked out here, once. */
export function restHandler(
  surface: Surface,
  prepared: PreparedOperation,
  binding: FullBinding,
): HttpHandler {
  const { edge, room } = surface;
  // The body of an unauthenticated request is limited to what a login needs.
  const isPublic = prepared.operation.action === null;
  const { takesReports, special: { onBodyTooLarge, admits } = {} } = prepared.operation;
  const bodyBytesMax =
    isPublic && !admits
      ? Math.min(publicBodyBytesMax, surface.bodyBytesMax)
      : Math.max(takesReports?.bytesMax ?? 0, surface.bodyBytesMax);
  const { method, path } = parseRoute(binding.route);
  const decode = binding.decode ?? defaultDecode(prepared.operation.input);
  const encode = encoderOf(binding);
  const restName = /\{(\w+)\.\.\.\}$/.exec(path)?.[1];
  const readsBody = !bodyless.has(method);

  const readBody = (request: Request, holder: string): Promise<unknown> | undefined => {
    if (!readsBody) return undefined;
    const reading = room.reading(holder);
    if (binding.raw) return readBytes(request, bodyBytesMax, reading);
    const contentType = request.headers.get("content-type");
    // A foreign page can send a form or plain text with a cookie and without a preflight.
    if (contentType !== null && !isJson(contentType) && request.headers.get("content-length") !== "0") {
      throw new Fault("unsupported_media_type", `Content-Type must be application/json, not ${contentType}`);
    }
    return readJsonBody(request, bodyBytesMax, reading, takesReports?.mend);
  };

  const look = lookFor(prepared.operation.input);
  const onUnknown = unknownTo(edge.unknownFields, prepared.operation);
  const known = (input: unknown) => {
    look?.(input, "", onUnknown);
    return input;
  };

  const { held, reads } = prepared.operation as UnaryOperation;
  // Login throttling, and the list of sign-in places, need the client's address: only REST has it.
  const needsOrigin = !admits && (isPublic || prepared.operation.action === "authenticated");
  const readOrigin = (call: RequestCall, request: Request, server: IdleTimer): void => {
    const forwarded = (name: string) =>
      surface.trustProxy ? request.headers.get(name)?.split(",").at(-1)?.trim() : undefined;
    call.address = forwarded("x-forwarded-for") || server.requestIP?.(request)?.address || "";
    call.isSecure = request.url.startsWith("https:") || forwarded("x-forwarded-proto") === "https";
  };

  const readOrReport = async (request: Request, params: Record<string, string>, call: RequestCall) => {
    const holder = admits ? await admits({ params, query: queryOf(request.url) }) : call.caller.id;
    try {
      return await readBody(request, holder);
    } catch (error) {
      if (onBodyTooLarge && error instanceof UnreadBody) {
        await edge.guard?.(call, prepared.operation, params);
        const query = queryOf(request.url);
        const head = () => headOf(request, error);
        await onBodyTooLarge({ params, query, headers: request.headers, head }, call, error);
      }
      throw error;
    }
  };

  return async (request, params, server) => {
    const requestId = requestIdOf(request, edge.ids);
    try {
      const call = await admit(edge, prepared, request, requestId);
      const unsent = surface.unsent.reading(call.caller.id);
      unsent.acquire(0);
      if (held) server.timeout(request, 0);
      if (needsOrigin) readOrigin(call, request, server);
      const inputOf = (body: unknown) =>
        known(
          decode({
            params: restName === undefined ? params : nameRest(params, restName),
            query: queryOf(request.url),
            headers: request.headers,
            body,
          }),
        );
      const { input, output, sequence } = await perform(edge, prepared, call, () =>
        readsBody || admits ? readOrReport(request, params, call).then(inputOf) : inputOf(undefined),
      );
      if (held) server.timeout(request, surface.idleSeconds);
      const reply = encode(output, input);
      if (isIterable(reply.body)) {
        server.timeout(request, 0);
        reply.body = whileAuthorized(edge, prepared, call, input, reply.body);
      }
      const headers = jsonHeaders(surface.headers(request), requestId);
      if (sequence !== undefined) headers.set(sequenceHeader, sequence);
      return answer(reply, headers, (body, init) => sentInPieces(body, init, unsent, reads));
    } catch (error) {
      const fault = faultOf(edge, error, prepared.operation, requestId);
      const base = { ...surface.headers(request), "x-request-id": requestId };
      if (!binding.refused || !/\btext\/html\b/.test(request.headers.get("accept") ?? ""))
        return restFault(fault, base);
      const { status, headers } = binding.refused(fault);
      return new Response(null, { status, headers: withHeaders(base, headers) });
    }
  };
}
