import type {
  DescMessage,
  DescMethodBiDiStreaming,
  DescMethodServerStreaming,
  DescMethodUnary,
  MessageInitShape,
  MessageShape,
} from "@bufbuild/protobuf";
import type { Static, TSchema } from "@sinclair/typebox";
import type { Instant } from "./clock.ts";
import type { Fault } from "./fault.ts";

/** Who asks: the result of authentication, and nothing a handler could forget to check. */
export interface Caller {
  kind: "key" | "user" | "platform" | "anonymous" | "dev";
  /** `ak_…` or user id; what audit rows and logs name. */
  id: string;
  /** The org that the call acts in; a platform credential's own is `org_platform`. */
  orgId: string;
  roles: readonly string[];
  /** A platform credential that acts in a tenant's org by `X-Svc-Org`. */
  impersonates?: boolean;
  /** Of a user. */
  email?: string;
  /** Of a key: sessions made with it before are believed no more. As of its look-up: a rotation since has raised it. */
  tokensAfter?: Instant;
}

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
  /** The token of the session that was let in; undefined when its credential is a key. */
  session?: string | undefined;
  /** Where the request comes from; empty when that cannot be told. */
  address: string;
  /** It came over TLS, to us or to a proxy that we trust. */
  isSecure: boolean;
  /** What deny policies keep from the caller as it is now, of things that the input does not name. Undefined: nothing. */
  screen(action: string, type: string): Screen | undefined | Promise<Screen | undefined>;
  /** Of a call that stands: told each time its caller was found to be one who may go on, roles and all looked up anew. */
  onRenewed(listener: () => void | Promise<void>): void;
}

/** The deny policies that may keep things of one type from a caller. */
export interface Screen {
  /** The refusal of a thing with these names; undefined: the caller may have it. At once where it was asked before. */
  refusalOf(names: readonly string[]): Fault | undefined | Promise<Fault | undefined>;
}

/** One thing that a call is about besides those of its operation's own type and action. */
export interface Thing {
  type: string;
  id: string;
  /** Left out: the operation's own. */
  action?: string;
  /** The id stands for all names that it matches, `*` for any run of characters: a policy denies it that may deny one of them. */
  isPattern?: boolean;
}

/** A REST request as a binding sees it; `body` is undefined when none was sent, parsed JSON otherwise (bytes when `raw`). */
export interface RestRequest {
  params: Record<string, string>;
  query: URLSearchParams;
  headers: Headers;
  body: unknown;
}

export interface RestReply {
  status: number;
  /**
   * A JSON value; or, with a content type of its own in headers: text, bytes, or an AsyncIterable of either, sent piece by
   * piece and ended when the client leaves. Undefined for none.
   */
  body?: unknown;
  headers?: Record<string, string>;
}

/** `"GET /api/v1/events/{id}"`; path, query and body fields are merged into the input under their wire names. */
export type RestBinding<I, O> =
  | string
  | {
      route: string;
      /** The body reaches `decode` as the bytes that were sent (Uint8Array), whatever their type. */
      raw?: boolean;
      decode?: (request: RestRequest) => unknown;
      encode?: (output: O, input: I) => RestReply;
      /** The status of success: what the default `encode` answers, and what the OpenAPI document says. */
      status?: number;
      /** For the document, where `decode` reads something else than the input's own fields. */
      body?: TSchema;
      query?: TSchema;
    };

