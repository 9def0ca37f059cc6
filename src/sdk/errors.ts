export interface SvcErrorDetail {
  /** HTTP status; 0 when no answer arrived. */
  status?: number;
  /** The input field at fault, as the wire spells it: `events[3].event`. */
  field?: string;
  retryable?: boolean;
  /** How long the server asks to wait before the next try, in milliseconds. */
  retryAfterMs?: number;
  /** True when the request certainly never reached the server (the connection was refused). */
  unsent?: boolean;
  cause?: unknown;
}

/**
 * What every call of the SDK throws. `code` is the server's (`not_found`, `STALE_EXECUTION`), or one of the SDK's
 * own: `unreachable` (no answer), `timeout` (no answer in time), `bad_answer` (a 2xx that cannot be read).
 */
export class SvcError extends Error {
  readonly code: string;
  /** HTTP status; 0 when no answer arrived. */
  readonly status: number;
  readonly field: string | undefined;
  /** Whether the same call may succeed later. Whether it is safe to repeat is another question. */
  readonly retryable: boolean;
  readonly retryAfterMs: number | undefined;
  readonly unsent: boolean;

  constructor(code: string, message: string, detail: SvcErrorDetail = {}) {
    super(message, detail.cause === undefined ? undefined : { cause: detail.cause });
    this.name = "SvcError";
    this.code = code;
    this.status = detail.status ?? 0;
    this.field = detail.field;
    this.retryable = detail.retryable ?? false;
    this.retryAfterMs = detail.retryAfterMs;
    this.unsent = detail.unsent ?? false;
  }
}

/** Undefined for what does not exist. */
export async function found<Value>(work: Promise<Value>): Promise<Value | undefined> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof SvcError && error.code === "not_found") return undefined;
    throw error;
  }
}

/** Thrown by a handler or a step, it ends the run at once: no further attempt is made. Any other error is retried. */
export class NonRetryableError extends Error {
  readonly code: string | undefined;

  constructor(message: string, options: { code?: string; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = "NonRetryableError";
    this.code = options.code;
  }
}

/** No event came in time for `step.waitForEvent` with `onTimeout: "throw"`. Not caught, it ends the run. */
export class WaitTimeoutError extends NonRetryableError {
  constructor(message: string) {
    super(message, { code: "WAIT_TIMEOUT" });
    this.name = "WaitTimeoutError";
  }
}

/**
 * A step with `retry` failed as often as it may. Caught, it stays failed; otherwise it ends the run, and a resume of the run tries
 * it anew. `code` is that of the last error.
 */
export class StepFailedError extends NonRetryableError {
  readonly tries: number;

  constructor(name: string, tries: number, last: { message: string; code?: string }, cause?: unknown) {
    const times = tries === 1 ? "once" : `${tries} times`;
    super(`step ${name} failed ${times}: ${last.message}`, { code: last.code ?? "STEP_FAILED", cause });
    this.name = "StepFailedError";
    this.tries = tries;
  }
}

const finalNames: ReadonlySet<string> = new Set([
  "NonRetryableError",
  "WaitTimeoutError",
  "StepFailedError",
  "NondeterminismError",
]);

/** The error of a run or step on the wire. */
export interface ReportedError {
  message: string;
  code?: string;
  retryable: boolean;
  stack?: string;
}

/** It never left, and never will: JSON cannot hold it. */
const isUnsendable = (thrown: Error): boolean =>
  thrown instanceof SvcError && thrown.unsent && !thrown.retryable;

const stackCharactersMax = 4_000;

/** What was thrown, as it is reported. Errors are told apart by name, so that two copies of this package agree. */
export function reportedError(thrown: unknown, withStack = false): ReportedError {
  if (!(thrown instanceof Error)) return { message: String(thrown), retryable: true };
  const { code } = thrown as { code?: unknown };
  return {
    message: thrown.message || thrown.name,
    retryable: !finalNames.has(thrown.name) && !isUnsendable(thrown),
    ...(typeof code === "string" && { code }),
    ...(withStack && thrown.stack !== undefined && { stack: thrown.stack.slice(0, stackCharactersMax) }),
  };
}

/** Reads the error body of either protocol: `{code, message}` or `{error, message, code, field}`. */
export function errorOfAnswer(status: number, text: string, retryAfter: string | null): SvcError {
  let body: Record<string, unknown> = {};
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === "object" && parsed !== null) body = parsed as Record<string, unknown>;
  } catch {
    // The page of a proxy, for example: its text is the message.
  }
  const word = (value: unknown) => (typeof value === "string" && value !== "" ? value : undefined);
  const message =
    word(body.message) ?? word(body.error) ?? (text.trim().slice(0, 200) || `HTTP status ${status}`);
  const workerWord = /^[A-Z][A-Z0-9_]*$/.exec(word(body.error) ?? "")?.[0];
  const code = workerWord ?? word(body.code) ?? `http_${status}`;
  const named = code === "invalid_argument" ? /^([\w.[\]]+): /.exec(message)?.[1] : undefined;
  const field = word(body.field) ?? named;
  const retryAfterMs = retryAfterOf(retryAfter);
  // Connect has one word for what is too much at the time, which has a time to wait, and for what is too large.
  if (status === 429 && code === "resource_exhausted" && retryAfter === null)
    return new SvcError("payload_too_large", message, { status: 413, ...(field !== undefined && { field }) });
  return new SvcError(code, message, {
    status,
    retryable: status >= 500 ? status !== 501 : status === 408 || status === 429,
    ...(field !== undefined && { field }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  });
}

function retryAfterOf(header: string | null): number | undefined {
  if (header === null) return undefined;
  if (/^\d+(\.\d+)?$/.test(header)) return Number(header) * 1_000;
  const at = Date.parse(header);
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}
