import { Fault } from "../../../kit/fault.ts";
import { openHolderLimit } from "../../../kit/holder-limit.ts";
import { subscriptionsMax } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import { refusal } from "./rules.ts";
import type { DeliveryScreening, OpenScreening, Screened } from "./screening.ts";
import type { ChannelSpec, Delivery, Member, Outlet, PubSub, Subscription, Wanted } from "./service.ts";
import {
  eventFrame,
  malformedFrame,
  okFrame,
  patternOf,
  readClientFrame,
  refusedFrame,
  subscribedFrame,
  troubleFrame,
} from "./socket-frames.ts";

/** Over all sockets of one key or user at a node. */
export const subscriptionsOfCallerMax = 10_000;

/** One connection, as the edge has it. */
export interface SocketConnection {
  /** A promise when it is full: resolves once it has drained, or is gone. */
  send(text: string): void | Promise<void>;
  /** From now on it has what is published on the channel. */
  join(channelId: string): void;
  leave(channelId: string): void;
  /** The environment is gone. */
  end(): void;
}

/** What the caller is asked about of a subscription. */
export interface SubscriptionTarget {
  pattern: string;
  consumerGroup?: string | undefined;
}

export interface SocketSessionOptions {
  environmentId: string;
  /** Key or user. */
  holder: string;
  connection: SocketConnection;
  /** Throws unless the caller may have this subscription. */
  permit: (asked: SubscriptionTarget) => Promise<void>;
  caller: Screened;
  /** Before subprotocols, clients waited for `subscribed`. */
  isLegacy: boolean;
}

/** What a client says on one connection, and what became of it. */
export interface SocketSession {
  /** A text frame; a binary one is malformed. */
  onMessage(text: string | undefined): void;
  /** Of its subscriptions. */
  subscriptions(): Iterable<SubscriptionTarget>;
  /** Ends the subscriptions that this was asked of: the caller may not have them any more. */
  deny(asked: SubscriptionTarget, fault: Fault): void;
  onClose(): void;
}

export interface SocketSessionsDeps {
  pubsub: PubSub;
  log: Log;
  /** To every connection that has joined the channel; one text for all. */
  publish: (channelId: string, text: string) => void;
  screeningOf: OpenScreening;
}

interface SocketSubscription {
  id: string;
  /** As it was asked for. */
  pattern: string;
  group: string | undefined;
  /** What its group reads, where that has changed since. */
  reads?: string;
  /** Pattern and options of before: others alike are told apart by their ordinal. */
  isOver: boolean;
  release: () => void;
  screening?: DeliveryScreening;
  subscription?: Subscription;
}

