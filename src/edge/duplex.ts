import type { Message } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { Fault } from "../kit/fault.ts";
import type { DuplexOperation, Permit } from "../kit/operation.ts";
import { type Edge, faultOf, type RequestCall } from "./call.ts";
import { observeCall, type PreparedOperation } from "./perform.ts";
import { keepAuthorized } from "./reauthorize.ts";

/** What Connect says of bytes that are no message, in our words; anything else is a caller that has left. */
function faultOfRead(error: unknown): Fault {
  if (error instanceof Fault) return error;
  const { code, rawMessage } = ConnectError.from(error);
  if (code === Code.InvalidArgument) return new Fault("invalid_argument", rawMessage, { cause: error });
  if (code === Code.ResourceExhausted) return new Fault("resource_exhausted", rawMessage, { cause: error });
  if (code === Code.Unimplemented) return new Fault("unimplemented", rawMessage, { cause: error });
  return new Fault("aborted", "the stream was cut", { cause: error });
}

/** The parsed messages. Each is checked by deny policies, and passed to `heard`. */
async function* parsed(
  edge: Edge,
  prepared: PreparedOperation,
  call: RequestCall,
  messages: AsyncIterable<Message>,
  decode: (message: Message) => unknown,
  onInput: (input: unknown) => void,
): AsyncGenerator<unknown> {
  const sent = messages[Symbol.asyncIterator]();
  for (;;) {
    let next: IteratorResult<Message>;
    try {
      next = await sent.next();
    } catch (error) {
      throw faultOfRead(error);
    }
    if (next.done) return;
    const input = prepared.parse(decode(next.value));
    const guarded = edge.guard?.(call, prepared.operation, input);
    if (guarded) await guarded;
    onInput(input);
    yield input;
  }
}

/**
 * Runs a conversation with a caller who has been admitted: every message is parsed as it comes, and a
 * credential that is revoked ends it. Throws Faults only.
 */
export async function* performDuplex(
  edge: Edge,
  prepared: PreparedOperation,
  call: RequestCall,
  messages: AsyncIterable<Message>,
  decode: (message: Message) => unknown,
): AsyncGenerator<unknown> {
  const operation = prepared.operation as DuplexOperation;
  const startedAt = edge.clock.elapsed();
  let first: unknown;
  let ledTo: unknown;
  const authorization = keepAuthorized(edge, operation, call, () =>
    [first, ledTo].filter((asked) => asked !== undefined),
  );
  const onInput = (input: unknown) => {
    first ??= input;
  };
  const permit: Permit = async (leadsTo) => {
    const guarded = edge.guard?.(call, operation, leadsTo);
    if (guarded) await guarded;
    ledTo = leadsTo;
  };
  let fault: Fault | undefined;
  try {
    yield* operation.handle(parsed(edge, prepared, call, messages, decode, onInput), call, permit);
    const refused = authorization.refused();
    if (refused) throw refused;
  } catch (error) {
    fault = faultOf(edge, error, operation, call.requestId);
    throw fault;
  } finally {
    authorization.leave();
    observeCall(edge, operation, call, { fault, input: first, startedAt });
  }
}
