import { KindGuard, type TObject, type TSchema, Type } from "@sinclair/typebox";
import { AccessRefusal } from "../gate/gate.ts";
import { subjectOf } from "../gate/subject.ts";
import { actionsThatShowType, asksOfAll, screenOfAsks } from "../gate/things.ts";
import type { Caller } from "../kit/caller.ts";
import { compiled, explain, isCheckedPerItem } from "../kit/explain.ts";
import type { Fault } from "../kit/fault.ts";
import { sequenceWaitMsMax } from "../kit/limits.ts";
import type { LogWrite, Operation, Permit, StreamOperation, UnaryOperation } from "../kit/operation.ts";
import { minSequenceHeader, minSequenceQuery, readSequence, type Sequence } from "../kit/sequence.ts";
import { type Authenticated, type Edge, faultOf, RefusedCaller, RequestCall } from "./call.ts";
import { keepAuthorized, reauthorize } from "./reauthorize.ts";

const unitMs: Record<string, number> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 };

/** The time left to answer a wait that runs out: a client that has given up would get no answer. */
const answerMsMax = 500;

/** What the caller's own deadline leaves of the longest wait. */
function waitMsOf({ headers }: Pick<Request, "headers">): number {
  const [, number, unit] = /^(\d{1,8})([HMSmun])$/.exec(headers.get("grpc-timeout") ?? "") ?? [];
  const connectMs = headers.get("connect-timeout-ms");
  const ms = unit === undefined ? Number(connectMs ?? Number.NaN) : Number(number) * unitMs[unit]!;
  if (Number.isNaN(ms)) return sequenceWaitMsMax;
  return Math.min(sequenceWaitMsMax, Math.max(0, ms - Math.min(answerMsMax, ms / 4)));
}

function leastOf({ headers, url }: Pick<Request, "headers" | "url">): Sequence | undefined {
  const sent = headers.get(minSequenceHeader);
  if (sent !== null) return readSequence(minSequenceHeader, sent);
  if (!url.includes(`${minSequenceQuery}=`)) return undefined;
  const asked = new URL(url).searchParams.get(minSequenceQuery);
  return asked === null ? undefined : readSequence(minSequenceQuery, asked);
}

/**
 * What a read that was sent a position has to wait for before it begins; undefined where nothing is missing.
 * A malformed position throws.
 */
function minSequence(
  { sequences }: Edge,
  { waitsFor }: Pick<Operation, "waitsFor">,
  call: RequestCall,
  input: unknown,
): (() => Promise<void>) | undefined {
  if (!sequences || waitsFor === undefined) return undefined;
  const least = leastOf(call.request);
  if (!least) return undefined;
  const reads =
    typeof waitsFor === "function" ? () => waitsFor(input as never, call.environmentId) : waitsFor;
  const reached = sequences.reached(call.environmentId, least, reads);
  if (!reached) return undefined;
  const { caller, request } = call;
  return () => reached({ timeoutMs: waitMsOf(request), signal: call.signal, holder: caller.id });
}

/** What a write is answered in `X-Svc-Sequence`. */
function sequenceOf(
  { sequences }: Edge,
  { log, positionOf, environmentOf }: LogWrite<unknown>,
  call: Pick<RequestCall, "environmentId">,
  output: unknown,
): string | undefined | Promise<string | undefined> {
  const position = positionOf(output);
  if (position === undefined) return undefined;
  return sequences?.sequenceAt(environmentOf?.(output) ?? call.environmentId, log, position);
}

/** Leaves out of a list the items that deny policies hide from its caller. */
async function screenedList(call: RequestCall, operation: UnaryOperation, output: unknown): Promise<unknown> {
  const { lists, action } = operation;
  if (!lists || action === null || action === "authenticated") return output;
  const { type: ownType } = subjectOf(operation);
  const { also, shows, type = ownType } = lists;
  // What stands in lists of other things is hidden as it is in its own.
  const isOfTenants = !action.startsWith("platform:");
  const further = type === ownType || !isOfTenants ? [] : actionsThatShowType(type);
  const own = [action, ...(also === undefined ? [] : [also]), ...further].map((asked) => ({
    ...{ action: asked, type },
  }));
  const screen = await screenOfAsks(call, shows ? [...own, ...asksOfAll] : own);
  if (!screen) return output;
  const kept: unknown[] = [];
  for (const item of lists.items(output)) {
    const names = lists.namesOf(item as never);
    const things = own.flatMap((asked) => names.map((id) => ({ ...asked, id })));
    const refused = screen.refusalOf([...things, ...(shows?.(item as never) ?? [])]);
    if ((await refused) === undefined) kept.push(item);
  }
  // Totals are removed also when this page lost nothing: they count items hidden on other pages.
  return lists.only(output, kept as never[]);
}

