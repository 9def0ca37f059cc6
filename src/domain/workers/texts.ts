import { invalid } from "../../kit/fault.ts";
import { stepOutputBytesMax } from "../../kit/limits.ts";

/** Postgres keeps no NUL in text; found out in the flush it would cost the neighbours theirs. */
export function plainText(field: string, text: string): string {
  if (text.includes("\0")) throw invalid(field, "must not contain NUL");
  return text;
}

export function jsonText(field: string, value: unknown): string {
  const text = value === undefined ? "null" : JSON.stringify(value);
  if (Buffer.byteLength(text) > stepOutputBytesMax)
    throw invalid(field, `at most ${stepOutputBytesMax} bytes of JSON`);
  return text;
}
