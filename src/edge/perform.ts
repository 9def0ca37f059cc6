import { KindGuard, type TObject, type TSchema } from "@sinclair/typebox";
import { TypeCompiler } from "@sinclair/typebox/compiler";
import type { Clock, Instant } from "../kit/clock.ts";
import { Fault, type FaultKind } from "../kit/fault.ts";
import type { Ids } from "../kit/ids.ts";
import type { Log } from "../kit/log.ts";
import type { Call, Caller, Operation, StreamOperation, UnaryOperation } from "../kit/operation.ts";
import { explain } from "./explain.ts";
import type { Follow } from "./follow.ts";
import { troubleOf } from "./spell.ts";
import { type Standing, standBy } from "./standing.ts";

export interface Authenticated {
  caller: Caller;
  environmentId: string;
}

/** Who sends this request; throws Fault("unauthenticated", …) and the 400 and 403 of environment selection. */
export type Authenticate = (request: Request) => Promise<Authenticated>;

/** What is told of every operation that was asked for, whatever became of it; for metrics and audit. */
export interface Observation {
  /** The very request, to know it again; its content is nobody's business here. */
  request: Request;
  operation: Operation;
  caller: Caller;
  environmentId: string;
  requestId: string;
  outcome: "ok" | FaultKind;
  ms: number;
  /** What a refused caller is told. */
  message?: string | undefined;
  /** Which rule refused it: `role`, `credential`, or a policy's id. */
  refusedBy?: string | undefined;
  /** As parsed; undefined when it was refused before. For the audit alone. */
  input?: unknown;
}

/** What the edge needs of the rest of the house. */
export interface Edge {
  clock: Clock;
  ids: Ids;
  log: Log;
  authenticate: Authenticate;
  /** Throws Fault("permission_denied", "Insufficient permissions") unless the caller's roles grant the action. */
  gate: (call: RequestCall, operation: Operation) => void | Promise<void>;
  /** Throws `resource_exhausted` when this caller asks too often. */
  limit?: ((caller: Caller) => void) | undefined;
  /** Where calls that go on for long are asked again whether they may. */
  standing?: Standing;
  /** Throws when a deny policy holds for what the parsed input is about. */
  guard?: (call: RequestCall, operation: Operation, input: unknown) => void | Promise<void>;
  observe: (observation: Observation) => void;
  /** Asked once for each route, named by its pattern: who wants to know when its requests come and are answered. */
  follow?: (route: { method: string; path: string }) => Follow;
}

/** A caller who is known, and may not come in this way. */
export class RefusedCaller extends Fault {
  readonly caller: Caller;

  constructor(caller: Caller, message: string) {
    super("permission_denied", message);
    this.caller = caller;
  }
}

/** An operation with its input check compiled, once. */
export interface Prepared {
  operation: Operation;
  parse: (input: unknown) => unknown;
}

const anonymous: Caller = { kind: "anonymous", id: "", orgId: "", roles: [] };
const nobody: Authenticated = { caller: anonymous, environmentId: "" };

/**
 * The schema with every object that says nothing about unknown fields closed to them. Parts of an intersection stay open:
 * each would refuse the fields of the others.
 */
export function closed(schema: TSchema): TSchema {
  if (KindGuard.IsObject(schema)) {
    const properties: TObject["properties"] = {};
    for (const [name, property] of Object.entries(schema.properties)) properties[name] = closed(property);
    return { ...schema, properties, additionalProperties: schema.additionalProperties ?? false };
  }
  if (KindGuard.IsArray(schema)) return { ...schema, items: closed(schema.items) };
  if (KindGuard.IsUnion(schema)) return { ...schema, anyOf: schema.anyOf.map(closed) };
  return schema;
}

export function prepare(operation: Operation): Prepared {
  const check = TypeCompiler.Compile(closed(operation.input));
  return {
    operation,
    parse(input) {
      if (!check.Check(input)) throw explain(check.Errors(input).First());
      return input;
    },
  };
}

/** One request on its way: `Call` for the handler. The signal is made only when somebody asks for it. */
export class RequestCall implements Call {
  readonly caller: Caller;
  readonly environmentId: string;
  readonly requestId: string;
  readonly receivedAt: Instant;
  readonly request: Request;
  /** Which rule refused it: `role`, or a policy's id. */
  refusedBy: string | undefined;
  address = "";
  isSecure = false;
  #signal: AbortSignal | undefined;

  constructor(request: Request, requestId: string, receivedAt: Instant, who: Authenticated) {
    this.caller = who.caller;
    this.environmentId = who.environmentId;
    this.requestId = requestId;
    this.receivedAt = receivedAt;
    this.request = request;
  }

  get signal(): AbortSignal {
    this.#signal ??= this.request.signal;
    return this.#signal;
  }

  /** Ends the call earlier than its request: a deadline, a protocol's own cancellation. */
  endWith(signal: AbortSignal): this {
    this.#signal = signal;
    return this;
  }

  get method(): string {
    return this.request.method;
  }

  get idempotencyKey(): string | undefined {
    return this.request.headers.get("idempotency-key") ?? undefined;
  }

  get runId(): string | undefined {
    return this.request.headers.get("x-svc-run-id") ?? undefined;
  }
}

