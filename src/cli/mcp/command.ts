import { createHash, timingSafeEqual } from "node:crypto";
import { writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/webStandardStreamableHttp.js";
import { isLoopback } from "../../settings/settings.ts";
import type { CommonFlags } from "../command.ts";
import { targetOf } from "../connection.ts";
import { type Io, usage } from "../io.ts";
import { mcpBodyBytesMax, mcpTokenCharsMin } from "../limits.ts";
import { type McpOptions, mcpServer } from "./server.ts";

export interface McpFlags extends CommonFlags {
  allowWrites?: boolean;
  serverUrl?: string;
  staticOnly?: boolean;
  transport: string;
  host: string;
  port: string;
  portFile?: string;
}

const tokenVariable = "SVC_MCP_BEARER_TOKEN";

const untilOver = (signal: AbortSignal): Promise<void> =>
  new Promise((done) => {
    if (signal.aborted) return done();
    signal.addEventListener("abort", () => done(), { once: true });
  });

async function overStdio(options: McpOptions, { signal }: Io): Promise<void> {
  const server = mcpServer(options);
  const left = new Promise<void>((done) => {
    server.onclose = done;
    process.stdin.once("end", done);
    process.stdin.once("close", done);
  });
  await server.connect(new StdioServerTransport());
  await Promise.race([left, untilOver(signal)]);
  await server.close();
}

const digestOf = (text: string): Buffer => createHash("sha256").update(text).digest();

/** A browser's page sends a foreign name for this address, or an origin; a local client sends neither. */
function isLocal(request: Request): boolean {
  const host = URL.parse(`http://${request.headers.get("host") ?? ""}`)?.hostname ?? "";
  const origin = request.headers.get("origin");
  return isLoopback(host) && (origin === null || isLoopback(URL.parse(origin)?.hostname ?? ""));
}

/** One request by itself, of a caller who is let in. */
export async function answerMcp(request: Request, options: McpOptions): Promise<Response> {
  const server = mcpServer(options);
  const transport = new WebStandardStreamableHTTPServerTransport({ enableJsonResponse: true });
  await server.connect(transport as Parameters<typeof server.connect>[0]);
  try {
    return await transport.handleRequest(request);
  } finally {
    await server.close();
  }
}

/** `/mcp` on a loopback address: each request by itself, for callers with the token. */
export function mcpHttp(options: McpOptions, token: string, place: { host: string; port: number }) {
  const wanted = digestOf(`Bearer ${token}`);
  return Bun.serve({
    hostname: place.host,
    port: place.port,
    maxRequestBodySize: mcpBodyBytesMax,
    async fetch(request) {
      if (new URL(request.url).pathname !== "/mcp")
        return new Response("only /mcp is here\n", { status: 404 });
      if (!isLocal(request)) return new Response("only callers on this machine\n", { status: 403 });
      const given = request.headers.get("authorization") ?? "";
      if (!timingSafeEqual(digestOf(given), wanted))
        return new Response("the token is missing or wrong\n", {
          status: 401,
          headers: { "www-authenticate": "Bearer" },
        });
      if (request.method !== "POST") return new Response(null, { status: 405, headers: { allow: "POST" } });
      return answerMcp(request, options);
    },
  });
}

async function overHttp(options: McpOptions, { host, port, portFile }: McpFlags, io: Io): Promise<void> {
  const token = io.environment[tokenVariable] ?? "";
  if (token.length < mcpTokenCharsMin)
    throw usage(`${tokenVariable}: a token of at least ${mcpTokenCharsMin} characters is needed over HTTP`);
  if (!isLoopback(host)) throw usage(`--host: must be a loopback address, not ${host}`);
  if (!/^\d{1,5}$/.test(port) || Number(port) > 65_535) throw usage(`--port: must be a port, not ${port}`);
  const listening = mcpHttp(options, token, { host, port: Number(port) });
  try {
    if (portFile !== undefined) writeFileSync(resolve(io.folder, portFile), `${listening.port}\n`);
    io.note(`MCP at http://${host}:${listening.port}/mcp`);
    await untilOver(io.signal);
  } finally {
    await listening.stop(true);
  }
}

export async function runMcp(flags: McpFlags, io: Io): Promise<void> {
  const { serverUrl, allowWrites = false, staticOnly = false } = flags;
  const options: McpOptions = {
    target: targetOf({ ...flags, ...(serverUrl !== undefined && { server: serverUrl }) }, io),
    allowsWrites: allowWrites,
    isStatic: staticOnly,
  };
  if (flags.transport === "stdio") return overStdio(options, io);
  if (flags.transport === "streamable-http") return overHttp(options, flags, io);
  throw usage(`--transport: must be stdio or streamable-http, not ${flags.transport}`);
}
