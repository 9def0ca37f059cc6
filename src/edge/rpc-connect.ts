import { promisify } from "node:util";
import { constants, gunzip, gzip } from "node:zlib";
import type { DescService, Message } from "@bufbuild/protobuf";
import {
  Code,
  ConnectError,
  type ConnectRouter,
  type ConnectRouterOptions,
  type ContextValues,
  createConnectRouter,
  createContextKey,
  createContextValues,
  type HandlerContext,
  type MethodImpl,
} from "@connectrpc/connect";
import {
  type Compression,
  type UniversalHandler,
  type UniversalServerResponse,
  universalServerRequestFromFetch,
  universalServerResponseToFetch,
} from "@connectrpc/connect/protocol";
import { Fault } from "../kit/fault.ts";
import type { RpcBinding, RpcDuplexBinding, RpcStreamBinding } from "../kit/operation.ts";
import { sequenceHeader } from "../kit/sequence.ts";
import { readSent } from "./body.ts";
import { type BodyRead, sentInPieces } from "./body-budget.ts";
import { faultOf, type RequestCall } from "./call.ts";
import { performDuplex } from "./duplex.ts";
import { connectForm } from "./fault-encoding.ts";
import { afterFirstByte, wantsFirstByte } from "./first-byte.ts";
import { admit, enter, type PreparedOperation, perform, performStream } from "./perform.ts";
import type { IdleTimer, Surface } from "./rest.ts";
import { refusesUnknown } from "./unknown-fields.ts";

export interface RpcImplementation {
  prepared: PreparedOperation;
  binding:
    | RpcBinding<unknown, unknown>
    | RpcStreamBinding<unknown, unknown>
    | RpcDuplexBinding<unknown, unknown>;
}

/** Answers one method on the protocols that Connect's own handlers speak: binary, gRPC-Web, streams. */
export type ConnectHandle = (request: Request, requestId: string, server: IdleTimer) => Promise<Response>;

/** What the gate finds out and the implementation needs. */
export interface Visit {
  request: Request;
  requestId: string;
  prepared: PreparedOperation | undefined;
  call?: RequestCall;
  /** Once its caller is known: strangers hold no connection. */
  hold?: () => void;
  /** The message that is being read. */
  reading?: BodyRead | undefined;
  /** Of a stream: called with its refusal, or with the head of its answer once it is accepted. */
  opened?: (how: Opened) => void;
}

const noVisit: Visit = { request: new Request("http://edge.invalid"), requestId: "", prepared: undefined };
const visitKey = createContextKey(noVisit, { description: "the request that is being answered" });

export const visitValues = (visit: Visit): ContextValues => createContextValues().set(visitKey, visit);

const gzipAsync = promisify(gzip);
const gunzipAsync = promisify<Uint8Array, object, Buffer<ArrayBuffer>>(gunzip);

const gzipCompression: Compression = {
  name: "gzip",
  compress: async (bytes) => (await gzipAsync(bytes)) as Uint8Array<ArrayBuffer>,
  async decompress(bytes, readMaxBytes) {
    if (bytes.byteLength === 0) return new Uint8Array(0);
    try {
      return await gunzipAsync(bytes, { maxOutputLength: readMaxBytes, finishFlush: constants.Z_FINISH });
    } catch (error) {
      if ((error as { code?: unknown }).code === "ERR_BUFFER_TOO_LARGE") {
        throw new ConnectError(`message is larger than ${readMaxBytes} bytes`, Code.ResourceExhausted);
      }
      throw new ConnectError("message is not gzip", Code.InvalidArgument);
    }
  },
};

const codes: Record<string, Code> = {};
for (const [name, code] of Object.entries(Code)) {
  if (typeof code === "number") codes[name.replace(/(?<!^)[A-Z]/g, "_$&").toLowerCase()] = code;
}

/** A fault as Connect's handlers want it; they spell it for the protocol at hand. */
export function connectErrorOf(fault: Fault): ConnectError {
  const { body, headers } = connectForm(fault);
  return new ConnectError(String(body.message), codes[String(body.code)] ?? Code.Internal, headers);
}

/** The same for anything thrown; Connect's own errors (a malformed message, say) pass. */
function asConnectError(surface: Surface, error: unknown, visit: Visit): ConnectError {
  if (error instanceof ConnectError) return error;
  const fault = faultOf(surface.edge, error, visit.prepared?.operation, visit.requestId);
  visit.opened?.({ refusal: fault });
  return connectErrorOf(fault);
}

/**
 * Rejects when the deadline passes or the caller leaves; the result of an operation that ignores its signal
 * is dropped.
 */
const ended = (signal: AbortSignal) =>
  new Promise<never>((_, reject) => {
    const end = () => reject(signal.reason);
    if (signal.aborted) end();
    else signal.addEventListener("abort", end, { once: true });
  });

function callOf(visit: Visit): RequestCall {
  if (!visit.call) throw new Error("an implementation was reached without passing the gate");
  return visit.call;
}

