import { follow } from "../sdk/subscriptions/watch.ts";
import { envelope, readEnvelopes } from "../sdk/wire/envelopes.ts";
import { errorOfAnswer, SvcError } from "../sdk/wire/errors.ts";
import type { Request } from "../sdk/wire/transport.ts";
import type { ServerLink } from "./connection.ts";
import { usage } from "./io.ts";
import type { CataloguedOperation } from "./operations.ts";

export type Input = Readonly<Record<string, unknown>>;

const parameterOf = /\{(\w+)(\.\.\.)?\}/g;

const namesIn = (path: string): string[] => [...path.matchAll(parameterOf)].map(([, name]) => name!);

function pathOf({ name, paths }: CataloguedOperation, input: Input): string {
  const isGiven = (field: string) => input[field] !== undefined && input[field] !== "";
  const path = paths.find((one) => namesIn(one).every(isGiven));
  if (path === undefined) {
    const missing = namesIn(paths.at(-1)!).find((field) => !isGiven(field));
    throw usage(`${name}: ${missing} is needed`);
  }
  return path.replaceAll(parameterOf, (_all, field: string) => encodeURIComponent(String(input[field])));
}

const bytesOfBody = (value: unknown) =>
  value instanceof Uint8Array ? { bytes: value } : { text: String(value ?? "") };

/** The request that carries this input, by the places of the operation's fields. */
export function requestOf(operation: CataloguedOperation, input: Input): Request {
  const path = pathOf(operation, input);
  const query = new URLSearchParams();
  const body: Record<string, unknown> = {};
  let whole: { body: unknown } | undefined;
  const headers: Record<string, string> = {};
  for (const { name, place, isWhole, wire = name } of operation.fields) {
    const value = input[name];
    if (value === undefined || place === "path") continue;
    if (isWhole) whole = { body: value };
    else if (place === "body") body[wire] = value;
    else if (place === "header") headers[name] = String(value);
    else for (const one of Array.isArray(value) ? value : [value]) query.append(name, String(one));
  }
  const { method, takesBytes } = operation;
  const search = query.size > 0 ? `?${query}` : "";
  const sends = method === "POST" || method === "PUT" || method === "PATCH";
  return {
    method,
    path: path + search,
    headers,
    ...(sends && (takesBytes ? bytesOfBody(body.body) : (whole ?? { body }))),
  };
}

/** Calls a unary operation and answers its JSON; undefined when it has nothing to say. */
export async function call<Answer = unknown>(
  { transport, headers }: ServerLink,
  operation: CataloguedOperation,
  input: Input,
  signal?: AbortSignal,
): Promise<Answer> {
  const request = requestOf(operation, input);
  const acting = await headers();
  return transport.call<Answer>(
    { ...request, headers: { ...request.headers, ...acting }, ...(signal && { signal }) },
    { repeatable: operation.reads },
  );
}

/** The answer as it comes: of streams, and of what is not JSON. */
async function open(
  { transport, headers }: ServerLink,
  request: Request,
  signal: AbortSignal,
): Promise<ReadableStream<Uint8Array>> {
  const { url } = transport;
  let response: Response;
  try {
    response = await fetch(url + request.path, {
      method: request.method,
      headers: { ...(await transport.headers()), ...request.headers, ...(await headers()) },
      signal,
      ...(request.bytes && { body: request.bytes as Uint8Array<ArrayBuffer> }),
    });
  } catch (cause) {
    if (cause instanceof SvcError) throw cause;
    const why = signal.aborted ? "aborted_by_caller" : "unreachable";
    throw new SvcError(why, `${url} does not answer`, { cause });
  }
  if (!response.ok || !response.body)
    throw errorOfAnswer(response.status, await response.text(), response.headers.get("retry-after"));
  return response.body;
}

/** The bytes of an answer that is not JSON. */
export const bytesOf = (
  connection: ServerLink,
  operation: CataloguedOperation,
  input: Input,
  signal: AbortSignal,
): Promise<ReadableStream<Uint8Array>> => open(connection, requestOf(operation, input), signal);

/** The messages of a streaming RPC, until its end or the signal's. */
export async function* messagesOf(
  connection: ServerLink,
  operation: CataloguedOperation,
  input: Input,
  signal: AbortSignal,
): AsyncGenerator<Record<string, unknown>> {
  const { path, method } = requestOf(operation, input);
  const bytes = envelope(JSON.stringify(input));
  const headers = { "content-type": "application/connect+json" };
  const body = await open(connection, { method, path, bytes, headers }, signal);
  const unread: Record<string, unknown>[] = [];
  let failure: SvcError | undefined;
  const reader = readEnvelopes(
    (message) => {
      // An empty one stands for none, where a stream ended before its first.
      if (Object.keys(message).length > 0) unread.push(message);
    },
    (error) => {
      failure = error;
    },
  );
  try {
    for await (const piece of body) {
      reader.take(piece);
      yield* unread.splice(0);
    }
  } catch (error) {
    if (signal.aborted) return;
    throw error;
  }
  if (failure) throw failure;
}

/** The frames of a watch; it is opened again when its socket is lost. */
export function framesOf(
  { target, transport }: ServerLink,
  operation: CataloguedOperation,
  input: Input,
  signal: AbortSignal,
): AsyncGenerator<Record<string, unknown>, void> {
  const { path } = requestOf(operation, input);
  if (target.org !== undefined) throw usage("--as-org: a watch acts in the caller's own org alone");
  return follow(transport, {
    path: () => path,
    read: (frame) => frame,
    // What is watched is read at the path above it, and refused there with a reason.
    ask: async () => {
      const above = new URL(path, transport.url).pathname.replace(/\/watch$/, "");
      return transport.send({ method: "GET", path: above });
    },
    signal,
  });
}

/** What an emit answers. */
export interface EmittedShown {
  runIds?: string[];
  notices?: { message?: string }[];
  delayedId?: string;
}

/** Why an emit began nothing, where its answer does not say it already; `next` shows the functions. */
export function startedNothing(
  { runIds = [], notices = [], delayedId }: EmittedShown,
  event: unknown,
  next: string,
): string | undefined {
  if (runIds.length > 0 || notices.length > 0 || delayedId) return undefined;
  return `it started no run: but for those that gather (debounce, batch), no active function is triggered by ${event}; ${next}`;
}