/** An operation with its input check, which is compiled once. */
export interface PreparedOperation {
  operation: Operation;
  parse: (input: unknown) => unknown;
}

const anonymous: Caller = { kind: "anonymous", id: "", orgId: "", roles: [] };
const nobody: Authenticated = { caller: anonymous, environmentId: "" };

/**
 * The schema with every object that says nothing about unknown fields closed to them. Parts of an
 * intersection stay open: each would refuse the fields of the others. What handlers check themselves takes
 * any value, save in a schema that is only shown.
 */
export function closed(schema: TSchema, isShown = false): TSchema {
  const isAny = (one: TSchema) => !isShown && isCheckedPerItem(one);
  const inner = (one: TSchema) => closed(one, isShown);
  if (isAny(schema)) return Type.Optional(Type.Unknown());
  if (KindGuard.IsObject(schema)) {
    const properties: TObject["properties"] = {};
    for (const [name, property] of Object.entries(schema.properties)) properties[name] = inner(property);
    const { required = [], additionalProperties = false } = schema as TObject & { required?: string[] };
    const checked = required.filter((name) => !isAny(schema.properties[name]!));
    return { ...schema, properties, required: checked, additionalProperties };
  }
  if (KindGuard.IsArray(schema)) return { ...schema, items: inner(schema.items) };
  if (KindGuard.IsUnion(schema)) return { ...schema, anyOf: schema.anyOf.map(inner) };
  return schema;
}

export function prepare(operation: Operation): PreparedOperation {
  const check = compiled(() => closed(operation.input));
  return {
    operation,
    parse(input) {
      if (!check().Check(input)) throw explain(check().Errors(input).First());
      return input;
    },
  };
}

/** Authentication and the start of a call. Runs before the body is read. */
export async function admit(
  edge: Edge,
  { operation }: PreparedOperation,
  request: Request,
  requestId: string,
) {
  const receivedAt = edge.clock.now();
  try {
    const who = operation.action === null ? nobody : await edge.authenticate(request, operation);
    edge.limit?.(who.caller);
    const { screen, traceOf } = edge;
    return new RequestCall(request, requestId, receivedAt, who, { operation, screen, traceOf });
  } catch (error) {
    const fault = faultOf(edge, error, operation, requestId);
    const ms = edge.clock.now() - receivedAt;
    const refused = fault instanceof RefusedCaller && { caller: fault.caller, refusedBy: "credential" };
    edge.observe({ request, operation, ...nobody, ...refused, requestId, outcome: fault.kind, ms });
    throw fault;
  }
}

/** The role gate. It runs before the input is parsed, so a stranger cannot probe an operation's schema. */
export function passGate(
  edge: Edge,
  { operation }: PreparedOperation,
  call: RequestCall,
): void | Promise<void> {
  if (operation.action === null) return;
  return edge.gate(call, operation);
}

/** The role gate alone, for protocols that check before the message is read; a refusal is observed. */
export async function enter(edge: Edge, prepared: PreparedOperation, call: RequestCall): Promise<void> {
  const startedAt = edge.clock.elapsed();
  try {
    await passGate(edge, prepared, call);
  } catch (error) {
    const fault = faultOf(edge, error, prepared.operation, call.requestId);
    observeCall(edge, prepared.operation, call, { fault, input: undefined, startedAt });
    throw fault;
  }
}

export interface Performed {
  input: unknown;
  output: unknown;
  /** The text of `X-Svc-Sequence`. */
  sequence: string | undefined;
}

/**
 * Runs a unary operation for a caller who has been admitted: gate, parse, handle, observe. Throws Faults
 * only.
 */
