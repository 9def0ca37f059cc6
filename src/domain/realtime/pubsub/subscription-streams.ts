import { Fault } from "../../../kit/fault.ts";
import { openHolderLimit } from "../../../kit/holder-limit.ts";
import { DeliveryBuffer, type Sink, UnreadTotal } from "./delivery-buffer.ts";
import type { SubscribeInput } from "./options.ts";
import type { DeliveryScreening, OpenScreening, Screened } from "./screening.ts";
import type { Broadcast, ChannelSpec, Delivery, Member, PubSub, Start } from "./service.ts";

/**
 * A delivery. The first message, when it was asked for, says where the stream begins, if its log has such a
 * place.
 */
export type Streamed =
  | { spec: ChannelSpec; delivery: Delivery }
  | { spec: ChannelSpec; start: Start | undefined };

export interface StreamReader {
  signal: AbortSignal;
  /** Key or user. */
  holder: string;
  permit: Member["permit"];
  /** Called once the subscription is accepted. */
  admitted: () => void;
  caller: Screened;
}

export type SubscriptionStreams = ReturnType<typeof openSubscriptionStreams>;

/** Streams of one key or user at a node. */
export const streamsOfCallerMax = 1_000;
/** Characters that all streams of a node together may leave unread; beyond that the slowest is ended. */
export const unreadCharsMax = 128 * 1024 * 1024;

const draining = () =>
  new Fault("unavailable", "the server is going away", { headers: { "Retry-After": "1" } });

export function openSubscriptionStreams(pubsub: PubSub, screeningOf: OpenScreening) {
  const unread = new UnreadTotal(unreadCharsMax);
  const holdings = openHolderLimit({ most: streamsOfCallerMax, what: "streams" });

  async function* carry(
    signal: AbortSignal,
    begin: (sink: Sink) => Promise<{ stop(): void }>,
  ): AsyncGenerator<Delivery | undefined> {
    const buffer = new DeliveryBuffer(unread);
    const subscription = await begin(buffer).catch((error) => {
      buffer.close();
      throw error;
    });
    const onAbort = () => buffer.wake();
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      yield undefined;
      while (!signal.aborted) {
        for (const delivery of buffer.takeAll()) {
          if (signal.aborted) return;
          if (buffer.take(delivery)) yield delivery;
        }
        const pause = buffer.rest(signal);
        if (pause) await pause;
      }
    } finally {
      signal.removeEventListener("abort", onAbort);
      buffer.close();
      subscription.stop();
    }
  }

  return {
    /** The deliveries that `begin` puts into the sink. Undefined comes first, once it has begun. */
    carry,

    /**
     * Deliveries until the signal aborts. Throws a fault when the reader is too slow or the server drains.
     */
    async *subscribe(
      environmentId: string,
      input: SubscribeInput,
      { signal, holder, permit, admitted, caller }: StreamReader,
    ): AsyncIterable<Streamed> {
      const wanted = pubsub.read(input);
      const spec = pubsub.specOf({ environmentId, wanted, ordinal: 0 });
      let start: Start | undefined;
      const release = holdings.acquire(holder);
      const deliveries = carry(signal, async (sink) => {
        const screening = screeningOf(caller, spec.pattern, (fault) => sink.end(fault));
        await screening.look();
        const broadcast: Broadcast = { publish: (_spec, delivery) => sink.push(delivery) };
        const accepted = (acceptedStart: Start | undefined) => {
          start = acceptedStart;
        };
        const inGroup = wanted.group !== undefined;
        const member = memberOf(sink, { environmentId, inGroup, screening, accepted, permit });
        const subscription = await pubsub.subscribe(spec, wanted, broadcast, member);
        caller.onRenewed(async () => {
          await screening.look();
          if (screening.isApart()) subscription.setApart();
        });
        return subscription;
      });
      try {
        for await (const delivery of deliveries) {
          if (delivery) yield { spec, delivery };
          else {
            admitted();
            if (wanted.withStart) yield { spec, start };
          }
        }
      } finally {
        release();
      }
    },

    /** Ends every stream: its reader finds another node. */
    drain() {
      for (const buffer of unread.all()) buffer.end(draining());
    },
  };
}

interface StreamMemberOptions extends Pick<Member, "accepted" | "permit"> {
  environmentId: string;
  inGroup: boolean;
  screening: DeliveryScreening;
}

/** The subscription of a stream, which puts its deliveries into the sink. */
const memberOf = (
  sink: Sink,
  { environmentId, inGroup, screening, accepted, permit }: StreamMemberOptions,
): Member => ({
  accepted,
  permit,
  deliver(_spec, delivery, isStillHeld) {
    // A group's delivery counts as sent once the reader has taken it. A read of the store waits only for
    // room.
    if (inGroup) return sink.deliver(delivery, isStillHeld);
    return screening.deliver(delivery, () => {
      sink.push(delivery);
      return sink.full();
    });
  },
  joined() {},
  isApart: screening.isApart,
  troubled() {},
  ended: (fault) => sink.end(fault ?? new Fault("not_found", `environment ${environmentId} not found`)),
});
