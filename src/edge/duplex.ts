import type { Message } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { Fault } from "../kit/fault.ts";
import { keyLeaseMs } from "../kit/limits.ts";
import type { DuplexOperation } from "../kit/operation.ts";
import {
  type Edge,
  faultOf,
  type Observation,
  type Prepared,
  passGate,
  RequestCall,
  tell,
} from "./perform.ts";

/** What Connect says of bytes that are no message, in our words; anything else is a caller that has left. */
function unread(error: unknown): Fault {
  if (error instanceof Fault) return error;
  const { code, rawMessage } = ConnectError.from(error);
  if (code === Code.InvalidArgument) return new Fault("invalid_argument", rawMessage, { cause: error });
  if (code === Code.ResourceExhausted) return new Fault("resource_exhausted", rawMessage, { cause: error });
  if (code === Code.Unimplemented) return new Fault("unimplemented", rawMessage, { cause: error });
  return new Fault("aborted", "the stream was cut", { cause: error });
}

/** The parsed messages; deny policies are asked about each, and `heard` is told of it. */
async function* parsed(
  edge: Edge,
  prepared: Prepared,
  call: RequestCall,
  messages: AsyncIterable<Message>,
  take: (message: Message) => unknown,
  heard: (input: unknown) => void,
): AsyncGenerator<unknown> {
  const sent = messages[Symbol.asyncIterator]();
  for (;;) {
    let next: IteratorResult<Message>;
    try {
      next = await sent.next();
    } catch (error) {
      throw unread(error);
    }
    if (next.done) return;
    const input = prepared.parse(take(next.value));
    const guarded = edge.guard?.(call, prepared.operation, input);
    if (guarded) await guarded;
    heard(input);
    yield input;
  }
}

/** Asks every `keyLeaseMs` whether the caller may still do what it does; aborts with the fault when it may not. */
function recheck(
  edge: Edge,
  prepared: Prepared,
  call: RequestCall,
  revoked: AbortController,
  first: () => unknown,
): () => void {
  let cancel = () => {};
  let over = false;
  const check = async () => {
    try {
      const who = await edge.authenticate(call.request);
      const fresh = new RequestCall(call.request, call.requestId, edge.clock.now(), who);
      fresh.address = call.address;
      fresh.isSecure = call.isSecure;
      await passGate(edge, prepared, fresh);
      if (first() !== undefined) await edge.guard?.(fresh, prepared.operation, first());
    } catch (error) {
      const gone =
        error instanceof Fault && (error.kind === "unauthenticated" || error.kind === "permission_denied");
      // A store that does not answer is no reason to send anybody away.
      if (gone) return revoked.abort(error);
    }
    if (!over) cancel = edge.clock.after(keyLeaseMs, () => void check());
  };
  cancel = edge.clock.after(keyLeaseMs, () => void check());
  return () => {
    over = true;
    cancel();
  };
}

/**
 * Runs a conversation with a caller who has been admitted: every message is parsed as it comes, and a credential that is
 * revoked ends it within about `keyLeaseMs`. Throws Faults only.
 */
export async function* performDuplex(
  edge: Edge,
  prepared: Prepared,
  call: RequestCall,
  messages: AsyncIterable<Message>,
  take: (message: Message) => unknown,
): AsyncGenerator<unknown> {
  const operation = prepared.operation as DuplexOperation;
  const startedAt = edge.clock.elapsed();
  const revoked = new AbortController();
  call.endWith(AbortSignal.any([call.signal, revoked.signal]));
  let first: unknown;
  const forget = recheck(edge, prepared, call, revoked, () => first);
  const heard = (input: unknown) => {
    first ??= input;
  };
  let outcome: Observation["outcome"] = "ok";
  try {
    yield* operation.handle(parsed(edge, prepared, call, messages, take, heard), call);
    if (revoked.signal.aborted) throw revoked.signal.reason;
  } catch (error) {
    const fault = faultOf(edge, error, operation, call.requestId);
    outcome = fault.kind;
    throw fault;
  } finally {
    forget();
    tell(edge, operation, call, outcome, startedAt);
  }
}
