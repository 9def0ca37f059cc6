import { Fault, tryAgain } from "../../../kit/fault.ts";
import { openHolderLimit } from "../../../kit/holder-limit.ts";
import { deliveriesCharsMax, deliveriesWaitingMax } from "../../../kit/limits.ts";
import type { SubscribeInput } from "./options.ts";
import type { OpenScreening, Screened } from "./screening.ts";
import type { ChannelSpec, Delivery, Member, Outlet, PubSub, Start } from "./service.ts";

/** A delivery, or, first of all and when it was asked for, where the stream begins, if there is such a place. */
export type Streamed =
  | { spec: ChannelSpec; delivery: Delivery }
  | { spec: ChannelSpec; start: Start | undefined };

/** Where a stream's deliveries are put. */
export interface Sink {
  /** A reader that does not keep up is sent away. */
  push(delivery: Delivery): void;
  /** One at a time: resolves once it was taken. `stands` is asked then; after a no it is dropped. */
  deliver(delivery: Delivery, isStillHeld?: () => boolean): Promise<void>;
  /** Resolves when there is room again; undefined while there is. */
  full(): Promise<void> | undefined;
  end(fault: Fault): void;
}

export interface SubscriptionStreams {
  /** Deliveries until the signal aborts; ends with a fault when the reader is too slow or the server drains. */
  subscribe(
    environmentId: string,
    input: SubscribeInput,
    reader: { signal: AbortSignal; holder: string; permit: Member["permit"]; caller: Screened },
  ): AsyncIterable<Streamed>;
  /** The same of whatever `begin` puts into the sink; undefined comes first of all, once it has begun. */
  carry(
    signal: AbortSignal,
    begin: (sink: Sink) => Promise<{ stop(): void }>,
  ): AsyncIterable<Delivery | undefined>;
  /** Ends every stream; its reader finds another node. */
  drain(): void;
}

/** Streams of one key or user at a node. */
export const streamsOfCallerMax = 1_000;
/** Letters that wait for the readers of all streams of a node together; beyond that the slowest is sent away. */
export const unreadCharsMax = 128 * 1024 * 1024;

/** One stream, as all are counted together. */
interface OpenSubscriptionStream {
  chars: number;
  end: (fault: Fault) => void;
  /** What waits for it. */
  drop: () => void;
}

const tooSlow = () => later("the reader is too slow: subscribe again with start_after_sequence");
const later = (message: string) => tryAgain("unavailable", message);

export function openSubscriptionStreams(pubsub: PubSub, screeningOf: OpenScreening): SubscriptionStreams {
  const open = new Set<OpenSubscriptionStream>();
  const holdings = openHolderLimit({ most: streamsOfCallerMax, what: "streams" });
  let unread = 0;

  function grow(one: OpenSubscriptionStream, chars: number): void {
    one.chars += chars;
    unread += chars;
    if (one.chars > deliveriesCharsMax) one.end(tooSlow());
    // Each once: what waits for it is gone when its reader is told.
    if (unread <= unreadCharsMax) return;
    const slowest = [...open].reduce((most, other) => (other.chars > most.chars ? other : most));
    shrink(slowest, slowest.chars);
    slowest.drop();
    slowest.end(tooSlow());
  }

  function shrink(one: OpenSubscriptionStream, chars: number): void {
    one.chars -= chars;
    unread -= chars;
  }

  async function* carry(
    signal: AbortSignal,
    begin: (sink: Sink) => Promise<{ stop(): void }>,
  ): AsyncGenerator<Delivery | undefined> {
    const waiting: Delivery[] = [];
    let fault: Fault | undefined;
    let wake = () => {};
    /** Resolved whenever the reader has taken all that waited. */
    let resolveEmptied: (() => void) | undefined;
    let room: Promise<void> | undefined;
    /** Of what was given last. */
    let isStillHeld: (() => boolean) | undefined;

    const mine: OpenSubscriptionStream = {
      chars: 0,
      end(why) {
        fault ??= why;
        wake();
      },
      drop: () => void waiting.splice(0),
    };
    const { end } = mine;
    const emptied = (): Promise<void> => {
      room ??= new Promise((resolve) => {
        resolveEmptied = resolve;
      });
      return room;
    };
    const push = (delivery: Delivery): void => {
      if (fault) return;
      waiting.push(delivery);
      grow(mine, delivery.data.length);
      if (waiting.length > deliveriesWaitingMax) end(tooSlow());
      wake();
    };
    const sink: Sink = {
      push,
      deliver(delivery, isNextStillHeld) {
        isStillHeld = isNextStillHeld;
        push(delivery);
        return emptied();
      },
      full: () =>
        waiting.length < deliveriesWaitingMax / 10 && mine.chars < deliveriesCharsMax / 4
          ? undefined
          : emptied(),
      end,
    };
    const onAbort = () => wake();
    signal.addEventListener("abort", onAbort, { once: true });
    open.add(mine);
    const subscription = await begin(sink).catch((error) => {
      open.delete(mine);
      throw error;
    });
    try {
      yield undefined;
      while (!signal.aborted) {
        const batch = waiting.splice(0);
        for (const delivery of batch) {
          if (signal.aborted) return;
          shrink(mine, Math.min(mine.chars, delivery.data.length));
          if (isStillHeld && !isStillHeld()) continue;
          yield delivery;
        }
        if (waiting.length > 0) continue;
        resolveEmptied?.();
        resolveEmptied = undefined;
        room = undefined;
        if (fault) throw fault;
        await new Promise<void>((resolve) => {
          wake = resolve;
          if (waiting.length > 0 || fault || signal.aborted) resolve();
        });
      }
    } finally {
      open.delete(mine);
      shrink(mine, mine.chars);
      signal.removeEventListener("abort", onAbort);
      subscription.stop();
    }
  }

  return {
    carry,

    async *subscribe(environmentId, input, { signal, holder, permit, caller }) {
      const wanted = pubsub.read(input);
      const spec = pubsub.specOf({ environmentId, wanted, ordinal: 0 });
      let start: Start | undefined;
      const release = holdings.acquire(holder);
      const deliveries = carry(signal, async (sink) => {
        const screening = screeningOf(caller, sink.end);
        await screening.look();
        const broadcast: Outlet = { publish: (_spec, delivery) => sink.push(delivery) };
        const member: Member = {
          accepted(acceptedStart) {
            start = acceptedStart;
          },
          deliver(_spec, delivery, isStillHeld) {
            // A group's delivery counts as sent once it was taken; what is read from the store waits only when there is much.
            if (wanted.group !== undefined) return sink.deliver(delivery, isStillHeld);
            return screening.deliver(delivery, () => {
              sink.push(delivery);
              return sink.full();
            });
          },
          joined() {},
          isApart: screening.isApart,
          troubled() {},
          permit,
          ended: (fault) =>
            sink.end(fault ?? new Fault("not_found", `environment ${environmentId} not found`)),
        };
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
          // Also the first bytes of the answer: neither the runtime nor Connect sends headers before.
          else if (wanted.withStart) yield { spec, start };
        }
      } finally {
        release();
      }
    },

    drain() {
      for (const { end } of [...open]) end(later("the server is going away"));
    },
  };
}
