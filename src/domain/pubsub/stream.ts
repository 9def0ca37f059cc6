import { Fault } from "../../kit/fault.ts";
import { deliveriesCharsMax, deliveriesWaitingMax } from "../../kit/limits.ts";
import type { SubscribeInput } from "./options.ts";
import type { ChannelSpec, Delivery, Member, Outlet, PubSub, Start } from "./service.ts";

/** A delivery, or, first of all and when it was asked for, where the stream begins, if there is such a place. */
export type Streamed =
  | { spec: ChannelSpec; delivery: Delivery }
  | { spec: ChannelSpec; start: Start | undefined };

export interface Streams {
  /** Deliveries until the signal aborts; ends with a fault when the reader is too slow or the server drains. */
  subscribe(environmentId: string, input: SubscribeInput, signal: AbortSignal): AsyncIterable<Streamed>;
  /** Ends every stream; its reader finds another node. */
  drain(): void;
}

const later = (message: string) => new Fault("unavailable", message, { headers: { "Retry-After": "1" } });

export function openStreams(pubsub: PubSub): Streams {
  const open = new Set<(fault: Fault) => void>();
  return {
    async *subscribe(environmentId, input, signal) {
      const wanted = pubsub.read(input);
      const spec = pubsub.specOf({ environmentId, wanted, ordinal: 0 });
      const waiting: Delivery[] = [];
      let chars = 0;
      let fault: Fault | undefined;
      let start: Start | undefined;
      let wake = () => {};
      /** Resolved whenever the reader has taken all that waited. */
      let taken: (() => void) | undefined;
      let room: Promise<void> | undefined;

      const end = (why: Fault) => {
        fault ??= why;
        wake();
      };
      const push = (delivery: Delivery): void => {
        waiting.push(delivery);
        chars += delivery.data.length;
        if (waiting.length > deliveriesWaitingMax || chars > deliveriesCharsMax)
          end(later("the reader is too slow: subscribe again with start_after_sequence"));
        wake();
      };
      const outlet: Outlet = { publish: (_spec, delivery) => push(delivery) };
      const member: Member = {
        accepted(told) {
          start = told;
        },
        give(_spec, delivery) {
          push(delivery);
          // What is read from the store waits until the reader has taken it.
          if (waiting.length < deliveriesWaitingMax / 10 && chars < deliveriesCharsMax / 4) return;
          room ??= new Promise((resolve) => {
            taken = resolve;
          });
          return room;
        },
        joined() {},
        troubled() {},
        ended: (refused) => end(refused ?? new Fault("not_found", `environment ${environmentId} not found`)),
      };
      const onAbort = () => wake();
      signal.addEventListener("abort", onAbort, { once: true });
      open.add(end);
      const subscription = await pubsub.subscribe(spec, wanted, outlet, member).catch((error) => {
        open.delete(end);
        throw error;
      });
      try {
        // Also the first bytes of the answer: neither the runtime nor Connect sends headers before.
        if (wanted.withStart) yield { spec, start };
        while (!signal.aborted) {
          const batch = waiting.splice(0);
          chars = 0;
          for (const delivery of batch) {
            if (signal.aborted) return;
            yield { spec, delivery };
          }
          taken?.();
          taken = undefined;
          room = undefined;
          if (waiting.length > 0) continue;
          if (fault) throw fault;
          await new Promise<void>((resolve) => {
            wake = resolve;
            if (waiting.length > 0 || fault || signal.aborted) resolve();
          });
        }
      } finally {
        open.delete(end);
        signal.removeEventListener("abort", onAbort);
        subscription.stop();
      }
    },

    drain() {
      for (const end of [...open]) end(later("the server is going away"));
    },
  };
}
