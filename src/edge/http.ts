import type { DescService } from "@bufbuild/protobuf";
import { Elysia } from "elysia";
import type { Draining } from "../kit/closing.ts";
import { Fault } from "../kit/fault.ts";
import type { Operation } from "../kit/operation.ts";
import { openBodyBudget } from "./body-budget.ts";
import type { Edge } from "./call.ts";
import type { Connections, EdgeServer } from "./connections.ts";
import { baseHeaders, type Origins, preflight, requestIdOf } from "./headers.ts";
import { refusalOfRequest } from "./loopback.ts";
import { prepare } from "./perform.ts";
import { rpcInPlaceOf } from "./removed-routes.ts";
import {
  type HttpHandler,
  type IdleTimer,
  parseRoute,
  restBindings,
  restFault,
  restHandler,
  type Surface,
} from "./rest.ts";
import { connectFault, rpcRoutes } from "./rpc.ts";

/** A GET that becomes a WebSocket: upgrade and answer undefined, or refuse with a Response or a Fault. */
export interface Upgrade {
  /** `/ws`, or with parameters as in a route. */
  path: string;
  handle: (
    request: Request,
    server: EdgeServer,
    params: Record<string, string>,
  ) => Response | undefined | Promise<Response | undefined>;
}

/** Outside the registry, such as a page and its files. It sets its own content type and caching. */
export interface StaticPage {
  /** GET when left out. */
  method?: "GET" | "POST";
  path: string;
  handle: (
    request: Request,
    params: Record<string, string>,
    server: IdleTimer,
  ) => Response | Promise<Response>;
}

export interface EdgeOptions {
  edge: Edge;
  registry: readonly Operation[];
  services: readonly DescService[];
  pages?: readonly StaticPage[];
  upgrades?: readonly Upgrade[];
  hostname: string;
  /** 0 takes a free one. */
  port: number;
  bodyBytesMax: number;
  /** PEM; without it the port is cleartext. */
  tls?: { cert: string; key: string } | undefined;
  /** While it is active, every answer asks its connection to go. */
  draining?: Draining;
  connections?: Connections | undefined;
  origins?: Origins;
  /** A trusted proxy is in front of the port. */
  trustProxy?: boolean;
  /** Bun's options for every WebSocket: `idleTimeout`, `maxPayloadLength`, `backpressureLimit`, … */
  websocket?: object;
  /**
   * Seconds without a byte until a connection is closed; streams and held operations are exempt. At most 255.
   */
  idleSeconds?: number;
}

export interface ListeningEdge {
  port: number;
  url: string;
  server: EdgeServer;
  /** Refuses new connections at once, lets requests in flight end, and cuts what is left after `drainMs`. */
  stop(drainMs: number): Promise<void>;
}

interface ServedRoute {
  method: string;
  path: string;
  /** It asks for no credential. */
  isPublic?: boolean;
  handle: (request: Request, params: Record<string, string>, server: EdgeServer) => unknown;
}

const parameter = /^\{(\w+)(\.\.\.)?\}$/;

/**
 * `/a/{id}/keys/{key...}` for the router: parameters are named by their place, as it wants one name a place.
 */
function routerPath(path: string): { pattern: string; names: [placed: string, name: string][] } {
  const names: [string, string][] = [];
  const parts = path.split("/").map((part, place) => {
    const [, name, isRest] = parameter.exec(part) ?? [];
    if (name === undefined) return part;
    names.push([isRest ? "*" : `p${place}`, isRest ? "*" : name]);
    return isRest ? "*" : `:p${place}`;
  });
  return { pattern: parts.join("/"), names };
}

function pathTest(path: string): RegExp {
  const parts = path.split("/").map((part) => {
    const found = parameter.exec(part);
    if (!found) return part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    return found[2] ? ".*" : "[^/]+";
  });
  return new RegExp(`^${parts.join("/")}/?$`);
}

/**
 * A known path asked with a method it does not have: 405 with what it has. Anything else: 404, each in its
 * protocol's form.
 */
