import { Fault } from "../../../kit/fault.ts";
import { openHolderLimit } from "../../../kit/holder-limit.ts";
import type { Log } from "../../../kit/log.ts";
import { subscriptionsMax } from "./limits.ts";
import { refusal, type SocketCode, socketCodes } from "./rules.ts";
import type { OpenScreening } from "./screening.ts";
import type { Broadcast, ChannelSpec, PubSub, SubscriptionOptions } from "./service.ts";
import {
  type ClientFrame,
  type ClientFrameType,
  eventFrame,
  malformedFrame,
  patternOf,
  readClientFrame,
  refusedFrame,
} from "./socket-frames.ts";
import { type SocketCaller, SocketSubscription, type SubscriptionTarget } from "./socket-subscription.ts";

/** Over all sockets of one key or user at a node. */
export const subscriptionsOfCallerMax = 10_000;

export interface SocketSessionOptions extends SocketCaller {
  environmentId: string;
  /** Key or user. */
  holder: string;
}

export interface SocketSessionsDeps {
  pubsub: PubSub;
  log: Log;
  /** Writes one text to every connection that has joined the channel. */
  publish: (channelId: string, text: string, kind: "data" | "hints") => void;
  screeningOf: OpenScreening;
}

/** What the sessions of a node share. */
interface SessionHost extends SocketSessionsDeps {
  broadcast: Broadcast;
  /** Takes a place among the subscriptions of this key or user. */
  acquire: (holder: string) => () => void;
}

export function openSocketSessions(
  deps: SocketSessionsDeps,
): (options: SocketSessionOptions) => SubscriberSession {
  const broadcast: Broadcast = {
    publish: (spec, delivery) =>
      deps.publish(spec.id, eventFrame(spec, delivery), delivery.source === "system" ? "hints" : "data"),
  };
  const { acquire } = openHolderLimit({ most: subscriptionsOfCallerMax, what: "subscriptions" });
  const host: SessionHost = { ...deps, broadcast, acquire };
  return (options) => new SubscriberSession(host, options);
}

/** What a session does with each frame that is bound. */
type FrameHandlers = {
  readonly [Type in ClientFrameType]: (session: SubscriberSession, frame: ClientFrame<Type>) => void;
};

/** What a client asks for on one connection, and the subscriptions that it has there. */
export class SubscriberSession {
  static readonly #handlers: FrameHandlers = {
    subscribe: (session, { input }) =>
      session
        .#subscribe(session.#host.pubsub.read(input), input.pattern)
        .catch((error) => session.#refuse(error, input.pattern)),
    unsubscribe: (session, { subscriptionId }) => session.#all.get(subscriptionId)?.stop(),
    ack: (session, frame) => void session.#settle(frame),
  };
  readonly #host: SessionHost;
  readonly #options: SocketSessionOptions;
  readonly #all = new Map<string, SocketSubscription>();
  #isClosed = false;