function implement(
  surface: Surface,
  router: ConnectRouter,
  { prepared, binding }: RpcImplementation,
  options: ConnectRouterOptions,
): void {
  const { edge } = surface;
  const decode = (message: Message) => binding.decode(message as never);
  if (prepared.operation.mode === "unary") {
    const answer = async (message: Message, context: HandlerContext) => {
      const visit = context.values.get(visitKey);
      visit.reading?.release();
      try {
        const performed = perform(edge, prepared, callOf(visit), () => decode(message));
        const { output, sequence } = await Promise.race([performed, ended(context.signal)]);
        if (sequence !== undefined) context.responseHeader.set(sequenceHeader, sequence);
        return binding.encode(output);
      } catch (error) {
        throw asConnectError(surface, error, visit);
      }
    };
    router.rpc(binding.method, answer as MethodImpl<typeof binding.method>, options);
    return;
  }
  const answers = async function* (sent: Message | AsyncIterable<Message>, context: HandlerContext) {
    const visit = context.values.get(visitKey);
    visit.reading?.release();
    const admitted = () => visit.opened?.({ head: context.responseHeader });
    try {
      if (prepared.operation.mode === "duplex") admitted();
      else callOf(visit).admitted = admitted;
      const items =
        prepared.operation.mode === "duplex"
          ? performDuplex(
              edge,
              prepared,
              callOf(visit),
              readOff(sent as AsyncIterable<Message>, visit),
              decode,
            )
          : performStream(edge, prepared, callOf(visit), () => decode(sent as Message));
      for await (const item of items) {
        const answer = binding.encode(item);
        try {
          yield answer;
        } catch (error) {
          // The generator is ended by an error when the answer cannot be written, which is no defect of the
          // server.
          throw new ConnectError("the caller has left", Code.Canceled, undefined, undefined, error);
        }
      }
      // An operation just ends with its signal: the caller gets the deadline, or the shutdown, as the reason.
      if (context.signal.reason instanceof ConnectError) throw context.signal.reason;
    } catch (error) {
      throw asConnectError(surface, error, visit);
    }
  };
  router.rpc(binding.method, answers as MethodImpl<typeof binding.method>, options);
}

/** Gives a message's share of the body budget back once it was read. */
async function* readOff(messages: AsyncIterable<Message>, visit: Visit): AsyncGenerator<Message> {
  for await (const message of messages) {
    visit.reading?.release();
    yield message;
  }
}

async function gate(surface: Surface, context: HandlerContext): Promise<void> {
  const visit = context.values.get(visitKey);
  if (!visit.prepared) return;
  try {
    visit.call = (await admit(surface.edge, visit.prepared, visit.request, visit.requestId)).endWith(
      context.signal,
    );
    surface.unsent.reading(visit.call.caller.id).acquire(0);
    await enter(surface.edge, visit.prepared, visit.call);
    visit.hold?.();
  } catch (error) {
    throw asConnectError(surface, error, visit);
  }
}

/** Sends a small unary answer in one piece: as a stream it would cost more than the call itself. */
async function collected(
  answer: UniversalServerResponse,
  { call }: Visit,
  { unsent }: Surface,
): Promise<Response> {
  const pieces: Uint8Array[] = [];
  if (answer.body) for await (const piece of answer.body) pieces.push(piece);
  const body = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
  const init: ResponseInit = { status: answer.status };
  if (answer.header) init.headers = answer.header;
  return sentInPieces(body, init, unsent.reading(call?.caller.id ?? ""));
}

/** The sent bytes, read only when Connect asks, which is after the gate. */
async function* sentBytes(
  { request, call }: Visit,
  { bodyBytesMax, room }: Surface,
): AsyncIterable<Uint8Array> {
  try {
    yield await readSent(request, bodyBytesMax, room.reading(call?.caller.id ?? ""));
  } catch (error) {
    throw error instanceof Fault ? connectErrorOf(error) : error;
  }
}

/** Counts the pieces of a streamed body until their message is whole. Connect reads them after the gate. */
export async function* countedBytes(
  visit: Visit,
  { room }: Pick<Surface, "room">,
  pieces: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  visit.reading = room.reading(visit.call?.caller.id ?? "");
  try {
    for await (const piece of pieces) {
      visit.reading?.acquire(piece.byteLength);
      yield piece;
    }
  } catch (error) {
    throw error instanceof Fault ? connectErrorOf(error) : error;
  } finally {
    visit.reading?.release();
  }
}

type Opened = { refusal: Fault } | { head: Headers };

/** Of a stream of answers: resolves once the operation has accepted or refused it. */
function openingOf(visit: Visit): Promise<Opened> | undefined {
  if (visit.prepared?.operation.mode !== "stream") return undefined;
  const { promise, resolve } = Promise.withResolvers<Opened>();
  visit.opened = resolve;
  return promise;
}

/** Clients take this status of a stream for a method that is not there, and ask in another way. */
const notThere = 404;

const refusedByStatus = (fault: Fault): Response => {
  const { status, body, headers } = connectForm(fault);
  return new Response(JSON.stringify(body), {
    status: fault.kind === "unimplemented" ? notThere : status,
    headers: { ...headers, "content-type": "application/json" },
  });
};