function fallback(surface: Surface, routes: readonly ServedRoute[]): HttpHandler {
  const known = routes.map(({ method, path }) => ({ method, test: pathTest(path) }));
  return async (request) => {
    const base = { ...surface.headers(request), "x-request-id": requestIdOf(request, surface.edge.ids) };
    if (request.method === "OPTIONS") return preflight(base);
    const { pathname } = new URL(request.url);
    const methods = new Set(known.filter(({ test }) => test.test(pathname)).map(({ method }) => method));
    if (methods.has("GET")) methods.add("HEAD");
    const isRpc = pathname.startsWith("/svc.v1.");
    const rpc = rpcInPlaceOf(request.method, pathname);
    if (rpc !== undefined) {
      const text = `no such route: ${request.method} ${pathname} was removed, POST ${rpc} took its place`;
      return restFault(new Fault("not_found", text), base);
    }
    if (methods.size > 0) {
      const detail = { headers: { Allow: [...methods, "OPTIONS"].join(", ") } };
      const fault = new Fault("method_not_allowed", `${request.method} is not allowed here`, detail);
      // Connect has no word for it; the status is what its clients go by.
      const answer = isRpc ? connectFault(fault, base) : restFault(fault, base);
      return isRpc ? new Response(answer.body, { status: 405, headers: answer.headers }) : answer;
    }
    if (!isRpc)
      return restFault(new Fault("not_found", `no such route: ${request.method} ${pathname}`), base);
    const answer = connectFault(new Fault("unimplemented", `no such procedure: ${pathname}`), base);
    return new Response(answer.body, { status: 404, headers: answer.headers });
  };
}

function upgradeRoute(surface: Surface, { path, handle }: Upgrade): ServedRoute {
  return {
    method: "GET",
    path,
    async handle(request, params, server) {
      try {
        return await handle(request, server, params);
      } catch (error) {
        const requestId = requestIdOf(request, surface.edge.ids);
        if (!(error instanceof Fault)) surface.edge.log.error("upgrade.defect", { path, requestId, error });
        const fault = error instanceof Fault ? error : new Fault("internal", "internal error");
        return restFault(fault, { ...surface.headers(request), "x-request-id": requestId });
      }
    },
  };
}

function pageRoute({ edge }: Surface, { method = "GET", path, handle }: StaticPage): ServedRoute {
  return {
    method,
    path,
    async handle(request, params, server) {
      const response = await handle(request, params, server);
      response.headers.set("x-request-id", requestIdOf(request, edge.ids));
      return response;
    },
  };
}

/** The route's handler for this machine's own pages and programs; others read nothing of the answer. */
function forLoopback({ edge, headers }: Surface, { handle, ...route }: ServedRoute): ServedRoute {
  return {
    ...route,
    handle(request, params, server) {
      const fault = refusalOfRequest(request);
      if (!fault) return handle(request, params, server);
      const base = { ...headers(request), "x-request-id": requestIdOf(request, edge.ids) };
      const answer = restFault(fault, base);
      answer.headers.delete("access-control-allow-origin");
      return answer;
    },
  };
}

/** The route's handler, reporting arrivals and answers to `follow`. Known callers use their connection. */
function followed(
  { edge }: Surface,
  route: ServedRoute,
  connections: Connections | undefined,
): ServedRoute["handle"] {
  const follow = edge.follow?.(route);
  if (!follow) return route.handle;
  const using = route.isPublic ? undefined : connections;
  return async (request, params, server) => {
    const answered = follow(request);
    using?.begun(request);
    let response: unknown;
    try {
      response = await route.handle(request, params, server);
    } catch (error) {
      answered("failed");
      throw error;
    } finally {
      using?.answered(request);
    }
    // No response of ours: the connection is a WebSocket now.
    answered(response instanceof Response ? response : "upgraded");
    return response;
  };
}

/**
 * The router takes a slash at the end as none. Clients that resolve `…/keys/..` send such a path: a DELETE of
 * it would take away what is above the thing that was named.
 */
function onlyWhole(surface: Surface, { handle, ...route }: ServedRoute): ServedRoute {
  if (route.method !== "DELETE" || route.path.endsWith("...}")) return { ...route, handle };
  return {
    ...route,
    handle(request, params, server) {
      const { pathname } = new URL(request.url);
      if (!pathname.endsWith("/")) return handle(request, params, server);
      const base = { ...surface.headers(request), "x-request-id": requestIdOf(request, surface.edge.ids) };
      return restFault(new Fault("not_found", `no such route: DELETE ${pathname}`), base);
    },
  };
}

function allRoutes(surface: Surface, options: EdgeOptions): ServedRoute[] {
  const registry = options.registry.map(prepare);
  const rest = registry.flatMap((prepared) => {
    if (prepared.operation.mode !== "unary") return [];
    return restBindings(prepared.operation).map((binding) =>
      onlyWhole(surface, {
        ...parseRoute(binding.route),
        isPublic: prepared.operation.action === null,
        handle: restHandler(surface, prepared, binding),
      }),
    );
  });
  const pages = (options.pages ?? []).map((page) => pageRoute(surface, page));
  const upgrades = (options.upgrades ?? []).map((upgrade) => upgradeRoute(surface, upgrade));
  const routes: ServedRoute[] = [
    ...rest,
    ...rpcRoutes(surface, options.services, registry),
    ...pages,
    ...upgrades,
  ];
  const seen = new Set<string>();
  for (const { method, path } of routes) {
    const key = `${method} ${routerPath(path).pattern}`;
    if (seen.has(key)) throw new Error(`two operations answer ${method} ${path}`);
    seen.add(key);
  }
  return routes;
}

