import { type Client, createClient } from "../client/client.ts";
import type { AgentTools, Tool } from "../client/tool-types.ts";
import { messageOf } from "../wire/errors.ts";
import { consoleLogger } from "../wire/log.ts";
import { bytesOfHex, isSigned, readBody } from "../wire/signature.ts";
import { type ConnectionOptions, connectionOf } from "../wire/transport.ts";
import type { Logger } from "../wire/types.ts";

export interface ServeToolsOptions extends ConnectionOptions {
  /** Instead of connection options. Needed only by `register`. */
  client?: Pick<Client, "tools">;
  /** As `defineTools` made them. */
  tools: AgentTools;
  /** What `client.tools.register` answered; several while it changes. `register` here adds its own. */
  secret?: string | readonly string[];
  log?: Logger;
}

/**
 * A fetch handler, for `Bun.serve({ fetch })` and frameworks that speak Request and Response; `toNodeHandler`
 * makes one for node:http of it.
 */
export interface ServeToolsHandler {
  (request: Request): Promise<Response>;
  /** Registers the tools for calls to `callbackUrl`, which leads here; uses their secret. Throws SvcError. */
  register(callbackUrl: string): Promise<void>;
}

/** Where the server calls, after the callback URL. */
export const dispatchPath = "/svc/agent-tools/dispatch";

/** Bytes of a request; more than any input that the server takes. */
const requestBytesMax = 4 * 1024 * 1024;
/** How old a signed request may be, and how far its time may lie ahead. */
const olderSecondsMax = 300;
const aheadSecondsMax = 60;

const encoder = new TextEncoder();

/** The request is refused; `status` and `code` go into the answer. */
class Refusal extends Error {
  readonly status: number;
  readonly code: string;
  constructor(status: number, code: string, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const mismatch = () => new Refusal(401, "SIGNATURE_MISMATCH", "the signature does not fit");

/** Throws Refusal. */
async function requireSigned(request: Request, body: Uint8Array, secrets: readonly string[]): Promise<void> {
  const seconds = request.headers.get("x-svc-timestamp") ?? "";
  const [, hex] = /^sha256=([0-9a-fA-F]{64})$/.exec(request.headers.get("x-svc-signature") ?? "") ?? [];
  if (hex === undefined || !/^\d{1,12}$/.test(seconds)) throw mismatch();
  const fits = await Promise.all(
    secrets.map((secret) => isSigned(bytesOfHex(secret), hex, encoder.encode(`${seconds}.`), body)),
  );
  if (!fits.includes(true)) throw mismatch();
  const ageSeconds = Date.now() / 1_000 - Number(seconds);
  if (ageSeconds > olderSecondsMax || ageSeconds < -aheadSecondsMax)
    throw new Refusal(401, "TIMESTAMP_SKEW", "the request is too old, or from the future");
}

/** Throws Refusal. */
function readCall(body: Uint8Array): { name: string; input: unknown } {
  let fields: unknown;
  try {
    fields = JSON.parse(new TextDecoder().decode(body));
  } catch {
    throw new Refusal(400, "INVALID_REQUEST", "the body is not JSON");
  }
  const { qualified_name: name, input = null } = (fields ?? {}) as Record<string, unknown>;
  if (typeof name !== "string")
    throw new Refusal(400, "INVALID_REQUEST", "qualified_name: a text is required");
  return { name, input };
}

/**
 * Answers the server's calls to an agent's tools: only those signed with the agent's secret, and not too old.
 * `const handler = serveTools({ tools });
 * Bun.serve({ fetch: handler }); await handler.register("https://agent.example.com")`
 */
export function serveTools(options: ServeToolsOptions): ServeToolsHandler {
  const { tools, secret = [] } = options;
  const byName = new Map<string, Tool>(Object.values(tools.tools).map((tool) => [tool.qualifiedName, tool]));
  const log = options.log ?? consoleLogger();
  let secrets = typeof secret === "string" ? [secret] : [...secret];
  if (!secrets.every((one) => /^([0-9a-f]{2})+$/i.test(one)))
    throw new TypeError("secret: must be hex, as client.tools.register answers it");

  async function dispatch(request: Request): Promise<Response> {
    if (!new URL(request.url).pathname.endsWith(dispatchPath))
      throw new Refusal(404, "NOT_FOUND", "tools are called elsewhere");
    if (request.method !== "POST")
      throw new Refusal(405, "METHOD_NOT_ALLOWED", `${request.method} is not answered here`);
    const body = await readBody(request, requestBytesMax);
    if (!body) throw new Refusal(400, "INVALID_REQUEST", `the body has more than ${requestBytesMax} bytes`);
    await requireSigned(request, body, secrets);
    const { name, input } = readCall(body);
    const tool = byName.get(name);
    // Answered as a wrong signature is, so that the two look the same.
    if (!tool) throw mismatch();
    const checked = await tool.check(input);
    if ("issues" in checked) throw new Refusal(400, "INPUT_SCHEMA_INVALID", checked.issues);
    try {
      const output = await tool.run(checked.value, { name, signal: request.signal });
      return Response.json({ output: output ?? null });
    } catch (error) {
      const message = messageOf(error);
      log.warn("a tool failed", { tool: name, reason: message });
      return Response.json({ error: { code: "HANDLER_ERROR", message } });
    }
  }

  async function handle(request: Request): Promise<Response> {
    try {
      return await dispatch(request);
    } catch (error) {
      if (error instanceof Refusal)
        return Response.json(
          { error: { code: error.code, message: error.message } },
          { status: error.status },
        );
      log.error("an endpoint of tools broke", { reason: messageOf(error) });
      return Response.json(
        { error: { code: "INTERNAL_ERROR", message: "the endpoint failed" } },
        { status: 500 },
      );
    }
  }

  return Object.assign(handle, {
    async register(callbackUrl: string): Promise<void> {
      const client = options.client ?? createClient(connectionOf(options));
      const made = await client.tools.register(tools, { callbackUrl });
      // Calls that are under way are still signed with the one before.
      secrets = [made.secret, ...secrets.slice(0, 1)];
    },
  });
}