/** Authentication and the start of a call. Runs before the body is read. */
export async function admit(edge: Edge, { operation }: Prepared, request: Request, requestId: string) {
  const receivedAt = edge.clock.now();
  try {
    const who = operation.action === null ? nobody : await edge.authenticate(request);
    edge.limit?.(who.caller);
    return new RequestCall(request, requestId, receivedAt, who);
  } catch (error) {
    const fault = faultOf(edge, error, operation, requestId);
    const ms = edge.clock.now() - receivedAt;
    const refused = fault instanceof RefusedCaller && { caller: fault.caller, refusedBy: "credential" };
    edge.observe({ request, operation, ...nobody, ...refused, requestId, outcome: fault.kind, ms });
    throw fault;
  }
}

/** The role gate. It needs no input, so a stranger cannot probe what an operation would take. */
export function passGate(edge: Edge, { operation }: Prepared, call: RequestCall): void | Promise<void> {
  if (operation.action === null) return;
  return edge.gate(call, operation);
}

/** The role gate by itself, for protocols that ask before the message is read; a refusal is observed. */
export async function enter(edge: Edge, prepared: Prepared, call: RequestCall): Promise<void> {
  const startedAt = edge.clock.elapsed();
  try {
    await passGate(edge, prepared, call);
  } catch (error) {
    const fault = faultOf(edge, error, prepared.operation, call.requestId);
    tell(edge, prepared.operation, call, { fault, input: undefined, startedAt });
    throw fault;
  }
}

/**
 * Anything thrown, as something a caller may be shown. What is not a caller's mistake is a defect: the log has it with an
 * id, the caller only the id.
 */
export function faultOf(
  edge: Edge,
  error: unknown,
  operation: Operation | undefined,
  requestId: string,
): Fault {
  if (error instanceof Fault) return error;
  const trouble = troubleOf(error);
  if (trouble) {
    edge.log.warn("request.trouble", { operation: operation?.name, requestId, error: trouble.cause });
    return trouble;
  }
  const id = edge.ids.next("req");
  edge.log.error("request.defect", { id, operation: operation?.name, requestId, error });
  return new Fault("internal", `internal error (id ${id})`, { cause: error });
}

export interface Performed {
  input: unknown;
  output: unknown;
}

/** Runs a unary operation for a caller who has been admitted: gate, parse, handle, observe. Throws Faults only. */
export async function perform(
  edge: Edge,
  prepared: Prepared,
  call: RequestCall,
  take: () => unknown,
): Promise<Performed> {
  const { operation } = prepared;
  const startedAt = edge.clock.elapsed();
  let fault: Fault | undefined;
  let input: unknown;
  try {
    const gated = passGate(edge, prepared, call);
    if (gated) await gated;
    const raw = take();
    input = prepared.parse(raw instanceof Promise ? await raw : raw);
    const guarded = edge.guard?.(call, operation, input);
    if (guarded) await guarded;
    const unary = operation as UnaryOperation;
    const handled = unary.held ? handleHeld(edge, unary, call, input) : unary.handle(input, call);
    const output = await handled;
    const found = unary.finds?.(output, input);
    if (found !== undefined) await edge.guard?.(call, operation, found);
    return { input, output };
  } catch (error) {
    fault = faultOf(edge, error, operation, call.requestId);
    throw fault;
  } finally {
    tell(edge, operation, call, { fault, input, startedAt });
  }
}

/** An answer that may take long ends early, as a refusal, when its caller may not have it any more. */
async function handleHeld(edge: Edge, operation: UnaryOperation, call: RequestCall, input: unknown) {
  const { leave, refused } = standBy(edge, operation, call, () => [input]);
  try {
    const output = await operation.handle(input, call);
    const fault = refused();
    if (fault) throw fault;
    return output;
  } catch (error) {
    throw refused() ?? error;
  } finally {
    leave();
  }
}

/** The same for a stream, which ends when its caller may not go on; observed when it ends, whoever ends it. */
export async function* performStream(
  edge: Edge,
  prepared: Prepared,
  call: RequestCall,
  take: () => unknown,
): AsyncGenerator<unknown> {
  const { operation } = prepared;
  const startedAt = edge.clock.elapsed();
  let fault: Fault | undefined;
  let input: unknown;
  let leave = () => {};
  try {
    const gated = passGate(edge, prepared, call);
    if (gated) await gated;
    input = prepared.parse(take());
    const guarded = edge.guard?.(call, operation, input);
    if (guarded) await guarded;
    const standing = standBy(edge, operation, call, () => [input]);
    leave = standing.leave;
    yield* (operation as StreamOperation).handle(input, call) as AsyncIterable<unknown>;
    const refused = standing.refused();
    if (refused) throw refused;
  } catch (error) {
    fault = faultOf(edge, error, operation, call.requestId);
    throw fault;
  } finally {
    leave();
    tell(edge, operation, call, { fault, input, startedAt });
  }
}

/** Tells of an operation that is over. Throws nothing: whoever counts it may not change its answer. */
export function tell(
  edge: Edge,
  operation: Operation,
  call: RequestCall,
  { fault, input, startedAt }: { fault: Fault | undefined; input: unknown; startedAt: number },
) {
  const { request, caller, environmentId, requestId, refusedBy } = call;
  const ms = edge.clock.elapsed() - startedAt;
  const outcome = fault?.kind ?? "ok";
  const message = fault?.message;
  try {
    edge.observe({
      request,
      operation,
      caller,
      environmentId,
      requestId,
      outcome,
      ms,
      message,
      refusedBy,
      input,
    });
  } catch (error) {
    edge.log.error("request.observe", { operation: operation.name, requestId, error });
  }
}
