import { type Instant, rfc3339 } from "./clock.ts";

/** When values were overwritten, and by which caller; null where that is not known. */
export interface Redaction {
  at: Instant;
  by: string | null;
}

/** What stands where a value was. Anybody may send such a value: only the fields beside it prove it. */
const markOf = ({ at, by }: Redaction) => ({ $redacted: true, at: rfc3339(at), ...(by !== null && { by }) });

export const redactedMark = (redaction: Redaction): string => JSON.stringify(markOf(redaction));

/** What stands where an error was: for clients that know it, its message is the mark. */
export const redactedError = (redaction: Redaction) => ({
  message: redactedMark(redaction),
  code: "REDACTED",
  retryable: false,
});