  constructor(host: SessionHost, options: SocketSessionOptions) {
    this.#host = host;
    this.#options = options;
    options.caller.onRenewed(async () => {
      for (const subscription of [...this.#all.values()]) await subscription.screenAgain();
    });
  }

  /** What the caller's rights are asked about, again and again: each target once. */
  *subscriptions(): Generator<SubscriptionTarget> {
    const yielded = new Set<string>();
    for (const subscription of this.#all.values())
      for (const pattern of subscription.patterns()) {
        const key = `${subscription.group ?? ""}\n${pattern}`;
        if (!yielded.has(key)) yield { pattern, consumerGroup: subscription.group };
        yielded.add(key);
      }
  }

  /** Ends the subscriptions with this target: the caller may not have it any more. */
  deny({ pattern, consumerGroup }: SubscriptionTarget, { message }: Fault): void {
    for (const subscription of [...this.#all.values()])
      if (subscription.group === consumerGroup && subscription.patterns().includes(pattern))
        subscription.end("PERMISSION_DENIED", message);
  }

  /** A text frame; undefined for a binary one, which is malformed. */
  onMessage(text: string | undefined): void {
    try {
      if (text === undefined) throw refusal("INVALID_PATTERN", "the frame is binary: frames must be text");
      const frame = readClientFrame(text);
      this.#handle(frame.type, frame);
    } catch (error) {
      this.#refuse(error, text === undefined ? undefined : patternOf(text), text);
    }
  }

  onClose(): void {
    this.#isClosed = true;
    for (const subscription of [...this.#all.values()]) subscription.drop();
  }

  #handle<Type extends ClientFrameType>(type: Type, frame: ClientFrame<Type>): void {
    SubscriberSession.#handlers[type](this, frame);
  }

  async #subscribe(wanted: SubscriptionOptions, askedPattern: string): Promise<void> {
    const { pubsub, screeningOf, broadcast, acquire } = this.#host;
    if (this.#all.size >= subscriptionsMax)
      throw refusal("LIMIT_EXCEEDED", `at most ${subscriptionsMax} subscriptions on one connection`);
    const spec = this.#freeSpec(wanted);
    const subscription = new SocketSubscription({
      spec,
      askedPattern,
      group: wanted.group,
      socket: this.#options,
      screeningOf,
      release: acquire(this.#options.holder),
      onDropped: (dropped) => {
        if (this.#all.get(dropped.id) === dropped) this.#all.delete(dropped.id);
      },
    });
    this.#all.set(spec.id, subscription);
    await subscription.begin((member) => pubsub.subscribe(spec, wanted, broadcast, member));
  }

  /**
   * Subscriptions with the same pattern and options are told apart by an ordinal: the first that is free
   * here.
   */
  #freeSpec(wanted: SubscriptionOptions): ChannelSpec {
    const { environmentId } = this.#options;
    for (let ordinal = 0; ; ordinal++) {
      const spec = this.#host.pubsub.specOf({ environmentId, wanted, ordinal });
      if (!this.#all.has(spec.id)) return spec;
    }
  }

  /** Has no answer: what changes nothing is logged. */
  async #settle(frame: ClientFrame<"ack">): Promise<void> {
    const { subscriptionId, eventId, ackType: verdict, redeliverDelay: delayMs } = frame;
    const meant = [...this.#all.values()].filter(
      (one) => (subscriptionId === "" || one.id === subscriptionId) && one.mayTell(eventId),
    );
    try {
      if (meant.length !== 1 || !isVerdict(verdict)) throw refusal("INVALID_ARGUMENT", "no group's delivery");
      await meant[0]!.settle({ eventId, verdict, delayMs });
    } catch (error) {
      const { environmentId } = this.#options;
      this.#host.log.info("pubsub.ack", { environmentId, ...frame, error });
    }
  }

  /** Answers a subscription that was refused, or a frame that cannot be read. */
  #refuse(error: unknown, pattern: string | undefined, text?: string): void {
    if (this.#isClosed) return;
    const { connection, environmentId } = this.#options;
    const known = error instanceof Fault ? error : undefined;
    if (!known) this.#host.log.error("pubsub.defect", { environmentId, error });
    const code = codeOf(error);
    const message = known?.message ?? "internal error";
    const reason = known?.headers?.["Svc-Error-Reason"];
    void connection.send(
      pattern === undefined
        ? malformedFrame(text, code, message)
        : refusedFrame(pattern, { code, message, reason }),
    );
  }
}

const isVerdict = (word: string) => word === "ack" || word === "nak" || word === "term";

/** The code of the frame that answers an error. */
function codeOf(error: unknown): SocketCode {
  if (!(error instanceof Fault)) return "INTERNAL_ERROR";
  if (error.kind === "permission_denied") return "PERMISSION_DENIED";
  const code = socketCodes.find((one) => one === error.code);
  if (code !== undefined) return code;
  if (error.kind === "resource_exhausted") return "LIMIT_EXCEEDED";
  return error.kind === "invalid_argument" ? "INVALID_ARGUMENT" : "INTERNAL_ERROR";
}
