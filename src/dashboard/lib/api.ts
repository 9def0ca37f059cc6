import type { MethodAnswer, MethodName, ServiceName } from "./messages.ts";
import { address } from "./router.ts";

/** A call that the server refused, or that did not reach it. */
export class CallError extends Error {
  override readonly name = "CallError";
  readonly status: number;
  readonly code: string;
  readonly field: string | undefined;

  constructor(message: string, about: { status: number; code: string; field?: string | undefined }) {
    super(message);
    this.status = about.status;
    this.code = about.code;
    this.field = about.field;
  }

  /** Nobody answered: the server is away, or the network. */
  get isAway(): boolean {
    return this.status === 0 || this.status === 502 || this.status === 503;
  }
}

/** The server has no such thing, or none for this caller. */
export const isMissing = (error: unknown): boolean => error instanceof CallError && error.status === 404;

/** What is read, or undefined where the server has no such thing. */
export const unlessMissing = <Value>(read: Promise<Value>): Promise<Value | undefined> =>
  read.catch((error: unknown) => {
    if (isMissing(error)) return undefined;
    throw error;
  });

interface AskedCall {
  method?: string;
  /** Sent as JSON. */
  body?: unknown;
  /** Sent as they are, in place of a body. */
  bytes?: Uint8Array<ArrayBuffer>;
  headers?: Record<string, string> | undefined;
  signal?: AbortSignal | undefined;
  /** About the caller, wherever it looks: names no environment, and a missing session is its answer. */
  isSigningIn?: boolean;
}

/** Told when a call finds that the session is over. */
let onSignedOut: () => void = () => {};
export const whenSignedOut = (told: () => void): void => {
  onSignedOut = told;
};

let platformOrg: string | undefined;
/** A user of the platform, whose org this is, names any other with each call. */
export const setPlatform = (ownOrg: string | undefined): void => {
  platformOrg = ownOrg;
};

/** Where a call acts, as far as the caller must say it; what is empty goes without saying. */
function scopeOf(isSigningIn = false): { org: string; environment: string } {
  const { org, environment } = address.value;
  return {
    org: platformOrg !== undefined && org !== platformOrg ? org : "",
    environment: isSigningIn ? "" : environment,
  };
}

/** The same in the query of a socket, as browsers send no headers with those. */
export function socketScope(): [name: string, value: string][] {
  const { org, environment } = scopeOf();
  const all: [string, string][] = [
    ["env", environment],
    ["org", org],
  ];
  return all.filter(([, value]) => value !== "");
}

function headersOf({ body, headers, isSigningIn }: AskedCall): Record<string, string> {
  const { org, environment } = scopeOf(isSigningIn);
  return {
    ...(body !== undefined && { "Content-Type": "application/json" }),
    ...(environment !== "" && { "X-Svc-Environment": environment }),
    ...(org !== "" && { "X-Svc-Org": org }),
    ...headers,
  };
}

interface ErrorBody {
  error?: string;
  message?: string;
  code?: string;
  field?: string;
}

async function failureOf(response: Response): Promise<CallError> {
  const text = await response.text().catch(() => "");
  let body: ErrorBody = {};
  try {
    body = JSON.parse(text) as ErrorBody;
  } catch {
    // A proxy answered, not the server.
  }
  const { message = body.error ?? `The server answered ${response.status}.`, code = "", field } = body;
  return new CallError(message, { status: response.status, code, field });
}

/** A call that hangs, as after a machine slept, is given up: the page reads again then. */
const answerMs = 30_000;

export async function rest<Answer>(path: string, asked: AskedCall = {}): Promise<Answer> {
  const { method = asked.body === undefined ? "GET" : "POST", body, bytes, signal } = asked;
  let response: Response;
  try {
    response = await fetch(path, {
      ...{ method, headers: headersOf(asked), credentials: "same-origin", cache: "no-store" },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(bytes && { body: bytes }),
      signal: AbortSignal.any([AbortSignal.timeout(answerMs), ...(signal ? [signal] : [])]),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new CallError("The server does not answer.", { status: 0, code: "unavailable" });
  }
  if (response.status === 401 && !asked.isSigningIn) onSignedOut();
  if (!response.ok) throw await failureOf(response);
  const text = await response.text();
  return (text === "" ? undefined : JSON.parse(text)) as Answer;
}

export const rpc = <Service extends ServiceName, Method extends MethodName<Service>>(
  service: Service,
  method: Method,
  body: object = {},
  signal?: AbortSignal,
): Promise<MethodAnswer<Service, Method>> => rest(`/svc.v1.${service}/${method}`, { body, signal });

/** What was typed as JSON; `what` names it in the refusal. */
export function parsedJson(text: string, what: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`The ${what} is not JSON: ${messageOf(error)}`);
  }
}

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

/** How a path takes a key that may hold any character. */
export const base64url = (text: string): string =>
  btoa(String.fromCharCode(...new TextEncoder().encode(text)))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replace(/=+$/, "");
