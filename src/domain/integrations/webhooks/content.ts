import { Fault, invalid } from "../../../kit/fault.ts";
import { parseJson, parseJsonBytes } from "../../../kit/payload-json.ts";

/** A provider's request as it came: signatures are over these bytes. */
export interface WebhookContent {
  bytes: Uint8Array;
  /** Names in lower case. */
  headers: Readonly<Record<string, string>>;
  /** The query without its question mark. */
  query: string;
}

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

export const formPairs = (bytes: Uint8Array): [string, string][] => [
  ...new URLSearchParams(new TextDecoder().decode(bytes)),
];

/** A field that comes several times is a list. */
function formOf(bytes: Uint8Array): Record<string, string | string[]> {
  const form: Record<string, string | string[]> = Object.create(null);
  for (const [name, value] of new URLSearchParams(textOf(bytes))) {
    const before = form[name];
    form[name] = before === undefined ? value : [...(Array.isArray(before) ? before : [before]), value];
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

/** The value at a path of a body or of headers; undefined when it is missing or no text, number or boolean. */
export function textAt(
  path: string,
  { headers, data }: { headers: Readonly<Record<string, string>>; data: unknown },
): string | undefined {
  if (path.startsWith("header:")) return headers[path.slice("header:".length).toLowerCase()];
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

/** The same data for reading names and times out of it; undefined for a body that is no event's. */
export function readableData(content: WebhookContent): unknown {
  try {
    const data = dataOf(content);
    return isForm(content) ? (data as { form: unknown }).form : data;
  } catch (error) {
    if (error instanceof Fault) return undefined;
    throw error;
  }
}

/** The data that a kept body stood for. */
export const storedDataOf = (body: string, headers: Readonly<Record<string, string>>): unknown => {
  const content = { bytes: new TextEncoder().encode(body), headers, query: "" };
  return isForm(content) || typeOf(content).startsWith("text/") ? dataOf(content) : parseJson(body);
};
