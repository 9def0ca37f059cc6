import { NonRetryableError } from "./errors.ts";

/** Bytes of JSON that one result may have; the server's limit for a step and for a run. */
export const outputBytesMax = 4 * 1024 * 1024;

const encoder = new TextEncoder();

/**
 * JSON of a result; undefined for none. NonRetryableError for what JSON cannot hold (SERIALIZATION_ERROR) or the server
 * does not take (OUTPUT_TOO_LARGE): trying again would not help.
 */
export function outputText(whose: string, output: unknown): string | undefined {
  let text: string | undefined;
  try {
    text = JSON.stringify(output);
  } catch (cause) {
    throw new NonRetryableError(`${whose} cannot be written as JSON`, { code: "SERIALIZATION_ERROR", cause });
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
  return typeof value === "number" && !Number.isFinite(value) ? null : value;
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

/** The field of a message that carries a payload: an object in the plain one, anything else in its `…Value` twin. */
export function payloadField(field: string, value: unknown): Record<string, unknown> {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? { [field]: value } : { [`${field}Value`]: value ?? null };
}

export const dataFields = (data: unknown) => payloadField("data", data);