export async function perform(
  edge: Edge,
  prepared: PreparedOperation,
  call: RequestCall,
  decode: () => unknown,
): Promise<Performed> {
  const { operation } = prepared;
  const startedAt = edge.clock.elapsed();
  let fault: Fault | undefined;
  let input: unknown;
  try {
    const gated = passGate(edge, prepared, call);
    if (gated) await gated;
    const raw = decode();
    const sent = raw instanceof Promise ? await raw : raw;
    const loaded = operation.special?.loads?.(sent, call);
    if (loaded) await loaded;
    input = prepared.parse(sent);
    const guarded = edge.guard?.(call, operation, input);
    if (guarded) await guarded;
    const unary = operation as UnaryOperation;
    const permit: Permit = async (leadsTo) => edge.guard?.(call, operation, leadsTo);
    const reached = unary.waitsFor && minSequence(edge, unary, call, input);
    const handled =
      unary.held || reached
        ? handleHeld(edge, unary, call, input, reached)
        : unary.handle(input, call, permit);
    const answered = await handled;
    const output = unary.lists ? await screenedList(call, unary, answered) : answered;
    const found = unary.finds?.(output, input);
    if (found !== undefined) await edge.guard?.(call, operation, found);
    const sequence = unary.writes && sequenceOf(edge, unary.writes, call, answered);
    return { input, output, sequence: typeof sequence === "object" ? await sequence : sequence };
  } catch (error) {
    fault = faultOf(edge, error, operation, call.requestId);
    throw fault;
  } finally {
    observeCall(edge, operation, call, { fault, input, startedAt });
  }
}

/** Runs a held operation, and refuses it early when its caller loses the right to it. */
async function handleHeld(
  edge: Edge,
  operation: UnaryOperation,
  call: RequestCall,
  input: unknown,
  reached: (() => Promise<void>) | undefined,
) {
  const inputs = [input];
  const { leave, refused } = keepAuthorized(edge, operation, call, () => inputs);
  const permit: Permit = async (leadsTo) => {
    const guarded = edge.guard?.(call, operation, leadsTo);
    if (guarded) await guarded;
    inputs[1] = leadsTo;
  };
  try {
    if (reached) await reached();
    const output = await operation.handle(input, call, permit);
    const fault = refused();
    if (fault) throw fault;
    return output;
  } catch (error) {
    throw refused() ?? error;
  } finally {
    leave();
  }
}

/**
 * The same for a stream, which ends when its caller loses the right to it. It is observed when it ends, from
 * either side.
 */
export async function* performStream(
  edge: Edge,
  prepared: PreparedOperation,
  call: RequestCall,
  decode: () => unknown,
): AsyncGenerator<unknown> {
  const { operation } = prepared;
  const startedAt = edge.clock.elapsed();
  let fault: Fault | undefined;
  let input: unknown;
  let leave = () => {};
  try {
    const gated = passGate(edge, prepared, call);
    if (gated) await gated;
    input = prepared.parse(decode());
    const guarded = edge.guard?.(call, operation, input);
    if (guarded) await guarded;
    const stream = operation as StreamOperation;
    const inputs = [input];
    const permit = async (leadsTo: unknown) => {
      await reauthorize(edge, operation, call, leadsTo);
      inputs[1] = leadsTo;
    };
    const authorization = keepAuthorized(edge, operation, call, () => inputs);
    leave = authorization.leave;
    await minSequence(edge, stream, call, input)?.();
    yield* stream.handle(input, call, permit) as AsyncIterable<unknown>;
    const refused = authorization.refused();
    if (refused) throw refused;
  } catch (error) {
    fault = faultOf(edge, error, operation, call.requestId);
    throw fault;
  } finally {
    leave();
    observeCall(edge, operation, call, { fault, input, startedAt });
  }
}

/** Reports a finished operation to metrics and audit. Never throws: observers must not change the answer. */
export function observeCall(
  edge: Edge,
  operation: Operation,
  call: RequestCall,
  { fault, input, startedAt }: { fault: Fault | undefined; input: unknown; startedAt: number },
) {
  const { request, caller, environmentId, requestId } = call;
  const refusedBy = call.refusedBy ?? (fault instanceof AccessRefusal ? fault.rule : undefined);
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
