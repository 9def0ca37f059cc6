import type { DescMethod, DescService } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel } from "@bufbuild/protobuf/wkt";
import { Fault, invalid } from "../kit/fault.ts";
import type { Operation, RpcBinding, UnaryOperation } from "../kit/operation.ts";
import { parseJson as readJsonText } from "../kit/payload-json.ts";
import { sequenceHeader } from "../kit/sequence.ts";
import { isConnectJson, readJsonBody } from "./body.ts";
import { sentInPieces } from "./body-budget.ts";
import { faultOf, type RequestCall } from "./call.ts";
import { connectForm } from "./fault-encoding.ts";
import { jsonHeaders, requestIdOf, withHeaders } from "./headers.ts";
import { bodyObject, checkNames, readMessage, writeMessage } from "./message-json.ts";
import { admit, type PreparedOperation, perform } from "./perform.ts";
import type { HttpHandler, Surface } from "./rest.ts";
import type { ConnectHandle, RpcImplementation } from "./rpc-connect.ts";
import { unknownTo } from "./unknown-fields.ts";

export interface RpcRoute {
  method: "POST" | "GET";
  path: string;
  handle: HttpHandler;
}

/** The unary Connect methods an operation answers. */
export function rpcBindings(operation: Operation): readonly RpcBinding<unknown, unknown>[] {
  if (operation.mode !== "unary" || operation.rpc === undefined) return [];
  return Array.isArray(operation.rpc) ? operation.rpc : [operation.rpc as RpcBinding<unknown, unknown>];
}

/** Every method that an operation answers, whichever way its messages go. */
export function methodBindings(operation: Operation): readonly RpcImplementation["binding"][] {
  if (operation.mode === "unary") return rpcBindings(operation);
  return operation.rpc ? [operation.rpc] : [];
}

const json = "application/json";

/** A fault in Connect's unary form. */
export function connectFault(fault: Fault, base: Record<string, string>): Response {
  const { status, body, headers } = connectForm(fault);
  base["content-type"] = json;
  return new Response(JSON.stringify(body), { status, headers: withHeaders(base, headers) });
}

/** `Connect-Timeout-Ms`: at most ten digits, as the protocol says. */
function timeoutOf(request: Request): number | undefined {
  const text = request.headers.get("connect-timeout-ms");
  if (text === null) return undefined;
  if (!/^\d{1,10}$/.test(text)) throw invalid("Connect-Timeout-Ms", "must be a number of milliseconds");
  return Number(text);
}

/** Ends the call at its deadline: the operation's signal aborts, and the caller is answered at once. */
async function within<T>(
  surface: Surface,
  call: RequestCall,
  ms: number,
  work: () => Promise<T>,
): Promise<T> {
  const deadline = new AbortController();
  const late = new Fault("deadline_exceeded", `the operation did not end within ${ms} ms`);
  call.endWith(AbortSignal.any([call.signal, deadline.signal]));
  let cancel = () => {};
  const timeUp = new Promise<never>((_, reject) => {
    cancel = surface.edge.clock.after(ms, () => {
      deadline.abort(late);
      reject(late);
    });
  });
  try {
    return await Promise.race([work(), timeUp]);
  } finally {
    cancel();
  }
}

/** The message of a Connect GET, as the query carries it. */
function queryBody(request: Request): unknown {
  const query = new URL(request.url).searchParams;
  const message = query.get("message") ?? "";
  const text = query.get("base64") === "1" ? Buffer.from(message, "base64url").toString() : message;
  return text === "" ? undefined : readJsonText(text, "message");
}

const isJsonQuery = (request: Request) =>
  /[?&]encoding=json(&|$)/.test(request.url) && !/[?&]compression=(?!identity|&|$)/.test(request.url);

/**
 * Unary JSON without Connect's own machinery, which costs three times as much. Bindings with `json` read and
 * write it themselves; all others go through messages.
 */