/** How an operation appears as a unary Connect method. */
export interface RpcBinding<I, O> {
  method: DescMethodUnary;
  decode: (message: never) => I;
  encode: (output: O) => object;
  /** JSON in, JSON out or both without building messages: for hot methods and loose spellings; names as in the protobuf mapping. */
  json?: { decode?: (body: Record<string, unknown>) => unknown; encode?: (output: O) => unknown };
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
 * What a caller must hold: an action of `access/actions.ts`; `"authenticated"` for any valid credential; `null` only for
 * the list of public operations (proto/README.md 'Who may call'), which a contract test holds.
 */
export type OperationAction = string | null;

interface OperationHead {
  /** `runs.cancel`: key of metrics, audit rows and the authorization matrix. */
  name: string;
  action: OperationAction;
  /** One sentence for OpenAPI. */
  summary: string;
  /** The operation changes nothing. */
  reads?: boolean;
  /** May answer late (a held poll, a synchronous call): the idle timer of its connection is lifted. */
  held?: boolean;
  /** `none` for operations that stand outside any environment (capabilities, key management of an org). */
  scope?: "environment" | "none";
  /**
   * What a platform credential that impersonates nobody must hold to call it; without this it is refused outside
   * `/api/v1/platform` (design: rulings). `authenticated`: nothing.
   */
  platformAction?: string;
  /** Although its action is one of the platform's, a tenant's own credential whose roles grant it may. */
  tenantsToo?: boolean;
  /**
   * All that the input is about, for deny policies, where that is not the one field that names it: names of the operation's
   * own type, and things of others.
   */
  about?: (input: never) => readonly (string | Thing)[];
  /** Actions besides its own that things of `about`, `costs` and the handler are asked about: the registry shows them. */
  alsoAsks?: readonly string[];
  /** Actions besides its own that this input costs: of roles and of policies. */
  costs?: (input: never) => readonly string[];
  /**
   * The environment that the input is about, which need not be the one the call was let into: deny policies are asked about
   * it as well.
   */
  environmentOf?: (input: never) => string | undefined;
  /** To the platform no environment is foreign: who impersonates acts in the org of the one that the input is about. */
  crossesOrgs?: boolean;
}

/** Of an operation that answers many things: those that deny policies keep from the caller are left out. */
export interface Listing<O> {
  items: (output: O) => readonly unknown[];
  /** As deny policies may name one of them. */
  namesOf: (item: never) => readonly string[];
  /** The same answer with these items alone. */
  only: (output: O, items: readonly never[]) => O;
  /** An action besides the operation's own that shows as much of each. */
  also?: string;
  /** Of what they are; left out: the operation's own. */
  type?: string;
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
   * Of a read: the input that names what was found by its own name, where the caller's was another; deny policies are asked
   * about that too, before it is answered.
   */
  finds?: (output: O, input: Static<S>) => object | undefined;
  lists?: Listing<O>;
  /** Told that the body of a REST call was too large to be read, with what the path says; its caller has passed the gate. */
  onBodyTooLarge?: (params: Record<string, string>, call: Call, fault: Fault) => Promise<void>;
}

/**
 * Items in an answer that is a list, or in a field of it, each named by fields of its own. A count that stands beside them counts
 * what is shown: a search that counts what it keeps back would tell of it, letter by letter.
 */
export function listed<Item>(
  namesOf: (item: Item) => readonly string[],
  { under, also, type }: { under?: string } & Pick<Listing<unknown>, "also" | "type"> = {},
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
  };
}

/** The commonest: things that are named by their id. */
export const listedById = (under?: string) =>
  listed(({ id }: { id: string }) => [id], under === undefined ? {} : { under });

/**
 * Tells, in the words of `about`, what the input leads to now: deny policies are asked about that too, at once and, until
 * the next is told, as long as the call lasts. Throws what refuses it.
 */
export type Permit = (leadsTo: unknown) => Promise<void>;

export interface StreamOperation<S extends TSchema = TSchema, O = unknown> extends OperationHead {
  mode: "stream";
  input: S;
  rpc: RpcStreamBinding<Static<S>, O>;
  handle: (input: Static<S>, call: Call, permit: Permit) => AsyncIterable<O>;
}

/** A conversation: `input` is what each of the caller's messages must be. */
export interface DuplexOperation<S extends TSchema = TSchema, O = unknown> extends OperationHead {
  mode: "duplex";
  input: S;
  rpc: RpcDuplexBinding<Static<S>, O>;
  /**
   * Ends when `call.signal` is aborted, which also says that the caller's credential holds no longer. Messages that cannot
   * be read make their iterator throw a Fault.
   */
  handle: (messages: AsyncIterable<Static<S>>, call: Call, permit: Permit) => AsyncIterable<O>;
}

// The registry holds operations of every shape; `perform` restores the types by parsing.
// biome-ignore lint/suspicious/noExplicitAny: the one place where types are erased
export type Operation = UnaryOperation<any, any> | StreamOperation<any, any> | DuplexOperation<any, any>;

export function unary<S extends TSchema, O>(operation: Omit<UnaryOperation<S, O>, "mode">): Operation {
  return { ...operation, mode: "unary" };
}

export function stream<S extends TSchema, O>(operation: Omit<StreamOperation<S, O>, "mode">): Operation {
  return { ...operation, mode: "stream" };
}

export function duplex<S extends TSchema, O>(operation: Omit<DuplexOperation<S, O>, "mode">): Operation {
  return { ...operation, mode: "duplex" };
}