/** What a stream is answered before its first message, which Connect waits for. */
async function openedResponse(
  answering: Promise<UniversalServerResponse>,
  opening: Promise<Opened>,
  { prepared, request }: Visit,
): Promise<Response | undefined> {
  const opened = await Promise.race([opening, answering.then(() => undefined)]);
  if (opened === undefined) return undefined;
  if ("refusal" in opened) {
    if (!prepared?.operation.special?.refusesByStatus) return undefined;
    // What is left of the answer is not read.
    void answering.then(({ body }) => body?.[Symbol.asyncIterator]().return?.()).catch(() => {});
    return refusedByStatus(opened.refusal);
  }
  if (!wantsFirstByte(request.headers)) return undefined;
  const header = new Headers(opened.head);
  return universalServerResponseToFetch({ status: 200, header, body: afterFirstByte(answering, header) });
}

function handleOf(
  surface: Surface,
  handler: UniversalHandler,
  bound: RpcImplementation | undefined,
): ConnectHandle {
  const isUnary = handler.method.methodKind === "unary";
  return async (request, requestId, server) => {
    const holds = !isUnary || bound?.prepared.operation.held;
    const visit: Visit = { request, requestId, prepared: bound?.prepared };
    if (holds) visit.hold = () => server.timeout(request, 0);
    // Bun answers both directions at once on every version, which Connect only believes of HTTP/2.
    const universal = universalServerRequestFromFetch(isUnary ? bodiless(request) : request, {
      httpVersion: "2.0",
    });
    const opening = openingOf(visit);
    universal.contextValues = visitValues(visit);
    universal.signal = request.signal;
    universal.body = isUnary
      ? sentBytes(visit, surface)
      : countedBytes(visit, surface, universal.body as AsyncIterable<Uint8Array>);
    const answering = handler(universal);
    const opened = opening && (await openedResponse(answering, opening, visit));
    const response =
      opened ??
      (isUnary
        ? await collected(await answering, visit, surface)
        : universalServerResponseToFetch(await answering));
    if (holds && isUnary) server.timeout(request, surface.idleSeconds);
    for (const [name, value] of Object.entries(surface.headers(request))) response.headers.set(name, value);
    response.headers.set("x-request-id", requestId);
    if (response.status === 405) response.headers.set("allow", handler.allowedMethods.join(", "));
    return response;
  };
}

/** The request's head alone: taking the body's stream would keep its bytes from being read whole. */
export const bodiless = ({ method, url, headers }: Pick<Request, "method" | "url" | "headers">): Request =>
  ({ method, url, headers, body: null }) as unknown as Request;

/**
 * Levels of nested messages that are decoded: far more than a payload may have, so that a payload nested too
 * deeply is refused by the name of its field, and on a stream without ending it.
 */
const recursionLimit = 1_000;

export interface Protocols {
  connect: boolean;
  grpcWeb: boolean;
  grpc: boolean;
  /** Ends every call that is still open, with its reason. */
  shutdown?: AbortSignal;
}

/**
 * A handler for every method of the services; those without an operation answer `unimplemented` in protocol
 * form.
 */
export function universalHandlers(
  surface: Surface,
  services: readonly DescService[],
  bound: ReadonlyMap<string, RpcImplementation>,
  { shutdown, ...protocols }: Protocols,
): UniversalHandler[] {
  const options = {
    ...protocols,
    ...(shutdown && { shutdownSignal: shutdown }),
    readMaxBytes: surface.bodyBytesMax,
    acceptCompression: [gzipCompression],
    jsonOptions: { ignoreUnknownFields: true, recursionLimit },
    binaryOptions: { recursionLimit },
    requestGate: (context: HandlerContext) => gate(surface, context),
  };
  const exact = { ...options, jsonOptions: { ignoreUnknownFields: false, recursionLimit } };
  const router = createConnectRouter(options);
  for (const service of services) {
    for (const method of service.methods) {
      const path = `/${service.typeName}/${method.name}`;
      const implementation = bound.get(path);
      if (implementation) {
        const { operation } = implementation.prepared;
        const isExact = refusesUnknown(surface.edge.unknownFields, operation);
        const readMaxBytes = Math.max(operation.takesReports?.bytesMax ?? 0, surface.bodyBytesMax);
        implement(surface, router, implementation, { ...(isExact ? exact : options), readMaxBytes });
      } else
        router.service(
          { ...service, methods: [method], method: { [method.localName]: method } } as DescService,
          {},
        );
    }
  }
  return router.handlers;
}

/** The same for Bun's server, on the protocols that need no trailers, by the method's path. */
export function connectHandles(
  surface: Surface,
  services: readonly DescService[],
  bound: ReadonlyMap<string, RpcImplementation>,
): Map<string, ConnectHandle> {
  const handlers = universalHandlers(surface, services, bound, { connect: true, grpcWeb: true, grpc: false });
  return new Map(
    handlers.map((handler) => {
      const path = handler.requestPath;
      return [path, handleOf(surface, handler, bound.get(path))];
    }),
  );
}
