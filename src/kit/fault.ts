/**
 * A caller's mistake, or a state the caller must know of. Anything else that is thrown is a defect: logged
 * with an id and answered `internal`. Kinds are a closed list, which `edge/fault-encoding.ts` writes in each
 * protocol's form.
 */
export type FaultKind =
  | "invalid_argument"
  | "unauthenticated"
  | "permission_denied"
  | "not_found"
  | "already_exists"
  | "failed_precondition"
  | "aborted"
  | "precondition_failed"
  | "method_not_allowed"
  | "payload_too_large"
  | "unsupported_media_type"
  | "resource_exhausted"
  | "unimplemented"
  | "unavailable"
  | "deadline_exceeded"
  | "internal";

export interface FaultDetail {
  /** The input field at fault, in the spelling of the wire: `events[3].event`. */
  field?: string;
  /** A code word that clients compare: `STALE_EXECUTION`, `policy_effect_allow_deprecated`. */
  code?: string;
  /** Response headers: `Retry-After` (seconds), `Svc-Error-Reason`. */
  headers?: Record<string, string>;
  /** For the log only; never sent. */
  cause?: unknown;
  /** Of `not_found`: what kind of thing is missing, for code that tells one from another; never sent. */
  thing?: string;
}

export class Fault extends Error {
  readonly kind: FaultKind;
  readonly field: string | undefined;
  readonly code: string | undefined;
  readonly headers: Record<string, string> | undefined;
  readonly thing: string | undefined;

  constructor(kind: FaultKind, message: string, detail: FaultDetail = {}) {
    super(message, detail.cause === undefined ? undefined : { cause: detail.cause });
    this.name = "Fault";
    this.kind = kind;
    this.field = detail.field;
    this.code = detail.code;
    this.headers = detail.headers;
    this.thing = detail.thing;
  }
}

const aboutCaller: ReadonlySet<FaultKind> = new Set([
  "unauthenticated",
  "permission_denied",
  "not_found",
  "invalid_argument",
]);

/**
 * Whether the fault ends an open call. Others do not: a store that is briefly away must not end every socket.
 */
export const sendsAway = ({ kind }: Fault): boolean => aboutCaller.has(kind);

/** `invalid('data', 'must be an object')` reads "data: must be an object" on every protocol. */
export function invalid(field: string, rule: string): Fault {
  return new Fault("invalid_argument", `${field}: ${rule}`, { field });
}

/** A refusal that passes by itself: the answer carries `Retry-After: 1`. */
export function tryAgain(
  kind: "unavailable" | "resource_exhausted" | "aborted",
  message: string,
  { headers, ...detail }: FaultDetail = {},
): Fault {
  return new Fault(kind, message, { ...detail, headers: { ...headers, "Retry-After": "1" } });
}

/** Longer than any id; what a caller sends in place of an id is cut to this in messages. */
const idCharsShown = 255;

export function missing(kind: string, id: string): Fault {
  return new Fault("not_found", `${kind} ${id.slice(0, idCharsShown)} not found`, { thing: kind });
}

/** For the arm of a switch that the types say cannot be reached. */
export function unreachable(value: never): never {
  throw new Error(`unreachable: ${JSON.stringify(value)}`);
}

/** Of what no role grants. Clients look at how the text begins. */
export const insufficientPermissions = (why: string): Fault =>
  new Fault("permission_denied", `Insufficient permissions: ${why}`);

/** Throws the fault that names the field and its bounds. */
export function within(field: string, value: number, least: number, most: number): number {
  if (!Number.isFinite(value) || value < least || value > most)
    throw invalid(field, `must be from ${least} to ${most}`);
  return value;
}

export function wholeWithin(field: string, value: number, least: number, most: number): number {
  if (!Number.isInteger(value)) throw invalid(field, "must be a whole number");
  return within(field, value, least, most);
}
