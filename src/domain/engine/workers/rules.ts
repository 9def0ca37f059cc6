import { invalid } from "../../../kit/fault.ts";
import { functionIdBytesMax } from "../../../kit/limits.ts";

/**
 * The error of a run whose result can never be stored. Not retryable: every attempt would send the same
 * result.
 */
export const refusedResult = (message: string, code = "INVALID_REPORT") => ({
  message: `result refused: ${message}`,
  code,
  retryable: false,
});

/**
 * Checks an id that becomes part of a bus subject: no blank, wildcard or control character. Answers the id.
 */
export function workerToken(field: string, id: string): string {
  if (id.length === 0) throw invalid(field, "must not be empty");
  if (Buffer.byteLength(id) > functionIdBytesMax) throw invalid(field, `at most ${functionIdBytesMax} bytes`);
  if (/[\s*>\p{Cc}]/u.test(id)) throw invalid(field, "must not contain blanks, control characters, * or >");
  return id;
}
