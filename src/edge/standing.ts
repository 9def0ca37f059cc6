import type { Clock } from "../kit/clock.ts";
import type { Fault } from "../kit/fault.ts";
import { standingAtOnce, standingBurstMs } from "../kit/limits.ts";
import type { Operation } from "../kit/operation.ts";
import { type Authenticated, type Edge, faultOf, RequestCall } from "./perform.ts";

/** A call that goes on after its caller was let in: a socket, a stream, a held poll. */
export interface Stand {
  edge: Edge;
  operation: Operation;
  /** As it was let in. */
  call: RequestCall;
  /** Parsed inputs that deny policies are asked about, as they are now. */
  inputs: () => Iterable<unknown>;
  /** The caller may not go on: not at all when `input` is undefined, else with this one of its inputs. */
  refuse: (fault: Fault, input: unknown) => void;
}

/** All standing calls of a node. */
export interface Standing {
  /** It is over when the answered function is called. */
  add(stand: Stand): () => void;
  /** The tick of loop `edge.standing`: asks again whether each caller may still do what it does. */
  lookOnce(): Promise<void>;
  size(): number;
}

const speaking = ["authorization", "cookie", "x-svc-environment", "x-svc-org"];

/** Equal for requests whose callers are the same by all that they have sent. */
const credentialOf = ({ url, headers }: Request): string =>
  [url, ...speaking.map((name) => headers.get(name) ?? "")].join("\n");

/** Of faults, those that are about the caller; a store that does not answer is no reason to send anybody away. */
const final = new Set(["unauthenticated", "permission_denied", "not_found", "invalid_argument"]);

export function openStanding({ clock }: { clock: Clock }): Standing {
  /** By credential: who stands here in numbers mostly comes with one key. */
  const all = new Map<string, Set<Stand>>();

  const faultIfFinal = ({ edge, operation, call }: Stand, error: unknown): Fault | undefined => {
    const fault = faultOf(edge, error, operation, call.requestId);
    return final.has(fault.kind) ? fault : undefined;
  };

  /** The call as it would be let in now; where it stands was decided when it began. */
  function again({ call }: Stand, { caller }: Authenticated): RequestCall {
    const fresh = new RequestCall(call.request, call.requestId, call.receivedAt, {
      caller,
      environmentId: call.environmentId,
    });
    fresh.address = call.address;
    fresh.isSecure = call.isSecure;
    return fresh;
  }

  async function lookAt(stand: Stand, who: Authenticated): Promise<void> {
    const { edge, operation } = stand;
    let asked: unknown;
    const call = again(stand, who);
    try {
      const gated = edge.gate(call, operation);
      if (gated) await gated;
    } catch (error) {
      const fault = faultIfFinal(stand, error);
      if (fault) stand.refuse(fault, undefined);
      return;
    }
    if (!edge.guard) return;
    for (asked of [...stand.inputs()])
      try {
        const guarded = edge.guard(call, operation, asked);
        if (guarded) await guarded;
      } catch (error) {
        const fault = faultIfFinal(stand, error);
        if (fault) stand.refuse(fault, asked);
      }
  }

  /** Those of one credential, which is looked up once. Gives the event loop back after every burst. */
  async function lookAtAll(stands: ReadonlySet<Stand>, breathe: () => Promise<void>): Promise<void> {
    const [first] = stands;
    if (!first) return;
    let who: Authenticated;
    try {
      who = await first.edge.authenticate(first.call.request);
    } catch (error) {
      const fault = faultIfFinal(first, error);
      if (fault) for (const stand of [...stands]) stand.refuse(fault, undefined);
      return;
    }
    for (const stand of [...stands]) {
      if (stands.has(stand)) await lookAt(stand, who);
      await breathe();
    }
  }

  return {
    add(stand) {
      const credential = credentialOf(stand.call.request);
      const alike = all.get(credential) ?? new Set();
      all.set(credential, alike);
      alike.add(stand);
      return () => {
        alike.delete(stand);
        if (alike.size === 0 && all.get(credential) === alike) all.delete(credential);
      };
    },

    async lookOnce() {
      let since = clock.elapsed();
      const breathe = async () => {
        if (clock.elapsed() - since < standingBurstMs) return;
        await clock.sleep(0);
        since = clock.elapsed();
      };
      const waiting = [...all.values()];
      const few = async () => {
        for (let stands = waiting.pop(); stands; stands = waiting.pop()) await lookAtAll(stands, breathe);
      };
      await Promise.all(Array.from({ length: standingAtOnce }, few));
    },

    size: () => [...all.values()].reduce((sum, { size }) => sum + size, 0),
  };
}

/**
 * A call that stands until `leave`: its signal aborts, with the fault, when its caller may not go on. `inputs` is asked at each
 * look.
 */
export function standBy(
  edge: Edge,
  operation: Operation,
  call: RequestCall,
  inputs: Stand["inputs"],
): { leave: () => void; refused: () => Fault | undefined } {
  if (!edge.standing || operation.action === null) return { leave() {}, refused: () => undefined };
  const revoked = new AbortController();
  let refused: Fault | undefined;
  call.endWith(AbortSignal.any([call.signal, revoked.signal]));
  const leave = edge.standing.add({
    edge,
    operation,
    call,
    inputs,
    refuse(fault) {
      refused ??= fault;
      revoked.abort(fault);
    },
  });
  return { leave, refused: () => refused };
}