export function openSocketSessions({
  pubsub,
  log,
  publish,
  screeningOf,
}: SocketSessionsDeps): (options: SocketSessionOptions) => SocketSession {
  const broadcast: Outlet = { publish: (spec, delivery) => publish(spec.id, eventFrame(spec, delivery)) };

  const holdings = openHolderLimit({ most: subscriptionsOfCallerMax, what: "subscriptions" });

  return ({ environmentId, holder, connection, permit, caller, isLegacy }) => {
    const all = new Map<string, SocketSubscription>();
    let closed = false;

    caller.onRenewed(async () => {
      for (const mine of [...all.values()]) {
        await mine.screening?.look();
        if (!mine.screening?.isApart() || mine.group !== undefined) continue;
        connection.leave(mine.id);
        mine.subscription?.setApart();
      }
    });

    /** The first id that no subscription alike has on this connection. */
    function specOf(wanted: Wanted): ChannelSpec {
      for (let ordinal = 0; ; ordinal++) {
        const spec = pubsub.specOf({ environmentId, wanted, ordinal });
        if (!all.has(spec.id)) return spec;
      }
    }

    function drop(mine: SocketSubscription): void {
      mine.isOver = true;
      mine.release();
      if (all.get(mine.id) === mine) all.delete(mine.id);
      mine.subscription?.stop();
    }

    async function subscribe(wanted: Wanted, pattern: string): Promise<void> {
      if (all.size >= subscriptionsMax)
        throw refusal("LIMIT_EXCEEDED", `at most ${subscriptionsMax} subscriptions on one connection`);
      const spec = specOf(wanted);
      const { group, pattern: asked } = wanted;
      const release = holdings.acquire(holder);
      const mine: SocketSubscription = { id: spec.id, pattern: asked.text, group, isOver: false, release };
      all.set(spec.id, mine);
      let isAccepted = false;
      let early: Fault | undefined;
      const member: Member = {
        accepted(start) {
          if (early) return;
          isAccepted = true;
          void connection.send(okFrame(pattern, spec.id, start));
          if (isLegacy) void connection.send(subscribedFrame(pattern, spec.id));
        },
        deliver(_spec: ChannelSpec, delivery: Delivery, isStillHeld?: () => boolean) {
          const write = () => {
            if (!mine.isOver && (!isStillHeld || isStillHeld()))
              return connection.send(eventFrame(spec, delivery));
          };
          // Members of a group may have all that it reads, or they are none.
          return isStillHeld ? write() : screening.deliver(delivery, write);
        },
        isApart: () => screening.isApart(),
        joined: () => {
          if (!mine.isOver) connection.join(spec.id);
        },
        troubled() {
          const message = "the store cannot be read now";
          void connection.send(troubleFrame(spec.id, { code: "INTERNAL_ERROR", message, retrying: true }));
        },
        async permit(reads) {
          // What was asked for is asked about as long as it lasts.
          if (reads !== mine.pattern) await permit({ pattern: reads, consumerGroup: group });
          mine.reads = reads;
        },
        ended(fault) {
          if (!fault) return connection.end();
          const { message } = fault;
          if (!isAccepted) {
            early = fault;
            return drop(mine);
          }
          const code = codeOfEnd(fault);
          void connection.send(troubleFrame(spec.id, { code, message, retrying: false }));
          unsubscribe(spec.id);
        },
      };
      const screening = screeningOf(caller, member.ended);
      mine.screening = screening;
      try {
        await permit({ pattern: mine.pattern, consumerGroup: group });
        await screening.look();
        if (mine.isOver) return;
        mine.subscription = await pubsub.subscribe(spec, wanted, broadcast, member);
        if (mine.isOver) mine.subscription.stop();
        if (early) throw early;
      } catch (error) {
        drop(mine);
        throw error;
      }
    }

    function unsubscribe(subscriptionId: string): void {
      const mine = all.get(subscriptionId);
      if (!mine) return;
      connection.leave(subscriptionId);
      drop(mine);
    }

    function refuse(error: unknown, pattern: string | undefined, text?: string): void {
      if (closed) return;
      const known = error instanceof Fault;
      if (!known) log.error("pubsub.defect", { environmentId, error });
      const code = codeOf(error);
      const message = known ? error.message : "internal error";
      const reason = known ? error.headers?.["Svc-Error-Reason"] : undefined;
      void connection.send(
        pattern === undefined
          ? malformedFrame(text, code, message)
          : refusedFrame(pattern, { code, message, reason }),
      );
    }

    function handleFrame(text: string): void {
      const frame = readClientFrame(text);
      if (frame.type === "unsubscribe") unsubscribe(frame.subscriptionId);
      else if (frame.type === "ack") log.info("pubsub.ack", { environmentId, ...frame });
      else {
        const { pattern } = frame.input;
        subscribe(pubsub.read(frame.input), pattern).catch((error) => refuse(error, pattern));
      }
    }

    return {
      *subscriptions() {
        const yielded = new Set<string>();
        for (const { pattern, group: consumerGroup, reads = pattern } of all.values())
          for (const one of [pattern, reads]) {
            const key = `${consumerGroup ?? ""}\n${one}`;
            if (!yielded.has(key)) yield { pattern: one, consumerGroup };
            yielded.add(key);
          }
      },
      deny({ pattern, consumerGroup }, { message }) {
        for (const mine of [...all.values()]) {
          if (mine.group !== consumerGroup) continue;
          if (mine.pattern !== pattern && mine.reads !== pattern) continue;
          unsubscribe(mine.id);
          const code = "PERMISSION_DENIED";
          void connection.send(troubleFrame(mine.id, { code, message, retrying: false }));
        }
      },
      onMessage(text) {
        try {
          if (text === undefined) throw refusal("INVALID_PATTERN", "frames are text");
          handleFrame(text);
        } catch (error) {
          refuse(error, text === undefined ? undefined : patternOf(text), text);
        }
      },
      onClose() {
        closed = true;
        for (const mine of [...all.values()]) drop(mine);
      },
    };
  };
}

const isRefused = ({ kind }: Fault): boolean => kind === "permission_denied" || kind === "unauthenticated";

const codeOfEnd = (fault: Fault) => {
  if (isRefused(fault)) return "PERMISSION_DENIED";
  return fault.kind === "resource_exhausted" ? "LIMIT_EXCEEDED" : "INVALID_ARGUMENT";
};

/** proto/README.md 'WebSocket codes'. */
function codeOf(error: unknown): string {
  if (!(error instanceof Fault)) return "INTERNAL_ERROR";
  if (error.kind === "permission_denied") return "PERMISSION_DENIED";
  if (error.code !== undefined) return error.code;
  if (error.kind === "resource_exhausted") return "LIMIT_EXCEEDED";
  return error.kind === "invalid_argument" ? "INVALID_ARGUMENT" : "INTERNAL_ERROR";
}
