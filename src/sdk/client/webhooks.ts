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
