import { invalid } from "../../../kit/fault.ts";
import { stepOutputBytesMax } from "../../../kit/limits.ts";
import { jsonText as payloadText } from "../../../kit/payload-json.ts";

/**
 * Refuses texts that the database cannot store unchanged. Postgres rejects NUL, which would fail a whole
 * flush of reports. It replaces a lone surrogate, and the worker would not find its step again.
 */
export function plainText(field: string, text: string): string {
  if (text.includes("\0")) throw invalid(field, "must not contain NUL");
  if (!text.isWellFormed()) throw invalid(field, "must not hold half a surrogate");
  return text;
}

export const jsonText = (field: string, value: unknown): string =>
  payloadText(field, value, stepOutputBytesMax);
