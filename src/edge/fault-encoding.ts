import { Fault, type FaultKind } from "../kit/fault.ts";

/** How one kind of fault is written on each protocol. `connect` words and statuses are those of the Connect protocol. */
interface FaultEncoding {
  status: number;
  code: string;
  connect: string;
}

/** proto/README.md 'Errors': the one table. A kind that Connect has no word for takes the nearest. */
const encodings: Record<FaultKind, FaultEncoding> = {
  invalid_argument: { status: 400, code: "invalid_argument", connect: "invalid_argument" },
  unauthenticated: { status: 401, code: "unauthenticated", connect: "unauthenticated" },
  permission_denied: { status: 403, code: "permission_denied", connect: "permission_denied" },
  not_found: { status: 404, code: "not_found", connect: "not_found" },
  already_exists: { status: 409, code: "already_exists", connect: "already_exists" },
  failed_precondition: { status: 409, code: "failed_precondition", connect: "failed_precondition" },
  aborted: { status: 409, code: "aborted", connect: "aborted" },
  precondition_failed: { status: 412, code: "precondition_failed", connect: "failed_precondition" },
  method_not_allowed: { status: 405, code: "method_not_allowed", connect: "unimplemented" },
  payload_too_large: { status: 413, code: "payload_too_large", connect: "resource_exhausted" },
  unsupported_media_type: { status: 415, code: "unsupported_media_type", connect: "invalid_argument" },
  resource_exhausted: { status: 429, code: "resource_exhausted", connect: "resource_exhausted" },
  unimplemented: { status: 501, code: "unimplemented", connect: "unimplemented" },
  unavailable: { status: 503, code: "unavailable", connect: "unavailable" },
  deadline_exceeded: { status: 504, code: "deadline_exceeded", connect: "deadline_exceeded" },
  internal: { status: 500, code: "internal", connect: "internal" },
};

const connectStatus: Record<string, number> = {
  failed_precondition: 400,
  resource_exhausted: 429,
};

/** An answer before it is written: what both protocols' errors come down to. */
export interface EncodedFault {
  status: number;
  body: Record<string, unknown>;
  headers: Record<string, string> | undefined;
}

/** `STALE_EXECUTION`: the word that workers read in `error` (proto/README.md 'Refused reports'). */
const workerWord = /^[A-Z][A-Z0-9_]*$/;

/** A lower-case code is a word that clients search for, so the text always holds it. */
function textOf(fault: Fault): string {
  const { code, message } = fault;
  if (!code || workerWord.test(code) || message.includes(code)) return message;
  return `${code}: ${message}`;
}

function headersOf(fault: Fault): Record<string, string> | undefined {
  // Clients that obey Retry-After must always find one on a 429 (proto/README.md 'Errors').
  if (fault.kind !== "resource_exhausted") return fault.headers;
  const hasRetryAfter = Object.keys(fault.headers ?? {}).some((name) => name.toLowerCase() === "retry-after");
  return hasRetryAfter ? fault.headers : { ...fault.headers, "Retry-After": "1" };
}

/** `{"error", "message", "code", "field"?}`, snake_case. */
export function restForm(fault: Fault): EncodedFault {
  const { status, code } = encodings[fault.kind];
  const message = textOf(fault);
  const isWorkerWord = fault.code !== undefined && workerWord.test(fault.code);
  return {
    status,
    body: {
      error: fault.code ?? message,
      message,
      code: fault.code === undefined || isWorkerWord ? code : fault.code,
      ...(fault.field !== undefined && { field: fault.field }),
    },
    headers: headersOf(fault),
  };
}

/** `{"code", "message"}` with the status that the Connect protocol gives the code. */
export function connectForm(fault: Fault): EncodedFault {
  const { status, connect } = encodings[fault.kind];
  return {
    status: fault.kind === "payload_too_large" ? 429 : (connectStatus[connect] ?? status),
    body: { code: connect, message: textOf(fault) },
    headers: headersOf(fault),
  };
}

/** What an observer is told: every REST status that can be answered, for the OpenAPI document. */
export const statusOfKind = (kind: FaultKind): number => encodings[kind].status;

/** The store's and the bus's own errors, known by shape: the edge imports neither. Anything else stays undefined. */
export function troubleOf(error: unknown): Fault | undefined {
  if (!(error instanceof Error) || !("trouble" in error)) return undefined;
  const again = { headers: { "Retry-After": "1" }, cause: error };
  if (error.name === "BusError")
    return new Fault("unavailable", "the message bus is unavailable, try again", again);
  if (error.name !== "StoreError") return undefined;
  switch (error.trouble) {
    case "unavailable":
      return new Fault("unavailable", "the database is unavailable, try again", again);
    case "full":
      return new Fault("unavailable", "the database has no room left", again);
    case "lock_timeout":
      // Not `aborted`: clients take 409 as final, and this passes by itself.
      return new Fault("unavailable", "the rows are held by another request, try again", again);
    case "refused":
      // The engine's own words name tables and indexes; they are for the log.
      return new Fault("invalid_argument", "the database does not take a value of this request", {
        cause: error,
      });
    case "conflict":
      return new Fault("aborted", "the rows are being changed by another request, try again", again);
    default:
      return undefined;
  }
}
