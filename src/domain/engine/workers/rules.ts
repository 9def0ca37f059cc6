import { invalid } from "../../../kit/fault.ts";
import { functionIdBytesMax } from "../../../kit/limits.ts";

/** What the server will never take must not come back attempt after attempt: the run fails with it. */
export const refusedResult = (message: string, code = "INVALID_REPORT") => ({
  message: `result refused: ${message}`,
  code,
  retryable: false,
});

/** Worker and function ids travel in subjects: no blank, wildcard or control character. Answers the id. */
export function workerToken(field: string, id: string): string {
  if (id.length === 0) throw invalid(field, "must not be empty");
  if (Buffer.byteLength(id) > functionIdBytesMax) throw invalid(field, `at most ${functionIdBytesMax} bytes`);
  if (/[\s*>\p{Cc}]/u.test(id)) throw invalid(field, "must not contain blanks, control characters, * or >");
  return id;
}
