import { Addresses, checkedUrls, installationHeader, shownUrl, unreachable, urlsIn } from "./addresses.ts";
import { discoveredServer } from "./discovery.ts";
import { type Duration, requireMs, timeoutNames } from "./duration.ts";
import { errorOfAnswer, SvcError } from "./errors.ts";
import { ask } from "./http-answer.ts";
import type { KnownOptions } from "./known-options.ts";
import { jsonToSend } from "./payload.ts";
import { after, safe, timerMsMax, withRetries } from "./retry.ts";
import { LastSequence } from "./sequence.ts";

export interface ConnectionOptions {
  /**
   * Address of the server, or 1 to 16 of servers of one installation: one is used until it does not answer,
   * then the next. Each of several is first asked, without the key, to which installation it belongs; another
   * than the first one's is refused (`other_installation`). Default: SVC_SERVER_URL (several with commas
   * between them); else, without a key, the server that says in `.svc/engine.json` of this folder, or of one
   * above, that it is there (not with SVC_NO_DISCOVERY=1); else http://127.0.0.1:9123.
   */
  url?: string | readonly string[];
  /** `ifkey_…`. Default: SVC_API_KEY, else none (a server in development mode), as when it is empty. */
  apiKey?: string;
  /** Name or `env_…` id. Default: SVC_ENV, else the key's environment. The first call looks a name up. */
  environment?: string;
  /** How long a call may take: `"10s"`, or milliseconds. Default 30 s. */
  timeout?: Duration;
  /** @deprecated Write `timeout`. */
  timeoutMs?: number;
  /**
   * Asked at each call: where the caller's trace stands (W3C Trace Context), sent as a header of that name.
   * With OpenTelemetry it is the span that is active now.
   */
  traceparent?: () => string | undefined;
}

export const knownConnection: KnownOptions<ConnectionOptions> = {
  url: true,
  apiKey: true,
  environment: true,
  ...timeoutNames,
  traceparent: true,
};

/** Those of the options of a worker or an endpoint that its client is made with. */
export const connectionOf = (options: ConnectionOptions): ConnectionOptions =>
  Object.fromEntries(
    Object.keys(knownConnection)
      .map((name) => [name, options[name as keyof ConnectionOptions]])
      .filter(([, value]) => value !== undefined),
  );

export interface Request {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** With its query: `/api/v1/events?limit=20`. */
  path: string;
  /** A value, which is written as JSON; a text or bytes instead are sent as they are. */
  body?: unknown;
  text?: string;
  bytes?: Uint8Array;
  headers?: Record<string, string>;
  timeoutMs?: number;
  signal?: AbortSignal;
  /** A read that must show all that was written over the connection; false even where all others are. */
  isConsistent?: boolean;
  /** It is of several callers: what it carries says itself where their traces stand. */
  isUntraced?: boolean;
}

/** One connection to one installation as one caller: headers, time limits, errors. Sockets are kept alive. */
export interface Transport {
  /** Of the server asked now. It may get the key only after `headers`, which may choose another one. */
  readonly url: string;
  /** Where the last write stands that the connection knows of. */
  readonly last: LastSequence;
  /** The headers of every request: key and environment. Throws SvcError if the environment is unknown yet. */
  headers(): Promise<Record<string, string>>;
  /**
   * A stream or a socket to `url` has ended: whether that server still answers is asked before it is used
   * again, with `isAway` after all others. Clients of other copies of this package may have none.
   */
  lost?(url: string, isAway?: boolean): void;
  /** Where the trace of whoever calls stands; absent where nothing is traced. */
  traceparent?: ConnectionOptions["traceparent"];
  /** One attempt. The parsed body; undefined for 204. Throws SvcError. */
  send<Answer>(request: Request): Promise<Answer>;
  /** `send`, repeated by the rules of retry.ts. */
  call<Answer>(request: Request, options: { repeatable: boolean }): Promise<Answer>;
  /** A unary RPC: `rpc("SvcService/GetRun", {id})`. */
  rpc<Answer>(method: string, message: unknown, options: RpcOptions): Promise<Answer>;
}

export interface RpcOptions {
  repeatable: boolean;
  timeoutMs?: number;
  signal?: AbortSignal | undefined;
  /** The run whose handler calls. */
  runId?: string;
  /** Where the caller's trace stands. */
  traceparent?: string | undefined;
}

