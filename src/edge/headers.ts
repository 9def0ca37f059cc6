import type { Ids } from "../kit/ids.ts";
import { minSequenceHeader, sequenceHeader } from "../kit/sequence.ts";

/** Names the installation that answers, the same at all of its nodes. */
export const installationHeader = "X-Svc-Installation";

/** Browser origins that may call: any (then no cookie is ever accepted from them), or a closed list. */
export type Origins = "*" | readonly string[];

const allowedMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/** Headers that browser clients send: ours, Connect's and gRPC-Web's. */
const allowedHeaders = [
  "Authorization",
  "Content-Type",
  "X-Svc-Environment",
  "X-Svc-Org",
  "X-Svc-Run-ID",
  minSequenceHeader,
  "X-Request-Id",
  "Idempotency-Key",
  "If-Match",
  "If-None-Match",
  "Connect-Protocol-Version",
  "Connect-Timeout-Ms",
  "Connect-Content-Encoding",
  "Connect-Accept-Encoding",
  "Grpc-Timeout",
  "X-Grpc-Web",
  "X-User-Agent",
].join(", ");

const exposedHeaders = [
  "X-Request-Id",
  sequenceHeader,
  installationHeader,
  "Retry-After",
  "ETag",
  "Svc-Error-Reason",
  "Idempotent-Replay",
  "Connect-Content-Encoding",
  "Grpc-Status",
  "Grpc-Message",
  "Grpc-Status-Details-Bin",
].join(", ");

/** On every answer. An API's answers are for the caller alone; an operation may say otherwise. */
const always: Record<string, string> = {
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "referrer-policy": "no-referrer",
  "cache-control": "no-store",
  "access-control-expose-headers": exposedHeaders,
};

/** The headers that every answer to this request carries; shared objects, so copy before adding. */
export type BaseHeaders = (request: Request) => Readonly<Record<string, string>>;

export function baseHeaders(origins: Origins, installation?: string): BaseHeaders {
  const own = {
    ...always,
    ...(installation !== undefined && { [installationHeader.toLowerCase()]: installation }),
  };
  const forAnyone = { ...own, "access-control-allow-origin": "*" };
  if (origins === "*") return () => forAnyone;
  const stranger = { ...own, vary: "Origin" };
  const known = new Map(
    origins.map((origin) => [
      origin,
      { ...stranger, "access-control-allow-origin": origin, "access-control-allow-credentials": "true" },
    ]),
  );
  return (request) => known.get(request.headers.get("origin") ?? "") ?? stranger;
}

const ofJson = new WeakMap<Readonly<Record<string, string>>, Headers>();

/**
 * Of an answer in JSON that says nothing else: copying what is common to all takes a third of the time of
 * writing it again.
 */
export function jsonHeaders(base: Readonly<Record<string, string>>, requestId: string): Headers {
  let common = ofJson.get(base);
  if (!common) {
    common = new Headers({ ...base, "content-type": "application/json" });
    ofJson.set(base, common);
  }
  const headers = new Headers(common);
  headers.set("x-request-id", requestId);
  return headers;
}

/** The answer to any OPTIONS request, without authentication. */
export function preflight(base: Readonly<Record<string, string>>): Response {
  return new Response(null, {
    status: 204,
    headers: {
      ...base,
      allow: allowedMethods,
      "access-control-allow-methods": allowedMethods,
      "access-control-allow-headers": allowedHeaders,
      "access-control-max-age": "86400",
    },
  });
}

const loggable = /^[A-Za-z0-9._-]{1,128}$/;

/** The caller's own `X-Request-Id` when it is fit for a log line of any form, else a new one. */
export function requestIdOf(request: Request, ids: Ids): string {
  const sent = request.headers.get("x-request-id");
  return sent !== null && loggable.test(sent) ? sent : ids.next("req");
}

/** Adds an operation's own headers. Names are lowered, so that none is sent twice. */
export function withHeaders(
  base: Record<string, string>,
  own: Record<string, string> | undefined,
): Record<string, string> {
  if (own) for (const [name, value] of Object.entries(own)) base[name.toLowerCase()] = value;
  return base;
}
