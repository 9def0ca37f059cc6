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

interface AskedCall {
  method?: string;
  body?: unknown;
  signal?: AbortSignal | undefined;
  /** About the caller, wherever it looks: names no environment, and a missing session is its answer. */
  isSigningIn?: boolean;
}

/** Told when a call finds that the session is over. */
let onSignedOut: () => void = () => {};
export const whenSignedOut = (told: () => void): void => {
  onSignedOut = told;
};

let isPlatform = false;
/** A user of the platform names the org with each call. */
export const setPlatform = (value: boolean): void => {
  isPlatform = value;
};

function headersOf({ body, isSigningIn }: AskedCall): Record<string, string> {
  const { org, environment: shown } = address.value;
  const environment = isSigningIn ? "" : shown;
  return {
    ...(body !== undefined && { "Content-Type": "application/json" }),
    ...(environment !== "" && { "X-Svc-Environment": environment }),
    ...(isPlatform && org !== "" && { "X-Svc-Org": org }),
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

export async function rest<Answer>(path: string, asked: AskedCall = {}): Promise<Answer> {
  const { method = asked.body === undefined ? "GET" : "POST", body, signal } = asked;
  let response: Response;
  try {
    response = await fetch(path, {
      ...{ method, headers: headersOf(asked), credentials: "same-origin", cache: "no-store" },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(signal && { signal }),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new CallError("The server does not answer.", { status: 0, code: "unavailable" });
  }
  if (response.status === 401 && !asked.isSigningIn) onSignedOut();
  if (!response.ok) throw await failureOf(response);
  return (response.status === 204 ? undefined : await response.json()) as Answer;
}

export const rpc = <Answer>(
  service: string,
  method: string,
  body: object = {},
  signal?: AbortSignal,
): Promise<Answer> => rest(`/svc.v1.${service}/${method}`, { body, signal });

export const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));
