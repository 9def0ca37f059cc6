import {
  constants,
  createSecureServer,
  createServer,
  type Http2Server,
  type Http2ServerRequest,
  type Http2ServerResponse,
  type ServerHttp2Session,
} from "node:http2";
import type { AddressInfo, Socket } from "node:net";
import type { DescService } from "@bufbuild/protobuf";
import type { Operation } from "../kit/operation.ts";
import { openBodyBudget } from "./body-budget.ts";
import type { Edge } from "./call.ts";
import type { Connections } from "./connections.ts";
import type { GrpcHandle } from "./grpc-connect.ts";
import { baseHeaders } from "./headers.ts";
import { refusalOfStranger } from "./loopback.ts";
import { prepare } from "./perform.ts";
import type { Surface } from "./rest.ts";
import { boundMethods, rpcPath } from "./rpc.ts";

export interface GrpcOptions {
  edge: Edge;
  registry: readonly Operation[];
  services: readonly DescService[];
  hostname: string;
  port: number;
  /** Largest message, as sent and unpacked. */
  bodyBytesMax: number;
  /** PEM; without it the port is cleartext HTTP/2. */
  tls?: { cert: string; key: string } | undefined;
  /** Until a connection without a request is closed; clients open another one when they need it. */
  idleMs?: number;
  connections?: Connections | undefined;
}

export type ListeningGrpc = Awaited<ReturnType<typeof listenGrpc>>;

const {
  NGHTTP2_CANCEL: cancelled,
  NGHTTP2_INTERNAL_ERROR: internalError,
  NGHTTP2_NO_ERROR: noError,
} = constants;
/** For the last status of calls that are cut to reach their callers. */
const farewellMs = 250;
/** For TLS to be agreed on. */
const handshakeMs = 10_000;

/** gRPC's own words for a path that nothing answers; a client that is no gRPC client sees 415. */
function refuse(path: string, request: Http2ServerRequest, response: Http2ServerResponse): void {
  if (!/^application\/grpc(\+|;|$)/.test(request.headers["content-type"] ?? "")) {
    response.stream.respond({ ":status": 415 }, { endStream: true });
    return;
  }
  // Status and message are read from these headers only when they are all there is.
  const status = { "grpc-status": "12", "grpc-message": encodeURIComponent(`no such procedure: ${path}`) };
  response.stream.respond(
    { ":status": 200, "content-type": "application/grpc", ...status },
    { endStream: true },
  );
}

const oneOf = (value: string | string[] | undefined) => (Array.isArray(value) ? value[0] : value);

const strangerIn = ({ headers, authority }: Http2ServerRequest) =>
  refusalOfStranger({
    host: headers[":authority"] ?? authority ?? headers.host,
    origin: headers.origin,
    site: oneOf(headers["sec-fetch-site"]),
  });

const remoteEndOf = ({ remoteAddress, remotePort }: Pick<Socket, "remoteAddress" | "remotePort">) =>
  `${remoteAddress} ${remotePort}`;

/** Until the stream is closed. */
function using(
  connections: Connections | undefined,
  { socket }: Http2ServerRequest,
  response: Http2ServerResponse,
): void {
  const { remoteAddress: address, remotePort: port } = socket ?? {};
  if (!connections || !address || !port || response.stream?.destroyed !== false) return;
  response.once("close", connections.useFrom({ address, port }));
}

const listening = (server: Http2Server, { port, hostname }: GrpcOptions): Promise<void> =>
  new Promise((done, failed) => {
    server.once("error", failed);
    server.listen(port, hostname, () => {
      server.off("error", failed);
      done();
    });
  });

/**
 * gRPC needs trailers, which Bun's own server does not send: the same operations behind node:http2, on a port
 * of its own.
 */