function unaryJson(
  surface: Surface,
  prepared: PreparedOperation,
  binding: RpcBinding<unknown, unknown>,
): HttpHandler {
  const { edge, bodyBytesMax, room } = surface;
  const { input, output } = binding.method;
  const read = binding.json?.decode;
  const onUnknown = unknownTo(edge.unknownFields, prepared.operation);
  const decode = read
    ? (body: unknown) => read(checkNames(input, bodyObject(body), onUnknown))
    : (body: unknown) => binding.decode(readMessage(input, bodyObject(body), onUnknown) as never);
  const encode = binding.json?.encode ?? ((result: unknown) => writeMessage(output, binding.encode(result)));
  const { held, reads } = prepared.operation as UnaryOperation;

  return async (request, _params, server) => {
    const requestId = requestIdOf(request, edge.ids);
    try {
      const call = await admit(edge, prepared, request, requestId);
      const unsent = surface.unsent.reading(call.caller.id);
      unsent.acquire(0);
      if (held) server.timeout(request, 0);
      const work = () =>
        perform(edge, prepared, call, async () => {
          if (request.method === "GET") return decode(queryBody(request));
          return decode(await readJsonBody(request, bodyBytesMax, room.reading(call.caller.id)));
        });
      const ms = timeoutOf(request);
      const performed = ms === undefined ? await work() : await within(surface, call, ms, work);
      if (held) server.timeout(request, surface.idleSeconds);
      const headers = jsonHeaders(surface.headers(request), requestId);
      if (performed.sequence !== undefined) headers.set(sequenceHeader, performed.sequence);
      return sentInPieces(JSON.stringify(encode(performed.output)), { headers }, unsent, reads);
    } catch (error) {
      const fault = faultOf(edge, error, prepared.operation, requestId);
      return connectFault(fault, { ...surface.headers(request), "x-request-id": requestId });
    }
  };
}

/** Answers JSON itself and leaves every other content type, and every stream, to Connect. */
function choose(surface: Surface, own: HttpHandler | undefined, connect: ConnectHandle): HttpHandler {
  return (request, params, server) => {
    if (own) {
      if (
        request.method === "GET" ? isJsonQuery(request) : isConnectJson(request.headers.get("content-type"))
      ) {
        return own(request, params, server);
      }
    }
    return connect(request, requestIdOf(request, surface.edge.ids), server);
  };
}

function unimplemented(surface: Surface, method: DescMethod): HttpHandler {
  const fault = new Fault(
    "unimplemented",
    `${method.parent.typeName}/${method.name} is not supported by this server`,
  );
  return async (request) =>
    connectFault(fault, {
      ...surface.headers(request),
      "x-request-id": requestIdOf(request, surface.edge.ids),
    });
}

export const rpcPath = ({ parent, name }: DescMethod): string => `/${parent.typeName}/${name}`;

/** What answers which method of the services, by the method's path. */
export function boundMethods(
  services: readonly DescService[],
  registry: readonly PreparedOperation[],
): Map<string, RpcImplementation> {
  const known = new Set(services.flatMap(({ methods }) => methods.map(rpcPath)));
  const bound = new Map<string, RpcImplementation>();
  for (const prepared of registry) {
    const { operation } = prepared;
    for (const binding of methodBindings(operation)) {
      const key = rpcPath(binding.method);
      if (!known.has(key)) throw new Error(`${operation.name} is bound to a method of no service: ${key}`);
      if (bound.has(key)) throw new Error(`two operations answer ${key}`);
      bound.set(key, { prepared, binding });
    }
  }
  return bound;
}

const allowsGet = ({ methodKind, idempotency }: DescMethod): boolean =>
  methodKind === "unary" && idempotency === MethodOptions_IdempotencyLevel.NO_SIDE_EFFECTS;

/** Every method of the services: those with an operation, and the others answered `unimplemented`. */
export function rpcRoutes(
  surface: Surface,
  services: readonly DescService[],
  registry: readonly PreparedOperation[],
): RpcRoute[] {
  const bound = boundMethods(services, registry);
  let handles: Promise<Map<string, ConnectHandle>> | undefined;
  /** Loaded by the first caller that does not speak JSON, or streams: no start waits for it. */
  const connect =
    (path: string): ConnectHandle =>
    async (...asked) => {
      handles ??= import("./rpc-connect.ts").then((loaded) =>
        loaded.connectHandles(surface, services, bound),
      );
      return (await handles).get(path)!(...asked);
    };
  return services
    .flatMap(({ methods }) => methods)
    .flatMap((method) => {
      const path = rpcPath(method);
      const implementation = bound.get(path);
      let own: HttpHandler | undefined;
      if (method.methodKind === "unary") {
        own = implementation
          ? unaryJson(
              surface,
              implementation.prepared,
              implementation.binding as RpcBinding<unknown, unknown>,
            )
          : unimplemented(surface, method);
      }
      const handle = choose(surface, own, connect(path));
      const routes: RpcRoute[] = [{ method: "POST", path, handle }];
      if (allowsGet(method)) routes.push({ method: "GET", path, handle });
      return routes;
    });
}
