import { Fault, type FaultKind, tryAgain } from "../kit/fault.ts";

/**
 * How one kind of fault is written on each protocol. `connect` words and statuses are those of the Connect
 * protocol.
 */
interface FaultEncoding {
  status: number;
  code: string;
  connect: string;
  /** For callers: what is wrong, and what to do. */
  meaning: string;
}

/** Every fault kind on every protocol. A kind that Connect has no code for takes the nearest code. */
const encodings: Record<FaultKind, FaultEncoding> = {
  invalid_argument: {
    status: 400,
    code: "invalid_argument",
    connect: "invalid_argument",
    meaning: "The input is wrong: the message names the field and the rule, `field` the field.",
  },
  unauthenticated: {
    status: 401,
    code: "unauthenticated",
    connect: "unauthenticated",
    meaning: "No credential, or one that is unknown, expired or revoked.",
  },
  permission_denied: {
    status: 403,
    code: "permission_denied",
    connect: "permission_denied",
    meaning: "The roles of the caller do not grant the action, or a deny policy forbids it.",
  },
  not_found: {
    status: 404,
    code: "not_found",
    connect: "not_found",
    meaning: "There is no such thing in the environment; what belongs to others looks the same.",
  },
  already_exists: {
    status: 409,
    code: "already_exists",
    connect: "already_exists",
    meaning: "The name is taken, or the idempotency key was used for something else.",
  },
  failed_precondition: {
    status: 409,
    code: "failed_precondition",
    connect: "failed_precondition",
    meaning: "The state of the thing does not allow it; the same call fails until the state changes.",
  },
  aborted: {
    status: 409,
    code: "aborted",
    connect: "aborted",
    meaning: "Something changed in between, such as the version of a stream: read it again and decide anew.",
  },
  precondition_failed: {
    status: 412,
    code: "precondition_failed",
    connect: "failed_precondition",
    meaning: "`If-Match` or `If-None-Match` does not hold; the message has the revision that was found.",
  },
  method_not_allowed: {
    status: 405,
    code: "method_not_allowed",
    connect: "unimplemented",
    meaning: "The path has no such method; `Allow` has those that it has.",
  },
  payload_too_large: {
    status: 413,
    code: "payload_too_large",
    connect: "resource_exhausted",
    meaning: "The body has more bytes than `SVC_REQUEST_BODY_BYTES_MAX`, or a value more than it may.",
  },
  unsupported_media_type: {
    status: 415,
    code: "unsupported_media_type",
    connect: "invalid_argument",
    meaning: "The body is not `application/json`, or not in a type that the operation reads.",
  },
  resource_exhausted: {
    status: 429,
    code: "resource_exhausted",
    connect: "resource_exhausted",
    meaning: "A limit is reached: of a rate, a count or a size. `Retry-After` says when to try again.",
  },
  unimplemented: {
    status: 501,
    code: "unimplemented",
    connect: "unimplemented",
    meaning: "This server does not do that.",
  },
  unavailable: {
    status: 503,
    code: "unavailable",
    connect: "unavailable",
    meaning: "The database or the message bus does not answer, or the node is draining: try again.",
  },
  deadline_exceeded: {
    status: 504,
    code: "deadline_exceeded",
    connect: "deadline_exceeded",
    meaning: "It took longer than it may; whether it happened has to be read.",
  },
  internal: {
    status: 500,
    code: "internal",
    connect: "internal",
    meaning: "A defect: the message has an id that the log of the server has as well.",
  },
};

const connectStatus: Record<string, number> = {
  failed_precondition: 400,
  resource_exhausted: 429,
};

function connectStatusOf(kind: string, connect: string, status: number): number {
  return kind === "payload_too_large" ? 429 : (connectStatus[connect] ?? status);
}

/** An answer before it is written: what both protocols' errors come down to. */
export interface EncodedFault {
  status: number;
  body: Record<string, unknown>;
  headers: Record<string, string> | undefined;
}

/** `STALE_EXECUTION`: workers compare this code in `error`. */
const workerWord = /^[A-Z][A-Z0-9_]*$/;

/** A lower-case code is a word that clients search for, so the text always holds it. */
function textOf(fault: Fault): string {
  const { code, message } = fault;
  if (!code || workerWord.test(code) || message.includes(code)) return message;
  return `${code}: ${message}`;
}

function headersOf(fault: Fault): Record<string, string> | undefined {
  // Clients that obey Retry-After must always find one on a 429.
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
      // Workers expect the kind here; what is used up is told by its own word.
      code:
        fault.code === undefined || (isWorkerWord && fault.kind !== "resource_exhausted") ? code : fault.code,
      ...(fault.field !== undefined && { field: fault.field }),
    },
    headers: headersOf(fault),
  };
}

/** `{"code", "message"}` with the status that the Connect protocol gives the code. */
export function connectForm(fault: Fault): EncodedFault {
  const { status, connect } = encodings[fault.kind];
  const isWord = fault.code !== undefined && workerWord.test(fault.code);
  return {
    status: connectStatusOf(fault.kind, connect, status),
    body: { code: connect, message: textOf(fault) },
    headers: isWord ? { "Svc-Error-Reason": fault.code!, ...headersOf(fault) } : headersOf(fault),
  };
}

/** Every kind as callers meet it, for the OpenAPI document. */
export const faultCatalogue = Object.values(encodings).map(({ status, code, connect, meaning }) => ({
  code,
  status,
  connect,
  connect_status: connectStatusOf(code, connect, status),
  meaning,
}));

/** The REST status of a fault, for observers and for the OpenAPI document. */
export const statusOfKind = (kind: FaultKind): number => encodings[kind].status;

/**
 * The store's and the bus's own errors, known by shape: the edge imports neither. Anything else stays
 * undefined.
 */
export function troubleOf(error: unknown): Fault | undefined {
  if (!(error instanceof Error) || !("trouble" in error)) return undefined;
  const again = { cause: error };
  if (error.name === "BusError")
    return tryAgain("unavailable", "the message bus is unavailable, try again", again);
  if (error.name !== "StoreError") return undefined;
  switch (error.trouble) {
    case "unavailable":
      return tryAgain("unavailable", "the database is unavailable, try again", again);
    case "full":
      return tryAgain("unavailable", "the database has no room left", again);
    case "lock_timeout":
      // Not `aborted`: clients take 409 as final, and this passes by itself.
      return tryAgain("unavailable", "the rows are held by another request, try again", again);
    case "refused":
      // The engine's message names tables and indexes; it belongs in the log only.
      return new Fault("invalid_argument", "the database refuses a value of this request", {
        cause: error,
      });
    case "conflict":
      return tryAgain("aborted", "the rows are being changed by another request, try again", again);
    default:
      return undefined;
  }
}