/** What answers calls in the place of a server: `testFunction` while it runs a function. */
export const detour: {
  answer: (request: Request) => Promise<unknown> | undefined;
  /** Calls of whoever asks may be answered so. */
  isHere: () => boolean;
} = { answer: () => undefined, isHere: () => false };

/** Undefined where there are no variables, as in a browser. */
export const variable = (name: string): string | undefined => globalThis.process?.env?.[name] || undefined;

/** No server read the request, or none is known to have. */
const isAway = ({ code, status }: SvcError): boolean =>
  code === "unreachable" || code === "timeout" || status === 502 || status === 503;

/** An empty name, or one that URLs resolve away: the request would be about what is above it. */
const strayName = /^[^?]*\/\.{0,2}(?:[/?]|$)/;

function requireNames(path: string): void {
  if (strayName.test(path))
    throw new SvcError("invalid_argument", `${path}: a name in a path must not be empty, . or ..`, {
      status: 400,
      unsent: true,
    });
}

/** `work`, which continues for others when the signal is raised. */
const unlessAborted = (work: Promise<void>, signal: AbortSignal): Promise<void> =>
  new Promise((done, failed) => {
    const stop = () => failed(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    work.then(done, failed);
  });

/** The name itself if the key may not list environments: it has one, which the name is compared with. */
async function environmentIdOf(
  name: string,
  exchange: (request: Request) => Promise<unknown>,
): Promise<string> {
  try {
    const answer = await exchange({ method: "GET", path: "/api/v1/environments" });
    const list = Array.isArray(answer)
      ? answer
      : (answer as { environments?: unknown[] } | undefined)?.environments;
    const found = (list as { id: string; name: string }[] | undefined)?.find((one) => one.name === name);
    if (found) return found.id;
  } catch (error) {
    if (error instanceof SvcError && (error.status === 403 || error.status === 404)) return name;
    throw error;
  }
  throw new SvcError("not_found", `there is no environment named ${name}`, { field: "environment" });
}

/** Which server is meant, and as whom: by options, variables, or what the folder says. */
function meant(options: Omit<ConnectionOptions, "timeout">) {
  const said = options.url ?? variable("SVC_SERVER_URL");
  const key = options.apiKey ?? variable("SVC_API_KEY");
  // A key that was given is for the server that whoever gave it meant.
  const found = said === undefined && key === undefined ? discoveredServer() : undefined;
  const named = options.url ?? urlsIn(variable("SVC_SERVER_URL") ?? found?.url ?? "http://127.0.0.1:9123");
  return {
    urls: checkedUrls(named),
    apiKey: key ?? found?.apiKey,
    environment: options.environment ?? variable("SVC_ENV") ?? (found?.environment || undefined),
  };
}

/** Throws TypeError for a `url` that is none. */
export function createTransport(options: Omit<ConnectionOptions, "timeout"> = {}): Transport {
  const { urls, apiKey, environment } = meant(options);
  const addresses = new Addresses(urls);
  const timeoutMsDefault = requireMs("timeoutMs", options.timeoutMs ?? 30_000);
  const last = new LastSequence();
  const base: Record<string, string> = { "content-type": "application/json" };
  if (apiKey) base.authorization = `Bearer ${apiKey}`;

  // An unknown name would silently fall back to the default environment on the server; an id never does.
  let resolving: Promise<void> | undefined;
  let resolved = environment === undefined || environment.startsWith("env_");
  if (resolved && environment !== undefined) base["x-svc-environment"] = environment;

  async function exchange<Answer>(request: Request): Promise<Answer> {
    requireNames(request.path);
    const given = request.bytes ?? request.text;
    const body = given ?? (request.body === undefined ? undefined : jsonToSend(request.body));
    const traceparent = request.isUntraced ? undefined : options.traceparent?.();
    const stop = new AbortController();
    const timeoutMs = request.timeoutMs ?? timeoutMsDefault;
    let late = false;
    const cancel = after(timeoutMs, () => {
      late = true;
      stop.abort();
    });
    const least = request.isConsistent ? last.text : undefined;
    const cut = () => stop.abort();
    if (request.signal?.aborted) stop.abort();
    request.signal?.addEventListener("abort", cut, { once: true });
    let url: string | undefined;
    const failureOf = (thrown: unknown): SvcError => {
      if (thrown instanceof SvcError) return thrown;
      const cause = thrown;
      const unsent = url === undefined;
      if (late)
        return new SvcError("timeout", `${request.path} took too long`, { retryable: true, unsent, cause });
      if (request.signal?.aborted)
        return new SvcError("aborted_by_caller", "the call was given up", { cause });
      return unreachable(url ?? addresses.url, cause);
    };
    try {
      const choosing = addresses.chosen();
      if (choosing) await unlessAborted(choosing, stop.signal);
      ({ url } = addresses);
      const { status, header, text } = await ask(url + request.path, {
        method: request.method,
        headers:
          request.headers || least !== undefined || traceparent !== undefined
            ? {
                ...base,
                ...(traceparent !== undefined && { traceparent }),
                ...request.headers,
                ...(least !== undefined && minSequence(least, timeoutMs)),
              }
            : base,
        signal: stop.signal,
        body,
      });
      addresses.answered(url, header(installationHeader));
      const written = header("x-svc-sequence");
      if (written !== null) last.note(written);
      if (least !== undefined && header("svc-error-reason") === "epoch_changed") last.forget(least);
      if (status < 200 || status > 299) throw errorOfAnswer(status, text, header("retry-after"));
      if (text === "") return undefined as Answer;
      try {
        return JSON.parse(text) as Answer;
      } catch (cause) {
        throw new SvcError(
          "bad_answer",
          `${shownUrl(url)}${request.path} answered something other than JSON`,
          {
            cause,
          },
        );
      }
    } catch (thrown) {
      const error = failureOf(thrown);
      if (url !== undefined && isAway(error)) addresses.lost(url, true);
      throw error;
    } finally {
      cancel();
      request.signal?.removeEventListener("abort", cut);
    }
  }

  async function resolveEnvironment(name: string): Promise<void> {
    base["x-svc-environment"] = await environmentIdOf(name, exchange);
    resolved = true;
  }

  async function resolve(): Promise<void> {
    if (resolved || environment === undefined) return;
    resolving ??= resolveEnvironment(environment).finally(() => {
      resolving = undefined;
    });
    await resolving;
  }

  async function headers(): Promise<Record<string, string>> {
    await addresses.chosen();
    await resolve();
    return base;
  }

  async function send<Answer>(request: Request): Promise<Answer> {
    const answered = detour.answer(request);
    if (answered) return answered as Promise<Answer>;
    await resolve();
    return exchange<Answer>(request);
  }

  return withCalls({
    get url() {
      return addresses.url;
    },
    ...{ last, headers, send, ...(options.traceparent && { traceparent: options.traceparent }) },
    lost: (url, isAway) => addresses.lost(url, isAway),
  });
}

/** The server gives up before its caller does: it says how far it is then. */
const minSequence = (least: string, timeoutMs: number): Record<string, string> => ({
  "x-svc-min-sequence": least,
  "connect-timeout-ms": `${Math.min(Math.ceil(timeoutMs), timerMsMax)}`,
});

function withCalls(connection: Omit<Transport, "call" | "rpc">): Transport {
  const { send } = connection;
  const call: Transport["call"] = (request, { repeatable }) =>
    withRetries(() => send(request), { repeatable, signal: request.signal });
  return {
    ...connection,
    get url() {
      return connection.url;
    },
    call,
    rpc: (method, message, { repeatable, timeoutMs, signal, runId, traceparent }) =>
      call(
        {
          method: "POST",
          path: `/svc.v1.${method}`,
          body: message,
          ...(timeoutMs !== undefined && { timeoutMs }),
          ...(signal && { signal }),
          ...((runId !== undefined || traceparent !== undefined) && {
            headers: {
              ...(runId !== undefined && { "x-svc-run-id": runId }),
              ...(traceparent !== undefined && { traceparent }),
            },
          }),
        },
        { repeatable },
      ),
  };
}

/** The same connection, for calls that must show all that was written over it. */
export const consistent = (transport: Transport): Transport =>
  withCalls({
    ...transport,
    get url() {
      return transport.url;
    },
    send: (request) => transport.send({ isConsistent: true, ...request }),
  });

/** The run that calls, and where its trace stands. */
export type CallingRun = Required<Pick<RpcOptions, "runId">> & Pick<RpcOptions, "traceparent">;

/** How a step calls. */
export type StepCallOptions = Omit<RpcOptions, keyof CallingRun>;

/** Unary RPCs that steps make for their run. Unless a step says otherwise they carry an idempotency key. */
export const callForRun =
  (transport: Transport) =>
  <Answer>(
    run: CallingRun,
    method: string,
    body: unknown,
    options: StepCallOptions = safe,
  ): Promise<Answer> =>
    transport.rpc<Answer>(method, body, { ...options, ...run });