/**
 * HTTP/1.1 clients leave a connection by this header; HTTP/2 forbids it and the server leaves it out there.
 */
const leavingWith =
  (draining: Draining) =>
  ({ method, path, handle }: ServedRoute): ServedRoute => ({
    method,
    path,
    handle(request, params, server) {
      const answer = handle(request, params, server);
      return draining.active ? Promise.resolve(answer).then(closing) : answer;
    },
  });

function closing(answer: unknown): unknown {
  if (answer instanceof Response) answer.headers.set("connection", "close");
  return answer;
}

/** What handlers see of Elysia's server. */
type ServerOf = (real: unknown) => EdgeServer;

function register(app: Elysia, { method, path, handle }: ServedRoute, serverOf: ServerOf): void {
  const { pattern, names } = routerPath(path);
  // Elysia prepares only what is destructured here; the body stays unread.
  if (names.length === 0) {
    const none = {};
    app.route(method, pattern, ({ request, server }) => handle(request, none, serverOf(server)));
    return;
  }
  app.route(method, pattern, ({ request, params, server }) => {
    const named: Record<string, string> = {};
    for (const [placed, name] of names) named[name] = (params as Record<string, string>)[placed] ?? "";
    return handle(request, named, serverOf(server));
  });
}

/**
 * Every surface on one port: REST, Connect, gRPC-Web, WebSocket and pages, over HTTP/1.1 and cleartext
 * HTTP/2.
 */
export async function listenEdge(options: EdgeOptions): Promise<ListeningEdge> {
  const { edge, bodyBytesMax, idleSeconds = 60 } = options;
  const surface: Surface = {
    edge,
    bodyBytesMax,
    room: openBodyBudget(),
    unsent: openBodyBudget("answers that are not taken"),
    idleSeconds,
    headers: baseHeaders(options.origins ?? "*", edge.installation),
    ...(options.trustProxy && { trustProxy: true }),
  };
  const routes = allRoutes(surface, options);
  const app = new Elysia({
    handler: { standardHostname: false },
    ...(options.websocket && { websocket: options.websocket }),
  });
  const { draining, connections } = options;
  const leaving = draining === undefined ? (route: ServedRoute) => route : leavingWith(draining);
  const open = (route: ServedRoute) => (edge.loopbackOnly ? forLoopback(surface, route) : route);
  const follow = (route: ServedRoute) =>
    leaving({ ...route, handle: followed(surface, open(route), connections) });
  let seen: EdgeServer | undefined;
  const serverOf: ServerOf = (real) => {
    seen ??= connections ? connections.following(real as EdgeServer) : (real as EdgeServer);
    return seen;
  };
  for (const route of routes) register(app as unknown as Elysia, follow(route), serverOf);
  const nowhere = follow({ method: "*", path: "*", handle: fallback(surface, routes) });
  app.all("/*", ({ request, server }) => nowhere.handle(request, {}, serverOf(server)));
  app.onError(({ error, request }) => {
    const requestId = requestIdOf(request, edge.ids);
    edge.log.error("http.defect", { requestId, error });
    const base = { ...surface.headers(request), "x-request-id": requestId };
    return restFault(new Fault("internal", "internal error"), base);
  });
  app.listen({
    hostname: options.hostname,
    port: options.port,
    http2: true,
    reusePort: false,
    ...(options.tls && { tls: options.tls }),
    idleTimeout: idleSeconds,
    // Ours is kept where bodies are read, in the form of the protocol; unread ones are held back by Bun and
    // pile up nowhere. Bun's would count all that a worker ever says on its stream.
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
  } as Parameters<typeof app.listen>[0]);
  const server = app.server;
  if (!server?.port) throw new Error(`cannot listen on ${options.hostname}:${options.port}`);
  connections?.listensAt(server.port);
  const host = options.hostname === "0.0.0.0" || options.hostname === "::" ? "127.0.0.1" : options.hostname;
  return {
    port: server.port,
    url: `${options.tls ? "https" : "http"}://${host.includes(":") ? `[${host}]` : host}:${server.port}`,
    server: server as unknown as EdgeServer,
    async stop(drainMs) {
      const over = new AbortController();
      const stopped = server.stop(false).then(() => over.abort());
      await Promise.race([stopped, edge.clock.sleep(drainMs, over.signal)]);
      if (!over.signal.aborted) await server.stop(true);
    },
  };
}
