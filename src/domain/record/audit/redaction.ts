import { redactText } from "../../../kit/redact.ts";
import { auditPayloadBytesMax } from "./limits.ts";

/** `newValue`, `new-value` and `new_value` are one field. */
export const canonicalField = (name: string): string =>
  name
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .replace(/[^A-Za-z0-9]+/g, "_")
    .toLowerCase();

const secretNames = new Set(["authorization", "cookie", "credentials", "key", "new_value", "value"]);
const secretEnds = /(password|passphrase|secret|token|session|credential|api_?key|_key|hash)$/;
/** Fields whose names end like a secret's but are not secret. */
const openNames = new Set(["idempotency_key", "debounce_key", "concurrency_key"]);

const isSecret = (field: string): boolean =>
  !openNames.has(field) && (secretNames.has(field) || secretEnds.test(field));

export interface Redacted {
  /** JSON; undefined when there was nothing to keep. */
  payload: string | undefined;
  /** Canonical names of the removed fields, sorted. */
  removed: string[];
}

const depthMax = 8;

/** Removes secrets, and the fields that the setting names: a mask would still show that they were given. */
export function redactPayload(
  input: unknown,
  fields: ReadonlySet<string>,
  hidden: readonly string[] = [],
): Redacted {
  const removed = new Set<string>();
  const clean = (value: unknown, depth: number): unknown => {
    if (typeof value === "string") return redactText(value);
    if (typeof value === "bigint") return String(value);
    if (typeof value !== "object" || value === null) return value;
    if (depth > depthMax) return undefined;
    if (value instanceof Uint8Array) return { bytes: value.byteLength };
    if (Array.isArray(value)) return value.map((item) => clean(item, depth + 1));
    const kept: Record<string, unknown> = {};
    for (const [name, own] of Object.entries(value)) {
      const field = canonicalField(name);
      const isHidden = depth === 0 && hidden.includes(name);
      if (isHidden || fields.has(field) || isSecret(field)) removed.add(field);
      else kept[name] = clean(own, depth + 1);
    }
    return kept;
  };
  if (typeof input !== "object" || input === null) return { payload: undefined, removed: [] };
  const text = JSON.stringify(clean(input, 0));
  const bytes = Buffer.byteLength(text);
  const payload = bytes <= auditPayloadBytesMax ? text : JSON.stringify({ omitted_bytes: bytes });
  return { payload, removed: [...removed].sort() };
}
