import type { Fault } from "../kit/fault.ts";
import type { Operation } from "../kit/operation.ts";
import { type Edge, faultOf, type RequestCall } from "./call.ts";
import { closes, type RawSocket, type SocketSession, type Subscribed } from "./open-socket.ts";
import { admit, enter, observeCall, prepare } from "./perform.ts";

/**
 * The checks of a socket's caller: at the upgrade, at each subscription, and from time to time while it is
 * open.
 */
export function openSocketGate(edge: Edge, operation: Operation) {
  const prepared = prepare(operation);

  async function admitCaller(credentials: Request, requestId: string): Promise<RequestCall> {
    const call = await admit(edge, prepared, credentials, requestId);
    await enter(edge, prepared, call);
    return call;
  }

  /** Checks the policies of now, for the caller of now: both may have changed since the upgrade. */
  const permitAs = (credentials: Request, requestId: string) => async (input: Subscribed) => {
    const call = await admitCaller(credentials, requestId);
    const startedAt = edge.clock.elapsed();
    let fault: Fault | undefined;
    try {
      await edge.guard?.(call, operation, input);
    } catch (error) {
      fault = faultOf(edge, error, operation, requestId);
      throw fault;
    } finally {
      observeCall(edge, operation, call, { fault, input, startedAt });
    }
  };

  /** Checks from time to time that the caller may still be connected, and listen to each of its patterns. */
  const watch = (raw: RawSocket, call: RequestCall, session: SocketSession) =>
    edge.reauthorizer?.add({
      edge,
      operation,
      call,
      inputs: () => session.subscriptions(),
      refuse(fault, input) {
        if (input === undefined) raw.close(closes.refused, "the credential is no longer valid");
        else session.deny(input as Subscribed, fault);
      },
    });

  return { admit: admitCaller, permitAs, watch };
}
