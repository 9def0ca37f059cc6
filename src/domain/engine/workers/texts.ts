import { invalid } from "../../../kit/fault.ts";
import { stepOutputBytesMax } from "../../../kit/limits.ts";
import { jsonText as payloadText } from "../../../kit/payload-json.ts";

/**
 * Postgres keeps no NUL in text, and half a surrogate is stored as another text, which the worker would not
 * find again; found out in the flush it would cost the neighbours theirs.
 */
export function plainText(field: string, text: string): string {
  if (text.includes("\0")) throw invalid(field, "must not contain NUL");
  if (!text.isWellFormed()) throw invalid(field, "must not hold half a surrogate");
  return text;
}

export const jsonText = (field: string, value: unknown): string =>
  payloadText(field, value, stepOutputBytesMax);
