import type {
  DescMessage,
  DescMethodBiDiStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import { type Static, type TSchema, Type } from "@sinclair/typebox";
import type { Caller } from "./caller.ts";
import type { Instant } from "./clock.ts";
import type { Fault } from "./fault.ts";
import type { Screen } from "./screen.ts";
import type { LogName, WaitsFor } from "./sequence.ts";
import type { SocketBinding } from "./socket-binding.ts";

/** What one request carries besides its input. */
export interface Call {
  caller: Caller;
  /** Already checked to exist and to be the caller's to use. */
  environmentId: string;
  requestId: string;
  receivedAt: Instant;
  /** Aborted when the client goes away or its deadline passes. */
  signal: AbortSignal;
  /** Header `Idempotency-Key`, when sent. */
  idempotencyKey: string | undefined;
  /** Header `X-Svc-Run-ID`, when sent. */
  runId: string | undefined;
  /** Where the call's trace is: at its span here, else where `traceparent` says; undefined for no trace. */
  traceparent?: string | undefined;
  /** The token of the session that was let in; undefined when its credential is a key. */
  session?: string | undefined;
  /** The client's address; empty when it is unknown. */
  address: string;
  /** It came over TLS, to us or to a proxy that we trust. */
  isSecure: boolean;
  /** Header `User-Agent`, when sent. */
  userAgent?: string | undefined;
  /** What deny policies now keep from the caller, of things the input does not name. Undefined: nothing. */
  screen(action: string, type: string): Screen | undefined | Promise<Screen | undefined>;
  /** For a long call: called each time that its caller, roles and all, was found to be still allowed. */
  onRenewed(listener: () => void | Promise<void>): void;
  /** Of a watch and a stream: called once it is accepted, before its first message. */
  admitted?: () => void;
}

/** One thing that a call is about besides those of its operation's own type and action. */
export interface Thing {
  type: string;
  id: string;
  /** Left out: the operation's own. */
  action?: string;
  /**
   * The id stands for all names that it matches, `*` for any run of characters: a policy denies it that may
   * deny one of them.
   */
  isPattern?: boolean;
}

/**
 * A REST request as a binding sees it; `body` is undefined when none was sent, parsed JSON otherwise (bytes
 * when `raw`).
 */
export interface RestRequest {
  params: Record<string, string>;
  query: URLSearchParams;
  headers: Headers;
  body: unknown;
}

export interface UnreadRequest extends Omit<RestRequest, "body"> {
  head(): Promise<string>;
}

export interface RestReply {
  status: number;
  /**
   * A JSON value; or, with a content type of its own in headers: text, bytes, or an AsyncIterable of either,
   * sent piece by piece and ended when the client leaves. Undefined for none.
   */
  body?: unknown;
  /** The body in JSON, where it was written before. */
  text?: string;
  headers?: Record<string, string>;
}

/**
 * `"GET /api/v1/events/{id}"`; path, query and body fields are merged into the input under their wire names.
 */
export type RestBinding<I, O> =
  | string
  | {
      route: string;
      /** The body reaches `decode` as the bytes that were sent (Uint8Array), whatever their type. */
      raw?: boolean;
      decode?: (request: RestRequest) => unknown;
      encode?: (output: O, input: I) => RestReply;
      /** In its place, where an answer is a body alone: the body of `status`. */
      json?: (output: O) => unknown;
      /** What a browser that navigates is shown of a fault; others get it as all faults are. */
      refused?: (fault: Fault) => Omit<RestReply, "body" | "text">;
      /** The status of success: of `json` and the default `encode`, and what the OpenAPI document says. */
      status?: number;
      /** Further statuses that `encode` answers, for the document: with the same body, of 204 without one. */
      also?: readonly number[];
      /** For the document, where `decode` reads something else than the input's own fields. */
      body?: TSchema;
      query?: TSchema;
    };

/** How an operation appears as a unary Connect method. */
export interface RpcBinding<I, O> {
  method: DescMethodUnary;
  decode: (message: never) => I;
  encode: (output: O) => object;
  /**
   * JSON in, JSON out or both without building messages: for hot methods and loose spellings; names as in the
   * protobuf mapping. `answer`: for the document, where `encode` writes other fields than the message has.
   */
  json?: {
    decode?: (body: Record<string, unknown>) => unknown;
    encode?: (output: O) => unknown;
    answer?: TSchema;
  };
}

export interface RpcStreamBinding<I, O> {
  method: DescMethodServerStreaming;
  decode: (message: never) => I;
  encode: (output: O) => object;
}

/** Messages in both directions; `decode` and `encode` translate each of them. */
export interface RpcDuplexBinding<I, O> {
  method: DescMethodBiDiStreaming;
  decode: (message: never) => I;
  encode: (output: O) => object;
}

/** Of a method whose operation reads JSON as it comes: zero is not what was left out. */
export const inJson = { decode: (body: Record<string, unknown>): unknown => body };

/** What a method answers that has nothing to say. */
export const nothing = () => ({});

/** Both mappings are checked against the generated types: a misspelt field does not compile. */
export function rpc<In extends DescMessage, Out extends DescMessage, I, O>(
  method: DescMethodUnary<In, Out>,
  decode: (message: MessageShape<In>) => I,
  encode: (output: O) => MessageInitShape<Out>,
  json?: RpcBinding<I, O>["json"],
): RpcBinding<I, O> {
  return {
    method,
    decode: decode as RpcBinding<I, O>["decode"],
    encode: encode as (output: O) => object,
    ...(json && { json }),
  };
}

export function rpcStream<In extends DescMessage, Out extends DescMessage, I, O>(
  method: DescMethodServerStreaming<In, Out>,
  decode: (message: MessageShape<In>) => I,
  encode: (output: O) => MessageInitShape<Out>,
): RpcStreamBinding<I, O> {
  return {
    method,
    decode: decode as RpcStreamBinding<I, O>["decode"],
    encode: encode as (output: O) => object,
  };
}

export function rpcDuplex<In extends DescMessage, Out extends DescMessage, I, O>(
  method: DescMethodBiDiStreaming<In, Out>,
  decode: (message: MessageShape<In>) => I,
  encode: (output: O) => MessageInitShape<Out>,
): RpcDuplexBinding<I, O> {
  return {
    method,
    decode: decode as RpcDuplexBinding<I, O>["decode"],
    encode: encode as (output: O) => object,
  };
}

/**
 * What a caller must hold: an action of `access/actions.ts`; `"authenticated"` for any valid credential;
 * `null` for public operations only, whose list a contract test holds.
 */
export type OperationAction = string | null;

/** A write to one of the environment's logs. */
export interface LogWrite<O> {
  log: LogName;
  /** Where what was written last stands; undefined where a repeat's first has expired. */
  positionOf: (output: O) => number | undefined;
  /** Whose log, where the caller has no environment. */
  environmentOf?: (output: O) => string;
}

interface OperationHead {
  /** `runs.cancel`: key of metrics, audit rows and the authorization matrix. */
  name: string;
  action: OperationAction;
  /** One sentence for OpenAPI. */
  summary: string;
  /** A request as a caller sends it, for the document, where not all fields make sense together. */
  sample?: object;
  /** The operation changes nothing. */
  reads?: boolean;
  /** Of a read: it takes `X-Svc-Min-Sequence`. Others pass the header by. */
  waitsFor?: WaitsFor;
  /** Secret fields of the input whose names do not show it: audit and captured requests leave them out. */
  hides?: readonly string[];
  /** Data that flows all the time, not a change by somebody: only denied calls leave a row in the audit. */
  isRoutine?: boolean;
  /** Bodies and messages are reports of jobs: larger than others may be, and mended before any check. */
  takesReports?: { bytesMax: number; mend: (body: unknown) => void };
  /** May answer late (a held poll, a synchronous call): the idle timer of its connection is lifted. */
  held?: boolean;
  /** `none` for operations that stand outside any environment (capabilities, key management of an org). */
  scope?: "environment" | "none";
  /**
   * What a platform credential that impersonates no org must hold to call the operation; `authenticated` for
   * nothing. Left out, such a credential is refused outside `/api/v1/platform`.
   */
  platformAction?: string;
  /**
   * The resources that deny policies are checked for, when they are not the one field that names the input:
   * names of the operation's own type, and things of other types.
   */
  about?: (input: never) => readonly (string | Thing)[];
  /** Further actions that `about`, `costs` and the handler check; shown in the registry. */
  alsoAsks?: readonly string[];
  /** Further actions that this input needs, by roles and by policies. */
  costs?: (input: never) => readonly string[];
  /** The environment that the input names, if maybe not the call's own: deny policies apply to it too. */
  environmentOf?: (input: never) => string | undefined;
  special?: Special;
}

/** What few operations need. */
interface Special {
  /** Each call leaves a row in the audit, whatever the settings exclude; that of a change with its input. */
  isAudited?: boolean;
  /** The platform's action: a tenant's credential without it is refused for that, not as a tenant's. */
  rolesFirst?: boolean;
  /** A platform user who impersonates acts in the org of the environment that the input names. */
  crossesOrgs?: boolean;
  /** Loads what checks the input, and may refuse to: awaited before anything else sees the sent input. */
  loads?: (sent: unknown, call: Pick<Call, "caller">) => Promise<void>;
  /** For a public operation with its own credential, before the body is read: whose memory the body takes. */
  admits?: (request: Pick<RestRequest, "params" | "query">) => Promise<string>;
  /** Called when the body of an admitted REST call is too large; `head` waits for its first characters. */
  onBodyTooLarge?: (sent: UnreadRequest, call: Call, fault: Fault) => Promise<void>;
  /**
   * For a stream: a fault before the call is `admitted` is answered by an HTTP status, not at the stream's
   * end. Existing clients look at the status alone.
   */
  refusesByStatus?: boolean;
}

/** How to leave out of a list the things that deny policies hide from the caller. */
export interface Listing<O> {
  items: (output: O) => readonly unknown[];
  /** The names by which a deny policy may mean an item. */
  namesOf: (item: never) => readonly string[];
  /** The same answer with only these items. */
  only: (output: O, items: readonly never[]) => O;
  /** Another action that would show the same items, checked as well. */
  also?: string;
  /** The items' resource type; the operation's own by default. */
  type?: string;
  /** Things of other kinds that an item shows. */
  shows?: (item: never) => readonly Thing[];
}

export interface UnaryOperation<S extends TSchema = TSchema, O = unknown> extends OperationHead {
  mode: "unary";
  input: S;
  /** JSON Schema of the REST answer, for OpenAPI; RPC answers are described by their proto message. */
  output?: TSchema;
  /** One operation may answer several routes (PUT and PATCH). */
  rest?: RestBinding<Static<S>, O> | readonly RestBinding<Static<S>, O>[];
  /** One operation may answer several methods (Emit and Trigger). */
  rpc?: RpcBinding<Static<S>, O> | readonly RpcBinding<Static<S>, O>[];
  handle: (input: Static<S>, call: Call, permit: Permit) => Promise<O> | O;
  /**
   * For a read by one of several names: the input that names what was found by its own name. Deny policies
   * are checked for that too, before the answer.
   */
  finds?: (output: O, input: Static<S>) => object | undefined;
  lists?: Listing<O>;
  /** Its answers carry `X-Svc-Sequence`. */
  writes?: LogWrite<O>;
}

/**
 * A list of items, either the answer itself or its field `under`. A count beside the list counts the items
 * shown: a search that counted hidden items would reveal them letter by letter.
 */
export function listed<Item>(
  namesOf: (item: Item) => readonly string[],
  { under, also, type, shows }: { under?: string } & Pick<Listing<unknown>, "also" | "type" | "shows"> = {},
  // biome-ignore lint/suspicious/noExplicitAny: answers of every shape
): Listing<any> {
  return {
    items: (output) => (under === undefined ? output : output[under]),
    namesOf: namesOf as (item: never) => readonly string[],
    only(output, items) {
      if (under === undefined) return items;
      const counts = ["count", "totalCount"].filter((name) => name in output);
      return { ...output, [under]: items, ...Object.fromEntries(counts.map((name) => [name, items.length])) };
    },
    ...(also !== undefined && { also }),
    ...(type !== undefined && { type }),
    ...(shows !== undefined && { shows }),
  };
}

/** A list of things that are named by their id. */
export const listedById = (under?: string) =>
  listed(({ id }: { id: string }) => [id], under === undefined ? {} : { under });

/**
 * Also checks deny policies for this resource, in the words of `about`: now, and at every later
 * re-authorization of the call until it is called again. Throws `permission_denied`.
 */
export type Permit = (leadsTo: unknown) => Promise<void>;

export interface StreamOperation<S extends TSchema = TSchema, O = unknown> extends OperationHead {
  mode: "stream";
  input: S;
  rpc: RpcStreamBinding<Static<S>, O>;
  socket?: SocketBinding;
  handle: (input: Static<S>, call: Call, permit: Permit) => AsyncIterable<O>;
}

/** A conversation: `input` is what each of the caller's messages must be. */
export interface DuplexOperation<S extends TSchema = TSchema, O = unknown> extends OperationHead {
  mode: "duplex";
  input: S;
  rpc: RpcDuplexBinding<Static<S>, O>;
  /**
   * Ends when `call.signal` is aborted, which also says that the caller's credential holds no longer.
   * Messages that cannot be read make their iterator throw a Fault.
   */
  handle: (messages: AsyncIterable<Static<S>>, call: Call, permit: Permit) => AsyncIterable<O>;
}

/** What a caller listens to on a WebSocket of its own; what clients say there is passed over. */
export interface WatchOperation<S extends TSchema = TSchema> extends OperationHead {
  mode: "watch";
  input: S;
  rpc?: undefined;
  /** `GET /api/v1/…/watch`: path and query are the input, as of a REST route. */
  route: string;
  /** What is sent, by `type`. */
  frames: SocketBinding["server"];
  /**
   * JSON texts of frames; ends when `call.signal` is aborted. A fault before the call is `admitted` is
   * answered by an HTTP status, a later one by a frame `error` and the close.
   */
  handle: (input: Static<S>, call: Call, permit: Permit) => AsyncIterable<string>;
}

// The registry holds operations of every shape; `perform` restores the types by parsing.
export type Operation =
  // biome-ignore lint/suspicious/noExplicitAny: the one place where types are erased
  UnaryOperation<any, any> | StreamOperation<any, any> | DuplexOperation<any, any> | WatchOperation<any>;

export function unary<S extends TSchema, O>(operation: Omit<UnaryOperation<S, O>, "mode">): Operation {
  return { ...operation, mode: "unary" };
}

export function stream<S extends TSchema, O>(operation: Omit<StreamOperation<S, O>, "mode">): Operation {
  return { ...operation, mode: "stream" };
}

export function duplex<S extends TSchema, O>(operation: Omit<DuplexOperation<S, O>, "mode">): Operation {
  return { ...operation, mode: "duplex" };
}

/** What a frame `error` of a watch holds; `code` as in the errors of REST. */
export const endOfWatch = Type.Object({
  message: Type.String({ description: "For people: why the socket is closed." }),
  code: Type.String({ description: "A code of `x-svc-errors`." }),
});

export function watch<S extends TSchema>(operation: Omit<WatchOperation<S>, "mode">): Operation {
  return { ...operation, mode: "watch" };
}
