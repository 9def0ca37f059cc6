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
 * What every call of the SDK throws. `code` is the server's (`not_found`, `STALE_EXECUTION`), or one of the
 * SDK's own: `unreachable` (no answer), `timeout` (no answer in time), `bad_answer` (a 2xx that cannot be
 * read), `other_installation` (of several URLs, those left are not of the installation first named).
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

/** Errors that end a run have it, those of another copy of this package too. */
const finalMark: unique symbol = Symbol.for("svc.final");

/** Thrown by a handler or step it ends the run at once: no further attempt. Other errors are retried. */
export class NonRetryableError extends Error {
  readonly code: string | undefined;

  get [finalMark](): true {
    return true;
  }

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
 * A step with `retry` failed as often as it may. Caught, it stays failed; otherwise it ends the run, and a
 * resume of the run tries it again. `code` is that of the last error.
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

/** An error as it is reported. */
export interface ThrownError {
  message: string;
  /** Of its class; absent for `Error`. */
  name?: string;
  code?: string;
  stack?: string;
  /** What led to it, at most five levels down. */
  cause?: ThrownError;
  /** Of an AggregateError. */
  errors?: ThrownError[];
}

/** The error of a run or step on the wire. */
export interface ReportedError extends ThrownError {
  retryable: boolean;
}

const messageCharactersMax = 16_000;
const stackCharactersMax = 4_000;
const wordCharactersMax = 1_000;
/** Errors that one error carries along, and how far below it. */
const causesMax = 20;
const causeLevelsMax = 5;

/** Anything may be thrown, and reading it may throw in turn. */
function read(thrown: object, name: string | symbol): unknown {
  try {
    return (thrown as Record<string | symbol, unknown>)[name];
  } catch {
    return undefined;
  }
}

const isThing = (value: unknown): value is object =>
  (typeof value === "object" && value !== null) || typeof value === "function";

/** It ends a run at once. */
export const isFinal = (thrown: unknown): boolean => isThing(thrown) && read(thrown, finalMark) === true;

/** As much as people read of it, in letters that every store takes. */
function shown(text: string, charactersMax: number): string {
  const isLong = text.length > charactersMax;
  const whole = isLong ? `${text.slice(0, charactersMax - 1).replace(/[\ud800-\udbff]$/, "")}…` : text;
  return whole.toWellFormed();
}

/** A text of any value; never throws. */
function textOf(value: unknown): string {
  try {
    const text = String(value);
    if (text !== "[object Object]") return text;
  } catch {} // Without a text of its own.
  try {
    return JSON.stringify(value) ?? "[object Object]";
  } catch {
    return "[object Object]";
  }
}

/** It never left, and never will: JSON cannot hold it. */
const isUnsendable = (thrown: unknown): boolean =>
  thrown instanceof SvcError && thrown.unsent && !thrown.retryable;

function messageOfThing(thrown: object, name: string): string {
  const message = read(thrown, "message");
  if (message !== undefined && message !== "") return textOf(message);
  return name || textOf(thrown);
}

/** The stack without what makes a long message of it, so that its frames are left. */
function shownStack(stack: string, message: string, fold: FoldStack): string {
  const short =
    message.length > wordCharactersMax
      ? stack.replace(message, () => shown(message, wordCharactersMax))
      : stack;
  return shown(fold(short), stackCharactersMax);
}

type FoldStack = (stack: string) => string;

/** `left` counts how many errors may still be added. */
function causeOf(
  thrown: unknown,
  fold: FoldStack | undefined,
  level: number,
  left: { count: number },
): ThrownError {
  if (!isThing(thrown)) return { message: shown(textOf(thrown), messageCharactersMax) };
  const word = (value: unknown) => (typeof value === "string" ? shown(value, wordCharactersMax) : "");
  const below = (error: unknown): ThrownError[] =>
    level === causeLevelsMax || --left.count < 0 ? [] : [causeOf(error, fold, level + 1, left)];
  const name = word(read(thrown, "name"));
  const code = read(thrown, "code");
  const message = messageOfThing(thrown, name);
  const stack = fold && read(thrown, "stack");
  const cause = read(thrown, "cause");
  const [led] = cause === undefined || cause === null ? [] : below(cause);
  const errors = thrown instanceof AggregateError ? read(thrown, "errors") : undefined;
  const list = Array.isArray(errors) ? errors.flatMap(below) : [];
  return {
    message: shown(message, messageCharactersMax),
    ...(name !== "" && name !== "Error" && { name }),
    ...(typeof code === "string" && { code: word(code) }),
    ...(fold && typeof stack === "string" && { stack: shownStack(stack, message, fold) }),
    ...(led && { cause: led }),
    ...(list.length > 0 && { errors: list }),
  };
}

/** What was thrown, as it is reported; never throws. `fold` makes its stacks: `foldedStack` for workers. */
export const reportedError = (thrown: unknown, fold?: FoldStack): ReportedError => ({
  ...causeOf(thrown, fold, 0, { count: causesMax }),
  retryable: !isFinal(thrown) && !isUnsendable(thrown),
});

/** The same without its stacks. */
export function stackless<Shape extends ThrownError>(error: Shape): Shape {
  const { stack: _, cause, errors, ...rest } = error as ThrownError;
  const below = {
    ...(cause && { cause: stackless(cause) }),
    ...(errors && { errors: errors.map(stackless) }),
  };
  return { ...rest, ...below } as Shape;
}

/** What was thrown, in a few words. */
export const messageOf = (thrown: unknown): string => reportedError(thrown).message;

/** An error from what is stored of it. */
export function errorOf({ message, name, code, stack, cause, errors }: ThrownError): Error {
  const options = cause === undefined ? undefined : { cause: errorOf(cause) };
  const error = errors
    ? new AggregateError(errors.map(errorOf), message, options)
    : new Error(message, options);
  const own = { name, code, stack };
  for (const [field, value] of Object.entries(own))
    if (value !== undefined)
      Object.defineProperty(error, field, { value, configurable: true, writable: true });
  return error;
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
  // Connect has one code for what is too much for now, which has a time to wait, and for what is too large.
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
