import { Fault, invalid } from "../../../kit/fault.ts";
import { jsonText, parseJson, parseJsonBytes } from "../../../kit/payload-json.ts";
import { formFieldsMax } from "./limits.ts";
import type { VerifyConfig } from "./rules.ts";
import * as rules from "./rules.ts";

/** A provider's request as it came: signatures are over these bytes. */
export interface WebhookContent {
  bytes: Uint8Array;
  /** Names in lower case. */
  headers: Readonly<Record<string, string>>;
  /** The query without its question mark. */
  query: string;
}

/** A header that came; never what every object has, whatever a configuration names. */
export const headerIn = (headers: WebhookContent["headers"], name: string): string | undefined => {
  const own = name.toLowerCase();
  return Object.hasOwn(headers, own) ? headers[own] : undefined;
};

const typeOf = ({ headers }: Pick<WebhookContent, "headers">): string =>
  (headers["content-type"] ?? "").split(";")[0]!.trim().toLowerCase();

export const isForm = (content: Pick<WebhookContent, "headers">): boolean =>
  typeOf(content) === "application/x-www-form-urlencoded";

const utf8 = new TextDecoder("utf-8", { fatal: true });

function textOf(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch {
    throw invalid("body", "must be UTF-8");
  }
}

const ampersand = "&".charCodeAt(0);

/** Whether a form has more fields than are read: sorting millions of them would hold everybody up. */
function hasTooManyFields(bytes: Uint8Array): boolean {
  let fields = 1;
  for (let at = bytes.indexOf(ampersand); at >= 0; at = bytes.indexOf(ampersand, at + 1))
    if (++fields > formFieldsMax) return true;
  return false;
}

/** None of a form with too many fields, which no signature fits then. */
export const formPairs = (bytes: Uint8Array): [string, string][] =>
  hasTooManyFields(bytes) ? [] : [...new URLSearchParams(new TextDecoder().decode(bytes))];

/** A field that comes several times is a list. */
function formOf(bytes: Uint8Array): Record<string, string | string[]> {
  if (hasTooManyFields(bytes)) throw invalid("body", `at most ${formFieldsMax} form fields`);
  const form: Record<string, string | string[]> = Object.create(null);
  for (const [name, value] of new URLSearchParams(textOf(bytes))) {
    const before = form[name];
    if (before === undefined) form[name] = value;
    else if (Array.isArray(before)) before.push(value);
    else form[name] = [before, value];
  }
  return { ...form };
}

/** The data of the event: JSON, `{form}` or `{text}`. Throws the fault that names the body. */
export function dataOf(content: WebhookContent): unknown {
  if (isForm(content)) return { form: formOf(content.bytes) };
  if (typeOf(content).startsWith("text/")) return { text: textOf(content.bytes) };
  if (content.bytes.byteLength === 0) throw invalid("body", "must not be empty");
  return parseJsonBytes(content.bytes);
}

/** The value at a path of a body or headers; undefined when missing or no text, number or boolean. */
export function textAt(
  path: string,
  { headers, data }: { headers: Readonly<Record<string, string>>; data: unknown },
): string | undefined {
  if (path.startsWith("header:")) return headerIn(headers, path.slice("header:".length));
  let value = data;
  for (const part of path.replace(/^body:/, "").split(".")) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, part)) return undefined;
    value = (value as Record<string, unknown>)[part];
  }
  // An integer that JSON has rounded is another number: two ids would be taken for one.
  if (typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value)) return undefined;
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean"
    ? String(value)
    : undefined;
}

export interface ReadBody {
  data: unknown;
  /** The same for reading names and times out of it. */
  readable: unknown;
  /** Why the body is no event's: then it has no data. */
  fault: Fault | undefined;
}

export function bodyOf(content: WebhookContent): ReadBody {
  try {
    const data = dataOf(content);
    return { data, readable: isForm(content) ? (data as { form: unknown }).form : data, fault: undefined };
  } catch (error) {
    if (error instanceof Fault) return { data: undefined, readable: undefined, fault: error };
    throw error;
  }
}

/** The data that a kept body stood for. */
export const storedDataOf = (body: string, headers: Readonly<Record<string, string>>): unknown => {
  const content = { bytes: new TextEncoder().encode(body), headers, query: "" };
  return isForm(content) || typeOf(content).startsWith("text/") ? dataOf(content) : parseJson(body);
};

/** The name of the event that a request becomes: by the configured path, else by the body's own `type`. */
export function nameIn(
  { event_prefix, config }: { event_prefix: string; config: VerifyConfig | undefined },
  { headers }: Pick<WebhookContent, "headers">,
  data: unknown,
): string {
  const path = config?.eventNamePath ?? "";
  const type = textAt(path === "" ? "body:type" : path, { headers, data });
  if (type) return rules.eventNameOf(event_prefix, type);
  if (path === "") return rules.eventNameOf(event_prefix, rules.namelessType);
  throw new Fault("invalid_argument", `event name: there is nothing at ${path}`, { field: "event name" });
}

/** What is emitted for a delivery; its metadata says who sent it. Only the server says `source: webhook`. */
export function eventDraft(
  sourceId: string,
  ids: { deliveryId: string; externalId: string; redeliveredFrom?: string },
  name: string,
  value: unknown,
) {
  const { deliveryId, externalId, redeliveredFrom } = ids;
  const metadataValue = {
    webhook: {
      ...{ source_id: sourceId, delivery_id: deliveryId },
      ...(externalId !== "" && { external_id: externalId }),
      ...(redeliveredFrom !== undefined && { redelivered_from: redeliveredFrom }),
    },
  };
  const isKeyed = externalId !== "" && redeliveredFrom === undefined;
  return {
    name,
    version: 1,
    value,
    data: jsonText("body", value),
    metadata: JSON.stringify(metadataValue),
    metadataValue,
    idempotencyKey: isKeyed ? rules.dedupKey(sourceId, externalId) : null,
    ...(isKeyed && { ownKey: true as const }),
  };
}
