import { type Breathe, breather } from "../kit/breather.ts";
import type { Clock } from "../kit/clock.ts";
import { type Fault, sendsAway } from "../kit/fault.ts";
import type { Operation } from "../kit/operation.ts";
import {
  type Authenticated,
  type Edge,
  faultOf,
  type OpenCall,
  type Reauthorizer,
  RequestCall,
} from "./call.ts";
import { decidingHeaders } from "./credential.ts";

/** Credentials of open calls that are looked up at once: what is asked for together is one query (A27). */
const reauthorizeConcurrency = 128;

const credentialHeaders = [...decidingHeaders, "x-svc-environment", "x-svc-org"];

/** Equal for requests that send the same credentials and selectors. */
const credentialKeyOf = ({ url, headers }: Request): string =>
  [url, ...credentialHeaders.map((name) => headers.get(name) ?? "")].join("\n");

interface WatchedCall {
  openCall: OpenCall;
  isOver: boolean;
  /** The calls with the same credential; undefined until the first tick after its begin. */
  sameCredential: Set<WatchedCall> | undefined;
}

/** The call as it would be admitted now. Its environment stays the one it began in. */
function renewedCall(call: RequestCall, { caller }: Authenticated): RequestCall {
  const { environmentId } = call;
  const who = { caller, environmentId };
  const fresh = new RequestCall(call.request, call.requestId, call.receivedAt, who, call.surroundings);
  fresh.address = call.address;
  fresh.isSecure = call.isSecure;
  return fresh;
}

/** Throws unless the call's caller may, by the rights of now, run the operation with this input. */
export async function reauthorize(
  edge: Edge,
  operation: Operation,
  call: RequestCall,
  asked: unknown,
): Promise<void> {
  if (operation.action === null) return;
  const now = renewedCall(call, await edge.authenticate(call.request, operation));
  try {
    await edge.gate(now, operation);
    await edge.guard?.(now, operation, asked);
  } catch (error) {
    call.refusedBy = now.refusedBy;
    throw error;
  }
}

/**
 * A credential may go with its environment. The deletion tells who listens there, and ends what goes on
 * there: it must not be cut off before.
 */
const isGoing = async ({ edge, call }: OpenCall): Promise<boolean> =>
  (await edge.isGoing?.(call.environmentId).catch(() => false)) ?? false;

export function openReauthorizer({ clock }: { clock: Clock }): Reauthorizer {
  /** By credential: many open calls mostly share one key. */
  const all = new Map<string, Set<WatchedCall>>();
  /** Calls added since the last tick. Most polls end before the next one, and should cost next to nothing. */
  let added: WatchedCall[] = [];

  function admitAdded(): void {
    const came = added;
    added = [];
    for (const watched of came) {
      if (watched.isOver) continue;
      const credential = credentialKeyOf(watched.openCall.call.request);
      watched.sameCredential = all.get(credential) ?? new Set();
      all.set(credential, watched.sameCredential);
      watched.sameCredential.add(watched);
    }
  }

  const faultIfFinal = ({ edge, operation, call }: OpenCall, error: unknown): Fault | undefined => {
    const fault = faultOf(edge, error, operation, call.requestId);
    return sendsAway(fault) ? fault : undefined;
  };

  async function recheckCall(openCall: OpenCall, who: Authenticated): Promise<void> {
    const { edge, operation } = openCall;
    let asked: unknown;
    const call = renewedCall(openCall.call, who);
    const refuse = (error: unknown) => {
      const fault = faultIfFinal(openCall, error);
      if (!fault) return;
      openCall.call.refusedBy = call.refusedBy;
      openCall.refuse(fault, asked);
    };
    try {
      const gated = edge.gate(call, operation);
      if (gated) await gated;
    } catch (error) {
      return refuse(error);
    }
    if (!edge.guard) return;
    for (asked of [...openCall.inputs()])
      try {
        const guarded = edge.guard(call, operation, asked);
        if (guarded) await guarded;
      } catch (error) {
        refuse(error);
      }
    const renewed = openCall.call.renew(call);
    if (renewed) await renewed;
  }

  /**
   * Re-checks the calls of one credential, which is looked up once. Gives the event loop back after every
   * burst.
   */
  async function recheckCredential(
    credential: string,
    alike: ReadonlySet<WatchedCall>,
    breathe: Breathe,
  ): Promise<void> {
    const [first] = alike;
    if (!first) {
      all.delete(credential);
      return;
    }
    let who: Authenticated;
    try {
      who = await first.openCall.edge.authenticate(first.openCall.call.request, first.openCall.operation);
    } catch (error) {
      const fault = faultIfFinal(first.openCall, error);
      if (!fault || (await isGoing(first.openCall))) return;
      for (const { openCall } of [...alike]) openCall.refuse(fault, undefined);
      return;
    }
    for (const { openCall, isOver } of [...alike]) {
      if (!isOver) await recheckCall(openCall, who);
      await breathe();
    }
  }

  return {
    add(openCall) {
      const watched: WatchedCall = { openCall, isOver: false, sameCredential: undefined };
      added.push(watched);
      return () => {
        watched.isOver = true;
        watched.sameCredential?.delete(watched);
      };
    },

    async reauthorizeOnce() {
      admitAdded();
      const waiting = [...all];
      const few = async () => {
        const breathe = breather(clock, "standing");
        for (let next = waiting.pop(); next; next = waiting.pop())
          await recheckCredential(next[0], next[1], breathe);
      };
      await Promise.all(Array.from({ length: reauthorizeConcurrency }, few));
    },

    size: () =>
      [...all.values()].reduce((sum, { size }) => sum + size, 0) +
      added.filter(({ isOver }) => !isOver).length,
  };
}

/**
 * Re-authorizes a call until `leave`: its signal aborts, with the fault, when its caller loses the right to
 * it. `inputs` is called at each check.
 */
export function keepAuthorized(
  edge: Edge,
  operation: Operation,
  call: RequestCall,
  inputs: OpenCall["inputs"],
): { leave: () => void; refused: () => Fault | undefined } {
  if (!edge.reauthorizer || operation.action === null) return { leave() {}, refused: () => undefined };
  const { signal } = call;
  const ends = new AbortController();
  let refused: Fault | undefined;
  // Costs half as much as AbortSignal.any, for every poll of every worker (measured).
  if (signal.aborted) ends.abort(signal.reason);
  else signal.addEventListener("abort", () => ends.abort(signal.reason), { once: true });
  call.endWith(ends.signal);
  const leave = edge.reauthorizer.add({
    edge,
    operation,
    call,
    inputs,
    refuse(fault) {
      refused ??= fault;
      ends.abort(fault);
    },
  });
  return { leave, refused: () => refused };
}
