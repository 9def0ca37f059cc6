import { errorOfCode } from "../wire/envelopes.ts";
import type { SvcError } from "../wire/errors.ts";
import { type Arrived, type Ask, digits } from "./subscription-ways.ts";

/** Any frame of the server; the fields of an event are named. */
export type SocketMessage = Record<string, unknown> & {
  meta?: { timestamp?: string; sequence?: number; sequenceExact?: string; custom?: Record<string, unknown> };
};

/** One answer in a `subscription_result`. */
export interface SubscribeResult {
  pattern: string;
  status: string;
  subscriptionId?: string;
  code?: string;
  message?: string;
  reason?: string;
  startSequence?: string;
  epoch?: string;
}

export function subscribeFrame({ pattern, replay, filter, topicOnly, startAfter, epoch }: Ask): string {
  const options = {
    // The position to continue from stands in the metadata.
    includeMetadata: true,
    withStart: true,
    withPositions: true,
    ...(replay && { replay }),
    ...(filter && { filter }),
    ...(topicOnly && { topicOnly }),
    ...(startAfter !== undefined && { startAfterSequence: `${startAfter}` }),
    ...(epoch !== undefined && { epoch: `${epoch}` }),
  };
  return JSON.stringify({ type: "subscribe", subscription: { pattern, options } });
}

export const unsubscribeFrame = (subscriptionId: string): string =>
  JSON.stringify({ type: "unsubscribe", subscriptionId });

/** Asks for a sign of life: no server knows the empty pattern, and every server says so. */
export const probeFrame = JSON.stringify({ type: "subscribe", subscription: { pattern: "" } });

export function arrivedOfFrame(frame: SocketMessage): Arrived {
  const { meta, eventId } = frame;
  const sequence = digits(meta?.sequenceExact) ?? digits(meta?.sequence);
  return {
    topic: String(frame.topic),
    data: frame.data,
    ...(typeof eventId === "string" && { eventId }),
    ...(sequence !== undefined && { sequence }),
    ...(meta?.timestamp !== undefined && { timestamp: meta.timestamp }),
    ...(meta?.custom !== undefined && { metadata: meta.custom }),
  };
}

/** Error codes of sockets, as the codes of all other calls. Any other one says that the request was wrong. */
const codes: Record<string, string> = { PERMISSION_DENIED: "permission_denied", INTERNAL_ERROR: "internal" };

export const refusal = ({
  code = "INTERNAL_ERROR",
  message = code,
  reason,
}: Partial<SubscribeResult>): SvcError => errorOfCode(codes[code] ?? "invalid_argument", message, reason);

const urlSafe = (text: string): string =>
  btoa(String.fromCharCode(...new TextEncoder().encode(text)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");

/** A browser's socket has no headers: its address names the environment, a subprotocol carries the key. */
export function socketAddress(
  url: string,
  headers: Record<string, string>,
  path = "/ws",
): { url: string; protocols: string[] } {
  const { authorization = "", "x-svc-environment": environment } = headers;
  const key = authorization.replace(/^Bearer /, "");
  const mark = path.includes("?") ? "&" : "?";
  const query = environment === undefined ? "" : `${mark}env=${encodeURIComponent(environment)}`;
  return {
    url: `${url.replace(/^http/, "ws")}${path}${query}`,
    protocols: ["svc.v1", ...(key === "" ? [] : [`svc.auth.bearer.${urlSafe(key)}`])],
  };
}
