import { NonRetryableError, SvcError } from "./errors.ts";

/** Bytes of JSON that one result may have; the server's limit for a step and for a run. */
export const outputBytesMax = 4 * 1024 * 1024;

const encoder = new TextEncoder();

/** Nested deeper, a value is not searched for what JSON cannot hold. */
const searchedLevelsMax = 500;

/** Where and why JSON cannot hold a value: `data.items[2].total: a BigInt`. Undefined if not found. */
function unwritable(value: unknown, at: string, above: readonly object[] = []): string | undefined {
  const told = (what: string) => (at === "" ? what : `${at}: ${what}`);
  if (typeof value === "bigint") return told("a BigInt");
  if (typeof value !== "object" || value === null || above.length > searchedLevelsMax) return undefined;
  if (above.includes(value)) return told("a circle, it is within itself");
  // It is written as what its method gives.
  if (typeof (value as { toJSON?: unknown }).toJSON === "function") return undefined;
  const within = [...above, value];
  for (const [name, one] of Object.entries(value)) {
    const found = unwritable(
      one,
      Array.isArray(value) ? `${at}[${name}]` : at === "" ? name : `${at}.${name}`,
      within,
    );
    if (found !== undefined) return found;
  }
  return undefined;
}

/**
 * JSON of what is about to be sent; undefined for none. SvcError `invalid_argument` that names the place for
 * what JSON cannot hold. `at` is the name of the value; empty for a message, whose fields have names.
 */
export function jsonToSend(value: unknown, at = ""): string | undefined {
  try {
    return JSON.stringify(value);
  } catch (cause) {
    // Other values than objects travel in a twin of their field, which callers do not know.
    const found = unwritable(value, at)?.replace(/^(\w+)Value(?=[.[:])/, "$1");
    const field = found?.split(": ")[0];
    throw new SvcError("invalid_argument", `${found ?? (at || "the request")} cannot be written as JSON`, {
      ...{ unsent: true, cause },
      ...(field !== undefined && { field }),
    });
  }
}

/**
 * JSON of a result; undefined for none. NonRetryableError for what JSON cannot hold (SERIALIZATION_ERROR) or
 * the server does not take (OUTPUT_TOO_LARGE): trying again would not help.
 */
export function outputText(whose: string, output: unknown): string | undefined {
  let text: string | undefined;
  try {
    text = JSON.stringify(output);
  } catch (cause) {
    const found = unwritable(output, "");
    const message = `${whose} cannot be written as JSON${found === undefined ? "" : ` (${found})`}`;
    throw new NonRetryableError(message, { code: "SERIALIZATION_ERROR", cause });
  }
  // One character is three bytes at most.
  if (text !== undefined && text.length * 3 > outputBytesMax) {
    const bytes = encoder.encode(text).length;
    if (bytes > outputBytesMax) {
      throw new NonRetryableError(`${whose} has ${bytes} bytes of JSON; at most ${outputBytesMax} are kept`, {
        code: "OUTPUT_TOO_LARGE",
      });
    }
  }
  return text;
}

/** The value as it is read back from its JSON, so that a first execution sees what a repeated one sees. */
export function asStored(value: unknown, text: string | undefined): unknown {
  if (text === undefined) return null;
  if (typeof value === "object" && value !== null) return JSON.parse(text);
  if (typeof value !== "number") return value;
  // JSON writes -0 as 0.
  return Number.isFinite(value) ? value + 0 : null;
}

const hex = (bytes: ArrayBuffer, count: number): string =>
  Array.from(new Uint8Array(bytes, 0, count), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** The first `bytes` bytes of the SHA-256 of a text, in hex. */
export async function digestHex(text: string, bytes = 32): Promise<string> {
  return hex(await crypto.subtle.digest("SHA-256", encoder.encode(text)), bytes);
}

const keyCharactersMax = 80;

/** The idempotency key of a step: the same in every execution, so that what the step sends counts once. */
export async function stepKey(stepId: string): Promise<string> {
  return stepId.length <= keyCharactersMax ? stepId : digestHex(stepId);
}

/** A message's field for a payload: objects are in the plain one, anything else in its `…Value` twin. */
export function payloadField(field: string, value: unknown): Record<string, unknown> {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? { [field]: value } : { [`${field}Value`]: value ?? null };
}

export const dataFields = (data: unknown) => payloadField("data", data);