export async function listenGrpc(options: GrpcOptions) {
  const { edge, bodyBytesMax, services, tls, connections, idleMs = 5 * 60_000 } = options;
  const surface: Surface = {
    ...{ edge, bodyBytesMax, headers: baseHeaders([]), room: openBodyBudget(), idleSeconds: idleMs / 1000 },
    unsent: openBodyBudget("answers that are not taken"),
  };
  const bound = boundMethods(services, options.registry.map(prepare));
  const shutdown = new AbortController();
  const paths = new Set(services.flatMap(({ methods }) => methods.map(rpcPath)));
  let handles: Promise<ReadonlyMap<string, GrpcHandle>> | undefined;
  let cutCalls = () => {};
  /** By the first call: no start waits for it. */
  const load = async () => {
    try {
      const { grpcHandles, shuttingDown } = await import("./grpc-connect.ts");
      cutCalls = () => shutdown.abort(shuttingDown());
      return grpcHandles(surface, services, bound, shutdown.signal);
    } catch (error) {
      edge.log.error("grpc.defect", { error });
      throw error;
    }
  };
  const handleOf = async (path: string): Promise<GrpcHandle> => {
    handles ??= load();
    return (await handles).get(path)!;
  };

  // Throws nothing: an exception in a listener of node:http2 would end the process.
  const onRequest = async (request: Http2ServerRequest, response: Http2ServerResponse): Promise<void> => {
    // CONNECT has no path.
    const path = (request.url ?? "").split("?", 1)[0] ?? "";
    try {
      // A client that resets a stream is not worth a line of the log.
      request.on("error", () => {});
      response.on("error", () => {});
      // Without this a client could keep sending after its answer.
      response.stream?.once("finish", () => response.stream?.close(noError));
      if (edge.loopbackOnly && strangerIn(request))
        response.stream.respond({ ":status": 403 }, { endStream: true });
      else if (paths.has(path))
        await (await handleOf(path))(request, response, () => using(connections, request, response));
      else refuse(path, request, response);
    } catch (error) {
      edge.log.debug("grpc.cut", { path, error });
      if (!response.stream?.destroyed) response.stream?.close(internalError);
    }
  };
  const limits = { settings: { maxConcurrentStreams: 1_000, maxHeaderListSize: 64 * 1024 } };
  const server = tls ? createSecureServer({ ...tls, ...limits, allowHTTP1: false }) : createServer(limits);
  server.on("request", (request, response) => void onRequest(request, response));

  // By where they come from: over TLS, a session's socket is not the one that was accepted.
  const sessions = new Set<ServerHttp2Session>();
  const spoken = new Set<string>();
  const sockets = new Map<Socket, string>();
  const cutSilent = (socket: Socket, from: string) => {
    if (!spoken.has(from)) socket.destroy();
  };
  server.on("connection", (socket: Socket) => {
    const from = remoteEndOf(socket);
    sockets.set(socket, from);
    const cancel = edge.clock.after(Math.min(handshakeMs, idleMs), () => cutSilent(socket, from));
    socket.on("error", () => {});
    socket.once("close", () => {
      cancel();
      sockets.delete(socket);
    });
  });
  server.on("session", (session) => {
    const from = remoteEndOf(session.socket);
    sessions.add(session);
    spoken.add(from);
    session.setTimeout(idleMs, () => session.close());
    session.on("error", (error) => edge.log.debug("grpc.session", { error }));
    session.once("close", () => {
      sessions.delete(session);
      spoken.delete(from);
    });
  });
  server.on("sessionError", (error: Error) => edge.log.debug("grpc.session", { error }));
  await listening(server, options);
  server.on("error", (error) => edge.log.warn("grpc.failed", { error }));

  const { port } = server.address() as AddressInfo;
  connections?.listensAt(port);
  const host = options.hostname === "0.0.0.0" || options.hostname === "::" ? "127.0.0.1" : options.hostname;
  return {
    port,
    url: `${tls ? "https" : "http"}://${host.includes(":") ? `[${host}]` : host}:${port}`,
    /**
     * Refuses new connections, tells clients to go, lets streams end, and cuts what is left after `drainMs`.
     */
    async stop(drainMs: number) {
      const over = new AbortController();
      const closed = new Promise<void>((done) => server.close(() => done())).then(() => over.abort());
      for (const session of sessions) session.close();
      for (const [socket, from] of sockets) cutSilent(socket, from);
      await Promise.race([closed, edge.clock.sleep(drainMs, over.signal)]);
      if (over.signal.aborted) return;
      cutCalls();
      await Promise.race([closed, edge.clock.sleep(farewellMs, over.signal)]);
      // With a code and an error: clients take a session that just ends for one that went well.
      for (const session of sessions) {
        session.destroy(new Error("the server is shutting down"), cancelled);
      }
      for (const socket of sockets.keys()) socket.destroy();
    },
  };
}
