import {
  createSecureServer,
  createServer,
  type Http2SecureServer,
  type Http2Server,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
} from "node:http2";
import type { DescService } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import type { Operation } from "../kit/operation.ts";
import { baseHeaders, requestIdOf } from "./headers.ts";
import type { Edge } from "./perform.ts";
import { prepare } from "./perform.ts";
import type { Surface } from "./rest.ts";
import { boundMethods } from "./rpc.ts";
import { registerMethods, routerOptions, visitOf } from "./rpc-connect.ts";

export interface GrpcOptions {
  edge: Edge;
  registry: readonly Operation[];
  services: readonly DescService[];
  hostname: string;
  port: number;
  bodyBytesMax: number;
  /** PEM texts. */
  tls?: { cert: string; key: string };
}

export interface ListeningGrpc {
  port: number;
  /** Refuses new connections at once, says GOAWAY, lets calls in flight end, and cuts what is left after `drainMs`. */
  stop(drainMs: number): Promise<void>;
}

/** The head of a request as authentication reads it. */
function headOf(path: string, headers: IncomingHttpHeaders): Request {
  const plain = new Headers();
  for (const [name, value] of Object.entries(headers)) {
    if (name.startsWith(":") || value === undefined) continue;
    for (const one of Array.isArray(value) ? value : [value]) plain.append(name, one);
  }
  return new Request(`http://grpc.invalid${path}`, { method: "POST", headers: plain });
}

/** gRPC beside the main port: Bun's own server sends no trailers, without which there is no gRPC. */
export async function listenGrpc(options: GrpcOptions): Promise<ListeningGrpc> {
  const { edge, services, bodyBytesMax, tls } = options;
  const surface: Surface = { edge, bodyBytesMax, headers: baseHeaders("*") };
  const bound = boundMethods(options.registry.map(prepare));
  const handle = connectNodeAdapter({
    ...routerOptions(surface),
    grpc: true,
    // Without a body; the status stands in the head.
    fallback(request, response) {
      const path = String(request.url).slice(0, 200);
      response.writeHead(200, {
        "content-type": "application/grpc",
        "grpc-status": String(Code.Unimplemented),
        "grpc-message": encodeURIComponent(`no such procedure: ${path}`),
      });
      response.end();
    },
    routes: (router) => registerMethods(surface, router, services, bound),
    contextValues(request) {
      const path = request.url ?? "/";
      const head = headOf(path, request.headers);
      return visitOf(head, requestIdOf(head, edge.ids), bound.get(path.split("?")[0]!)?.prepared);
    },
  });

  const sessions = new Set<ServerHttp2Session>();
  const server: Http2Server | Http2SecureServer = tls
    ? createSecureServer({ cert: tls.cert, key: tls.key }, handle)
    : createServer(handle);
  server.on("session", (session: ServerHttp2Session) => {
    sessions.add(session);
    session.on("close", () => sessions.delete(session));
    session.on("error", (error: unknown) => edge.log.debug("grpc.session_failed", { error: String(error) }));
  });
  server.on("sessionError", (error: unknown) =>
    edge.log.debug("grpc.session_failed", { error: String(error) }),
  );
  await new Promise<void>((listening, failed) => {
    server.once("error", failed);
    server.listen(options.port, options.hostname, () => {
      server.off("error", failed);
      server.on("error", (error: unknown) => edge.log.warn("grpc.failed", { error: String(error) }));
      listening();
    });
  });
  const address = server.address();
  if (typeof address !== "object" || address === null) throw new Error("the gRPC port has no address");

  return {
    port: address.port,
    async stop(drainMs) {
      const closed = new Promise<void>((done) => server.close(() => done()));
      // GOAWAY; a session ends with its last call.
      for (const session of sessions) session.close();
      const over = new AbortController();
      await Promise.race([closed, edge.clock.sleep(drainMs, over.signal)]);
      over.abort();
      for (const session of sessions) session.destroy();
    },
  };
}
