import { type Duration, withUnits } from "../wire/duration.ts";
import { signatureSkewSecondsMax } from "../wire/signature.ts";
import type { EventMap, Logger } from "../wire/types.ts";
import type { Client } from "./client.ts";

/** The event that a provider's request is turned into. */
export interface WebhookEvent {
  name: string;
  data: unknown;
  /** The id of the provider's message: providers repeat unanswered ones, and it is then emitted once. */
  idempotencyKey?: string;
}

export interface WebhookRequest {
  headers: Headers;
  /** As it was sent; signatures are over these bytes. */
  rawBody: Uint8Array;
  text: string;
  url: string;
}

/** How requests of one provider are checked and turned into events. */
export interface WebhookRule {
  /** Whether the provider sent this. What it throws counts as no. */
  verify(request: WebhookRequest): boolean | Promise<boolean>;
  transform(request: WebhookRequest): WebhookEvent | Promise<WebhookEvent>;
}

/** Verifies, transforms and emits; the answer is for the provider. */
export async function answerWebhook<Events extends EventMap>(
  rule: WebhookRule | undefined,
  {
    id,
    request,
    body,
    client,
    log,
  }: {
    id: string;
    request: Request;
    body: Uint8Array;
    client: Client<Events>;
    log: Logger;
  },
): Promise<Response> {
  const refuse = (status: number, code: string, message: string, cause?: unknown) => {
    log.warn("webhook refused", { webhook: id, code, ...(cause !== undefined && { reason: String(cause) }) });
    return Response.json({ error: { message, code } }, { status });
  };
  if (!rule) return refuse(404, "WEBHOOK_NOT_FOUND", `there is no webhook ${id}`);
  const given: WebhookRequest = {
    headers: request.headers,
    rawBody: body,
    text: new TextDecoder().decode(body),
    url: request.url,
  };
  try {
    if (!(await rule.verify(given))) return refuse(401, "VERIFY_FAILED", "the request could not be verified");
  } catch (error) {
    return refuse(401, "VERIFY_FAILED", "the request could not be verified", error);
  }
  let event: WebhookEvent;
  try {
    event = await rule.transform(given);
  } catch (error) {
    return refuse(400, "TRANSFORM_FAILED", "the request could not be turned into an event", error);
  }
  try {
    const { name, data, idempotencyKey } = event;
    await client.emit(name as never, data as never, idempotencyKey === undefined ? {} : { idempotencyKey });
    return Response.json({ status: "accepted", event: name });
  } catch (error) {
    return refuse(502, "EMIT_FAILED", "the event could not be emitted", error);
  }
}

export interface VerifyWebhookOptions {
  /** As they came: `request.headers`, or an object of them. */
  headers: Headers | Readonly<Record<string, string | readonly string[] | undefined>>;
  /** As it came, unparsed: the signature is over these bytes. */
  body: string | Uint8Array;
  /** `whsec_…`; several while a secret is rotated. */
  secret: string | readonly string[];
  /** How far the clocks may be apart. Default 5 minutes. */
  tolerance?: Duration;
  /** @deprecated Write `tolerance`. */
  toleranceSeconds?: number;
  /** Instead of now, in milliseconds. */
  now?: number;
}

/** A webhook of a server of ours. */
export interface VerifiedWebhook<Data = unknown> {
  /** The same in every repeat of it: keep it to handle an event once. */
  id: string;
  /** The event's name. */
  type: string;
  data: Data;
  timestamp: string;
  /** The whole body. */
  event: Record<string, unknown>;
}

/** The request is not what the server sent, or too old. */
export class WebhookVerificationError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "WebhookVerificationError";
  }
}

const encoder = new TextEncoder();

function bytesOf(base64: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  } catch {
    return undefined;
  }
}

async function keyOf(secret: string): Promise<CryptoKey> {
  const bytes = bytesOf(secret.replace(/^whsec_/, ""));
  if (!bytes || bytes.length === 0) throw new TypeError("secret: must be base64 behind whsec_");
  return crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
}

/** Several values follow each other, as the signatures in one value do. */
function headerOf(headers: VerifyWebhookOptions["headers"], name: string): string {
  const all = headers instanceof Headers ? headers.get(name) : undefined;
  if (all !== undefined) return all ?? "";
  const given = headers as Readonly<Record<string, string | readonly string[] | undefined>>;
  const found = Object.keys(given).find((one) => one.toLowerCase() === name);
  const value = found === undefined ? undefined : given[found];
  return typeof value === "string" ? value : (value?.join(" ") ?? "");
}

/**
 * Whether a request is a webhook as Standard Webhooks signs them, by one of the secrets and not too old.
 * Answers what it says; throws `WebhookVerificationError` for every other request.
 */
export async function verifyWebhook<Data = unknown>(
  options: VerifyWebhookOptions,
): Promise<VerifiedWebhook<Data>> {
  const given = withUnits("verifyWebhook", options, { toleranceSeconds: "tolerance" }, { endless: true });
  const { headers, body, secret, toleranceSeconds = signatureSkewSecondsMax, now = Date.now() } = given;
  const [id, seconds, signatures] = ["id", "timestamp", "signature"].map((name) =>
    headerOf(headers, `webhook-${name}`),
  ) as [string, string, string];
  if (id === "" || seconds === "" || signatures === "")
    throw new WebhookVerificationError("webhook-id, webhook-timestamp or webhook-signature is missing");
  if (!/^\d{1,12}$/.test(seconds) || Math.abs(now / 1_000 - Number(seconds)) > toleranceSeconds)
    throw new WebhookVerificationError(
      `the timestamp is more than ${toleranceSeconds} seconds away from now`,
    );
  const sent = typeof body === "string" ? encoder.encode(body) : body;
  if (!(sent instanceof Uint8Array))
    throw new TypeError("body: must be text or bytes as they came, unparsed and unread");
  const head = encoder.encode(`${id}.${seconds}.`);
  const signed = new Uint8Array(head.length + sent.length);
  signed.set(head);
  signed.set(sent, head.length);
  const keys = await Promise.all((typeof secret === "string" ? [secret] : secret).map(keyOf));
  for (const entry of signatures.split(/,?\s+/)) {
    const signature = entry.startsWith("v1,") ? bytesOf(entry.slice("v1,".length)) : undefined;
    if (!signature) continue;
    // Compares in constant time.
    for (const key of keys)
      if (await crypto.subtle.verify("HMAC", key, signature, signed)) return read<Data>(id, sent);
  }
  throw new WebhookVerificationError("no signature fits");
}

function read<Data>(id: string, body: Uint8Array): VerifiedWebhook<Data> {
  const event = JSON.parse(new TextDecoder().decode(body)) as Record<string, unknown>;
  return {
    id,
    type: String(event.type),
    data: event.data as Data,
    timestamp: String(event.timestamp),
    event,
  };
}
