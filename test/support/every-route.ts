import { connect } from "node:net";
import { socketOf } from "../../src/edge/openapi.ts";
import { parseRoute, restBindings } from "../../src/edge/rest.ts";
import { methodBindings, rpcBindings } from "../../src/edge/rpc.ts";
import { systemClock } from "../../src/kit/clock.ts";
import type { Operation } from "../../src/kit/operation.ts";

/** One way in: a REST route, a unary method, a stream, or the socket. */
export interface Way {
  operation: Operation;
  protocol: "rest" | "connect" | "stream" | "socket";
  method: string;
  /** With `{id}` in place of what it names. */
  path: string;
}

/** Every way into every operation, in the order of their names. */
export function everyWay(registry: readonly Operation[]): Way[] {
  const ways = registry.flatMap((operation): Way[] => {
    if (operation.mode !== "unary") {
      const streams = methodBindings(operation).map(
        ({ method: { parent, name } }): Way => ({
          operation,
          protocol: "stream",
          method: "POST",
          path: `/${parent.typeName}/${name}`,
        }),
      );
      const path = socketOf(operation)?.path;
      return path === undefined
        ? streams
        : [...streams, { operation, protocol: "socket", method: "GET", path }];
    }
    const rest = restBindings(operation).map(({ route }) => ({
      protocol: "rest" as const,
      ...parseRoute(route),
    }));
    const rpc = rpcBindings(operation).map(({ method }) => ({
      protocol: "connect" as const,
      method: "POST",
      path: `/${method.parent.typeName}/${method.name}`,
    }));
    return [...rest, ...rpc].map((way) => ({ operation, ...way }));
  });
  const order = (way: Way) => `${way.operation.name} ${way.path} ${way.method}`;
  return ways.sort((one, other) => (order(one) < order(other) ? -1 : 1));
}

/** For who goes all ways with one session: what ends it comes last. */
export function logoutLast(ways: readonly Way[]): Way[] {
  const isLogout = ({ operation: { name } }: Way) => name === "auth.logout";
  return [...ways.filter((way) => !isLogout(way)), ...ways.filter(isLogout)];
}

export interface Visitor {
  headers: Record<string, string>;
  /** With the question mark. */
  query?: string;
}

export interface Visited {
  status: number;
  /** As it came. */
  text: string;
  headers: Headers;
}

/** The answer to an upgrade, which no `fetch` shows; 101 is where the socket would begin. */
function upgrade(url: string, path: string, { headers }: Visitor): Promise<Visited> {
  const { hostname, port, host } = new URL(url);
  const sent = {
    host,
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    ...headers,
  };
  const lines = Object.entries(sent).map(([name, value]) => `${name}: ${value}\r\n`);
  return new Promise((answered, failed) => {
    const socket = connect(Number(port), hostname, () =>
      socket.write(`GET ${path} HTTP/1.1\r\n${lines.join("")}\r\n`),
    );
    let said = "";
    socket.once("error", failed);
    socket.on("data", (bytes) => {
      said += bytes;
      const end = said.indexOf("\r\n\r\n");
      if (end < 0) return;
      const head = said.slice(0, end);
      const text = said.slice(end + 4);
      const status = Number(head.split(" ", 2)[1]);
      if (status !== 101 && Buffer.byteLength(text) < Number(/content-length: (\d+)/i.exec(head)?.[1]))
        return;
      socket.destroy();
      const told = head
        .split("\r\n")
        .slice(1)
        .map((line): [string, string] => {
          const colon = line.indexOf(":");
          return [line.slice(0, colon), line.slice(colon + 1).trim()];
        });
      answered({ status, text: status === 101 ? "" : text, headers: new Headers(told) });
    });
  });
}

const envelope = (text: string): Uint8Array => {
  const body = new TextEncoder().encode(text);
  const framed = new Uint8Array(5 + body.length);
  new DataView(framed.buffer).setUint32(1, body.length);
  framed.set(body, 5);
  return framed;
};

/** An answer that takes so long, and longer than so many others one after the other, is held until something happens. */
const heldMs = 1_000;
const heldAnswers = 30;

/** A refusal is not mistaken for something held by a pause of this process: nobody else is answered in one either. */
async function held(url: string, signal: AbortSignal): Promise<Response> {
  await systemClock().sleep(heldMs, signal);
  for (let count = 0; count < heldAnswers && !signal.aborted; count++)
    await (await fetch(`${url}/api/v1/capabilities`)).text();
  return new Response("held", { status: 200 });
}

/** A field that no operation has: a stream that let somebody in ends there, instead of waiting for what may come. */
const noField = '{"thereIsNoSuchField":1}';

/** The texts of an input as a query; those that the path names stand there. */
function queryOf(way: Way, visitor: Visitor, body: object): string {
  const texts = Object.entries(body).filter(
    ([name, value]) => typeof value === "string" && !way.path.includes(`{${name}`),
  );
  const own = new URLSearchParams(texts as [string, string][]).toString();
  if (own === "") return visitor.query ?? "";
  return visitor.query === undefined ? `?${own}` : `${visitor.query}&${own}`;
}

/**
 * Goes in with what is given as the input, `{}` by default, in the query where there is no body. A stream's answer is read to its end and its status taken from
 * the code in it.
 */
export async function go(
  url: string,
  way: Way,
  visitor: Visitor,
  { param = () => "none", body = {} }: { param?: (name: string) => string; body?: object } = {},
): Promise<Visited> {
  const filled = way.path.replace(/\{(\w+)(?:\.\.\.)?\}/g, (_, name: string) =>
    encodeURIComponent(param(name)),
  );
  const path = filled + (way.method === "GET" ? queryOf(way, visitor, body) : (visitor.query ?? ""));
  if (way.protocol === "socket") return upgrade(url, path, visitor);
  const isStream = way.protocol === "stream";
  const sends = way.method !== "GET" && way.method !== "HEAD";
  const over = new AbortController();
  const asked = fetch(`${url}${path}`, {
    method: way.method,
    headers: {
      ...(sends && { "content-type": isStream ? "application/connect+json" : "application/json" }),
      ...visitor.headers,
    },
    ...(sends && { body: (isStream ? envelope(noField) : JSON.stringify(body)) as BodyInit }),
    redirect: "manual",
    signal: over.signal,
  });
  // What is held has let its caller in.
  const mayBeHeld = way.operation.mode === "unary" && way.operation.held === true;
  const response = mayBeHeld ? await Promise.race([asked, held(url, over.signal)]) : await asked;
  const text = await response.text();
  over.abort();
  void asked.catch(() => {});
  const code = isStream ? /"code":\s*"(\w+)"/.exec(text)?.[1] : undefined;
  const status = code === "permission_denied" ? 403 : code === "unauthenticated" ? 401 : response.status;
  return { status, text, headers: response.headers };
}

export const isLetIn = ({ status }: Visited): boolean => status !== 401 && status !== 403;
