import { type Instant, rfc3339 } from "./clock.ts";

/** Fields whose value is a secret whatever it looks like. */
const secretFields = new Set([
  "authorization",
  "cookie",
  "dashboard_password",
  "key",
  "lease_token",
  "leasetoken",
  "new_value",
  "password",
  "password_hash",
  "secret",
  "token",
  "x-api-key",
]);

export const redacted = "[REDACTED]";

const secretTexts: [RegExp, string][] = [
  [/\b(ifkey|ifplatform|ifwh)_[0-9A-Za-z]+/g, `$1_${redacted}`],
  [/(\w:\/\/)[^\s/@"']*:[^\s/@"']*@/g, `$1${redacted}@`],
  [/(\w:\/\/[^\s?#"']+\?)[^\s#"']+/g, `$1${redacted}`],
  [/\b(bearer\s+)[\w.~+/=-]+/gi, `$1${redacted}`],
];

/** Text without keys, bearer tokens, and passwords and queries of URLs. */
export function redactText(text: string): string {
  return secretTexts.reduce((left, [pattern, instead]) => left.replace(pattern, instead), text);
}

const depthMax = 6;

const errorFields = (error: Error, depth: number): Record<string, unknown> => ({
  type: error.name,
  message: redactText(error.message),
  ...("code" in error && { code: error.code }),
  ...(error.stack !== undefined && { stack: redactText(error.stack) }),
  ...(error instanceof AggregateError && { errors: redactValue(error.errors, depth + 1) }),
  ...(error.cause !== undefined && { cause: redactValue(error.cause, depth + 1) }),
});

function redactValue(value: unknown, depth: number): unknown {
  if (typeof value === "string") return redactText(value);
  if (typeof value === "bigint") return String(value);
  if (typeof value !== "object" || value === null) return value;
  if (depth > depthMax) return "…";
  if (value instanceof Error) return errorFields(value, depth);
  if (Array.isArray(value)) return value.map((item) => redactValue(item, depth + 1));
  return redactFields(value as Record<string, unknown>, depth + 1);
}

/**
 * Fields as they may be logged; errors become plain, with their causes and without what drivers hang on them.
 */
export function redactFields(fields: Record<string, unknown>, depth = 0): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [
      name,
      secretFields.has(name.toLowerCase()) && value !== undefined ? redacted : redactValue(value, depth),
    ]),
  );
}

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
