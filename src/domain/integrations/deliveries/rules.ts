import { createHmac } from "node:crypto";
import type { Instant } from "../../../kit/clock.ts";
import { requireStorable } from "../../../kit/event-names.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { requireCallableUrl } from "../../../kit/outward-call.ts";
import { eventText, keyField } from "../../../kit/stored-event.ts";
import type { LoggedEvent } from "../../log/core/service.ts";
import { endpointGraceSecondsMax, endpointNameCharsMax, endpointUrlBytesMax } from "./limits.ts";

export const endpointStatuses = ["active", "paused", "disabled"] as const;

/** What begins every secret, as Standard Webhooks writes them; behind it is base64. */
export const secretStart = "whsec_";

export function requireName(name: string): string {
  requireStorable("name", name);
  if (name.length > endpointNameCharsMax) throw invalid("name", `at most ${endpointNameCharsMax} characters`);
  return name;
}

export function requireUrl(url: string): string {
  requireStorable("url", url);
  if (Buffer.byteLength(url) > endpointUrlBytesMax)
    throw invalid("url", `at most ${endpointUrlBytesMax} bytes`);
  requireCallableUrl("url", url);
  return url;
}

export function requireGrace(seconds: number): number {
  if (!Number.isInteger(seconds) || seconds < 0 || seconds > endpointGraceSecondsMax)
    throw invalid("grace_seconds", `must be from 0 to ${endpointGraceSecondsMax}`);
  return seconds;
}

export function requireStatus(status: string): string | undefined {
  if (status === "") return undefined;
  if (!(endpointStatuses as readonly string[]).includes(status))
    throw invalid("status", `must be one of ${endpointStatuses.join(", ")}`);
  return status;
}

/** The body of a call: the event, with the `type`, `timestamp` and `data` of Standard Webhooks. */
export const bodyOf = (event: LoggedEvent): string =>
  eventText(
    event,
    {
      type: event.name,
      sequence: event.position,
      ...keyField(event),
      ...(event.entity_id !== null && {
        entity_id: event.entity_id,
        entity_type: event.entity_type,
        entity_version: event.entity_version,
      }),
      ...(event.run_id !== null && { run_id: event.run_id }),
    },
    "absent",
  );

/**
 * The headers of Standard Webhooks, with a signature by each secret: a receiver may know either. A secret
 * that does not begin as those of the standard do is the key itself.
 */
export function headersOf(
  id: string,
  body: string,
  secrets: readonly string[],
  at: Instant,
): Record<string, string> {
  const seconds = String(Math.floor(at / 1_000));
  const signature = (secret: string) => {
    const isOurs = secret.startsWith(secretStart);
    const key = isOurs ? Buffer.from(secret.slice(secretStart.length), "base64") : Buffer.from(secret);
    return `v1,${createHmac("sha256", key).update(`${id}.${seconds}.${body}`).digest("base64")}`;
  };
  return {
    "webhook-id": id,
    "webhook-timestamp": seconds,
    "webhook-signature": secrets.map(signature).join(" "),
  };
}

/** What one call came to. */
export type CallOutcome =
  | { kind: "delivered" }
  /** The receiver wants no more of anything. */
  | { kind: "gone" }
  | { kind: "failed"; error: string; retryAfterMs: number | undefined };

const httpDate = /^[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT$/;

/** Seconds, or an instant of the receiver's clock. */
function retryAfterOf(headers: Headers, now: Instant): number | undefined {
  const text = headers.get("retry-after") ?? "";
  if (/^\d{1,6}$/.test(text)) return Number(text) * 1_000;
  const said = Date.parse(headers.get("date") ?? "");
  const at = httpDate.test(text) ? Date.parse(text) : Number.NaN;
  return Number.isNaN(at) ? undefined : Math.max(0, at - (Number.isNaN(said) ? now : said));
}

export function outcomeOf(
  { status, headers }: Pick<Response, "status" | "headers">,
  now: Instant,
): CallOutcome {
  if (status >= 200 && status < 300) return { kind: "delivered" };
  if (status === 410) return { kind: "gone" };
  return {
    kind: "failed",
    error: `the endpoint answered ${status}`,
    retryAfterMs: retryAfterOf(headers, now),
  };
}

/** Entities with such ids are the platform's own. */
export const ownEntities = "svc:";

export const missingEndpoint = (id: string): Fault =>
  new Fault("not_found", `webhook endpoint ${id.slice(0, 255)} not found`);
