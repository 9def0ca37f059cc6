import { type Client, createClient } from "../client/client.ts";
import { answerWebhook, type WebhookRule } from "../client/webhooks.ts";
import { registration } from "../steps/function.ts";
import { repeatedId, type SvcFunction } from "../steps/svc-function.ts";
import { messageOf } from "../wire/errors.ts";
import { consoleLogger, ownLogger } from "../wire/log.ts";
import { readBody, verifySignature } from "../wire/signature.ts";
import { type ConnectionOptions, callForRun, connectionOf, variable } from "../wire/transport.ts";
import type { EventMap, Logger } from "../wire/types.ts";
import { PushFault, performPush, readPush } from "./push.ts";
import { dispatchPath, type ServeToolsHandler } from "./serve-tools.ts";

export interface ServeOptions<Events extends EventMap = EventMap> extends ConnectionOptions {
  /** Instead of connection options. Only for steps that publish or emit, for webhooks and to register. */
  client?: Client<Events>;
  functions: readonly SvcFunction[];
  /**
   * The key with which the server signs its requests (its SVC_SIGNING_KEY); several while it is changed.
   * Default: the variable SVC_SIGNING_KEY. `null` takes requests from anyone who can reach the endpoint.
   */
  signingKey?: string | readonly string[] | null;
  /** Answers on paths that end with `/webhooks/{id}`. */
  webhooks?: Readonly<Record<string, WebhookRule>>;
  /** What `serveTools` made: answers on paths that end with `/svc/agent-tools/dispatch`. */
  tools?: ServeToolsHandler;
  /** As of a worker. */
  captureConsole?: boolean;
  log?: Logger;
}

/**
 * A fetch handler, for `Bun.serve({ fetch })` and frameworks that speak Request and Response; `toNodeHandler`
 * makes one for node:http of it.
 */
export interface ServeHandler {
  (request: Request): Promise<Response>;
  /** Registers every function for push to `endpointUrl`, where this handler is reached. Throws SvcError. */
  register(endpointUrl: string): Promise<void>;
}

/** Bytes of a request; more than any run of the server can have. */
const requestBytesMax = 64 * 1024 * 1024;

/**
 * Functions behind an HTTP endpoint that the server calls (push mode). A call runs the handler to its end or
 * next yield, and must be answered within the server's time for a call (10 s by default): long work belongs
 * in a worker. Throws TypeError without functions or without a signing key.
 */
export function serve<Events extends EventMap = EventMap>(options: ServeOptions<Events>): ServeHandler {
  const { functions, webhooks = {}, tools } = options;
  const byId = new Map(functions.map((one) => [one.id, one]));
  if (byId.size < functions.length)
    throw new TypeError(`two functions of an endpoint have the same id ${repeatedId(functions)}`);
  if (byId.size === 0 && Object.keys(webhooks).length === 0 && !tools)
    throw new TypeError("an endpoint needs functions, webhooks or tools");
  const { signingKey = variable("SVC_SIGNING_KEY") } = options;
  if (byId.size > 0 && (signingKey === undefined || signingKey?.length === 0))
    throw new TypeError("serve needs signingKey or SVC_SIGNING_KEY; null takes unsigned requests");
  const keys = signingKey == null ? [] : typeof signingKey === "string" ? [signingKey] : signingKey;
  const log = ownLogger(options.log ?? consoleLogger());
  const client = options.client ?? createClient<Events>(connectionOf(options));
  const environment = options.environment ?? variable("SVC_ENV");
  const headers = {
    "content-type": "application/json",
    ...(environment !== undefined && { "x-svc-environment": environment }),
  };

  const answer = (status: number, text: string) => new Response(text, { status, headers });
  const refusal = ({ status, code, message }: PushFault) =>
    answer(status, JSON.stringify({ error: { message, code } }));

  async function bodyOf(request: Request): Promise<Uint8Array> {
    const body = await readBody(request, requestBytesMax);
    if (body === undefined)
      throw new PushFault(400, "VALIDATION_ERROR", `the body has more than ${requestBytesMax} bytes`);
    return body;
  }

  async function requireSigned(request: Request, body: Uint8Array): Promise<void> {
    if (signingKey === null) return;
    const verdict = await verifySignature(keys, request.headers.get("x-svc-signature"), body, Date.now());
    if (verdict === "missing") throw new PushFault(401, "SIGNATURE_MISSING", "X-Svc-Signature is required");
    if (verdict === "invalid")
      throw new PushFault(401, "SIGNATURE_INVALID", "the signature is wrong or too old");
  }

  async function performRequest(request: Request): Promise<Response> {
    if (request.method !== "POST")
      throw new PushFault(405, "METHOD_NOT_ALLOWED", `${request.method} is not answered here`);
    const { pathname } = new URL(request.url);
    if (tools && pathname.endsWith(dispatchPath)) return tools(request);
    const webhook = /\/webhooks\/([^/]+)\/?$/.exec(pathname)?.[1];
    const body = await bodyOf(request);
    if (webhook !== undefined) {
      const id = decoded(webhook);
      return answerWebhook(Object.hasOwn(webhooks, id) ? webhooks[id] : undefined, {
        id,
        request,
        body,
        client,
        log,
      });
    }
    await requireSigned(request, body);
    const push = readPush(new TextDecoder().decode(body));
    const target = byId.get(push.function_id);
    if (!target)
      throw new PushFault(404, "FUNCTION_NOT_FOUND", `this endpoint has no function ${push.function_id}`);
    const { transport } = client;
    if (push.sequence !== undefined) transport.last.note(push.sequence);
    const call = callForRun(transport);
    const { captureConsole: keepsConsole = false } = options;
    return answer(200, await performPush(push, target, { call, signal: request.signal, keepsConsole, log }));
  }

  async function handle(request: Request): Promise<Response> {
    try {
      return await performRequest(request);
    } catch (error) {
      if (error instanceof PushFault) return refusal(error);
      log.error("an endpoint broke", { reason: messageOf(error) });
      return refusal(new PushFault(500, "INTERNAL_ERROR", "the endpoint failed"));
    }
  }

  return Object.assign(handle, {
    async register(endpointUrl: string): Promise<void> {
      for (const one of byId.values()) {
        await client.registerFunction({ ...(await registration(one)), mode: "push", endpointUrl });
      }
    },
  });
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
