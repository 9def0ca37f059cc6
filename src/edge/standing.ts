import { type Breathe, breather } from "../kit/breather.ts";
import type { Clock } from "../kit/clock.ts";
import { type Fault, sendsAway } from "../kit/fault.ts";
import { standingAtOnce } from "../kit/limits.ts";
import type { Operation } from "../kit/operation.ts";
import { type Authenticated, type Edge, faultOf, RequestCall, type Stand, type Standing } from "./call.ts";
import { decidingHeaders } from "./credential.ts";

const speaking = [...decidingHeaders, "x-svc-environment", "x-svc-org"];

/** Equal for requests whose callers are the same by all that they have sent. */
const bearerOf = ({ url, headers }: Request): string =>
  [url, ...speaking.map((name) => headers.get(name) ?? "")].join("\n");

interface Standee {
  stand: Stand;
  isOver: boolean;
  /** Those of its credential, once it has been looked at. */
  alike: Set<Standee> | undefined;
}

/** The call as it would be let in now; where it stands was decided when it began. */
function again(call: RequestCall, { caller }: Authenticated): RequestCall {
  const { environmentId } = call;
  const who = { caller, environmentId };
  const fresh = new RequestCall(call.request, call.requestId, call.receivedAt, who, call.screening);
  fresh.address = call.address;
  fresh.isSecure = call.isSecure;
  return fresh;
}

/** Throws unless the call's caller, as it is now, may do this with that. */
export async function askAgain(
  edge: Edge,
  operation: Operation,
  call: RequestCall,
  asked: unknown,
): Promise<void> {
  if (operation.action === null) return;
  const now = again(call, await edge.authenticate(call.request, operation));
  try {
    await edge.gate(now, operation);
    await edge.guard?.(now, operation, asked);
  } catch (error) {
    call.refusedBy = now.refusedBy;
    throw error;
  }
}

export function openStanding({ clock }: { clock: Clock }): Standing {
  /** By credential: who stands here in numbers mostly comes with one key. */
  const all = new Map<string, Set<Standee>>();
  /** Since the last look. Most polls are over before the next one, and should cost next to nothing. */
  let newcomers: Standee[] = [];

  function takeIn(): void {
    const came = newcomers;
    newcomers = [];
    for (const standee of came) {
      if (standee.isOver) continue;
      const credential = bearerOf(standee.stand.call.request);
      standee.alike = all.get(credential) ?? new Set();
      all.set(credential, standee.alike);
      standee.alike.add(standee);
    }
  }

  const faultIfFinal = ({ edge, operation, call }: Stand, error: unknown): Fault | undefined => {
    const fault = faultOf(edge, error, operation, call.requestId);
    return sendsAway(fault) ? fault : undefined;
  };

  async function lookAt(stand: Stand, who: Authenticated): Promise<void> {
    const { edge, operation } = stand;
    let asked: unknown;
    const call = again(stand.call, who);
    const refuse = (error: unknown) => {
      const fault = faultIfFinal(stand, error);
      if (!fault) return;
      stand.call.refusedBy = call.refusedBy;
      stand.refuse(fault, asked);
    };
    try {
      const gated = edge.gate(call, operation);
      if (gated) await gated;
    } catch (error) {
      return refuse(error);
    }
    if (!edge.guard) return;
    for (asked of [...stand.inputs()])
      try {
        const guarded = edge.guard(call, operation, asked);
        if (guarded) await guarded;
      } catch (error) {
        refuse(error);
      }
    const renewed = stand.call.renew(call);
    if (renewed) await renewed;
  }

  /** Those of one credential, which is looked up once. Gives the event loop back after every burst. */
  async function lookAtAll(credential: string, alike: ReadonlySet<Standee>, breathe: Breathe): Promise<void> {
    const [first] = alike;
    if (!first) {
      all.delete(credential);
      return;
    }
    let who: Authenticated;
    try {
      who = await first.stand.edge.authenticate(first.stand.call.request, first.stand.operation);
    } catch (error) {
      const fault = faultIfFinal(first.stand, error);
      if (fault) for (const { stand } of [...alike]) stand.refuse(fault, undefined);
      return;
    }
    for (const { stand, isOver } of [...alike]) {
      if (!isOver) await lookAt(stand, who);
      await breathe();
    }
  }

  return {
    add(stand) {
      const standee: Standee = { stand, isOver: false, alike: undefined };
      newcomers.push(standee);
      return () => {
        standee.isOver = true;
        standee.alike?.delete(standee);
      };
    },

    async lookOnce() {
      takeIn();
      const waiting = [...all];
      const few = async () => {
        const breathe = breather(clock, "standing");
        for (let next = waiting.pop(); next; next = waiting.pop()) await lookAtAll(next[0], next[1], breathe);
      };
      await Promise.all(Array.from({ length: standingAtOnce }, few));
    },

    size: () =>
      [...all.values()].reduce((sum, { size }) => sum + size, 0) +
      newcomers.filter(({ isOver }) => !isOver).length,
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
  const { signal } = call;
  const ends = new AbortController();
  let refused: Fault | undefined;
  // Half the price of AbortSignal.any, for every poll of every worker.
  if (signal.aborted) ends.abort(signal.reason);
  else signal.addEventListener("abort", () => ends.abort(signal.reason), { once: true });
  call.endWith(ends.signal);
  const leave = edge.standing.add({
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
