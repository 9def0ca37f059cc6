import type { Fault } from "../../../kit/fault.ts";
import type { GroupVerdict } from "./channel-subscription.ts";
import { unsettledMax } from "./limits.ts";
import type { DeliveryScreening, OpenScreening, Screened } from "./screening.ts";
import type { ChannelSpec, Delivery, Member, Start, Subscription } from "./service.ts";
import { eventFrame, okFrame, subscribedFrame, troubleFrame } from "./socket-frames.ts";

/** One connection, as the edge offers it. */
export interface SubscriberConnection {
  /** A promise when the connection is full: it resolves once it has drained, or has closed. */
  send(text: string): void | Promise<void>;
  /** From now on the connection gets what is published on the channel. */
  join(channelId: string): void;
  leave(channelId: string): void;
  /** The environment was deleted. */
  end(): void;
}

/** What the gate is asked about: a pattern, read alone or as a member of a group. */
export interface SubscriptionTarget {
  pattern: string;
  consumerGroup?: string | undefined;
}

export interface SocketCaller {
  connection: SubscriberConnection;
  /** Throws unless the caller may have this subscription. */
  permit: (asked: SubscriptionTarget) => Promise<void>;
  caller: Screened;
  /** A client that knows no subprotocol waits for a `subscribed` frame. */
  isLegacy: boolean;
}

export interface SocketSubscriptionOptions {
  spec: ChannelSpec;
  /** The pattern as the client spelled it: its answers name it. */
  askedPattern: string;
  group: string | undefined;
  socket: SocketCaller;
  screeningOf: OpenScreening;
  /** Gives back its place among the subscriptions of the caller. */
  release: () => void;
  /** Takes it out of its session. */
  onDropped: (subscription: SocketSubscription) => void;
}

export class SocketSubscription implements Member {
  readonly id: string;
  /** As it was asked for, in full. */
  readonly pattern: string;
  readonly group: string | undefined;
  /** What its group reads, once that was permitted. */
  #reads: string | undefined;
  readonly #options: SocketSubscriptionOptions;
  readonly #screening: DeliveryScreening;
  #subscription: Subscription | undefined;
  #isAccepted = false;
  /** The end, when it came before the subscription was accepted. */
  #early: Fault | undefined;
  #isOver = false;
  /** Events that its group delivered here, the newest at the end, until they are settled by a frame. */
  readonly #unsettled = new Set<string>();

  constructor(options: SocketSubscriptionOptions) {
    const { spec, group, socket, screeningOf } = options;
    this.id = spec.id;
    this.pattern = spec.pattern.text;
    this.group = group;
    this.#options = options;
    this.#screening = screeningOf(socket.caller, spec.pattern, (fault) => this.ended(fault));
  }

  /** The caller's rights to these are asked about for as long as the subscription lasts. */
  patterns(): string[] {
    return this.#reads === undefined || this.#reads === this.pattern
      ? [this.pattern]
      : [this.pattern, this.#reads];
  }

  /** Rejects with the refusal that the client is answered. */
  async begin(subscribe: (member: Member) => Promise<Subscription>): Promise<void> {
    try {
      await this.#options.socket.permit({ pattern: this.pattern, consumerGroup: this.group });
      await this.#screening.look();
      if (this.#isOver) return;
      const subscription = await subscribe(this);
      this.#subscription = subscription;
      if (this.#isOver) subscription.stop();
      if (this.#early) throw this.#early;
    } catch (error) {
      this.drop();
      throw error;
    }
  }

  /** Looks up again what deny policies keep from the caller; with any, nothing is broadcast to it. */
  async screenAgain(): Promise<void> {
    await this.#screening.look();
    // What a group delivers is for one member alone already.
    if (!this.#screening.isApart() || this.group !== undefined) return;
    this.#options.socket.connection.leave(this.id);
    this.#subscription?.setApart();
  }

  /** Whether its group delivered this event here and no frame has settled it. */
  mayTell(eventId: string): boolean {
    return this.#unsettled.has(eventId);
  }

  /** Settles a delivery of its group. */
  async settle(verdict: GroupVerdict): Promise<void> {
    this.#unsettled.delete(verdict.eventId);
    await this.#subscription?.settle?.(verdict);
  }

  /** Tells the client that nothing follows, and why. */
  end(code: Parameters<typeof troubleFrame>[1]["code"], message: string): void {
    this.stop();
    void this.#options.socket.connection.send(troubleFrame(this.id, { code, message, retrying: false }));
  }

  /** Ends the subscription of an open connection. */
  stop(): void {
    this.#options.socket.connection.leave(this.id);
    this.drop();
  }

  /**
   * Ends the subscription; what is broadcast to its channel goes on until the connection leaves that or
   * closes.
   */
  drop(): void {
    this.#isOver = true;
    this.#options.release();
    this.#options.onDropped(this);
    this.#subscription?.stop();
  }

  accepted(start: Start | undefined, consumerId?: string): void {
    if (this.#early) return;
    this.#isAccepted = true;
    const { askedPattern, socket } = this.#options;
    void socket.connection.send(okFrame(askedPattern, { subscriptionId: this.id, start, consumerId }));
    if (socket.isLegacy) void socket.connection.send(subscribedFrame(askedPattern, this.id));
  }

  deliver(spec: ChannelSpec, delivery: Delivery, isStillHeld?: () => boolean): void | Promise<void> {
    const write = () => {
      if (this.#isOver || (isStillHeld && !isStillHeld())) return;
      if (isStillHeld && delivery.eventId !== undefined) this.#expectVerdict(delivery.eventId);
      return this.#options.socket.connection.send(eventFrame(spec, delivery));
    };
    // A member of a group may have everything that the group reads: its deliveries are not screened one by
    // one.
    return isStillHeld ? write() : this.#screening.deliver(delivery, write);
  }

  #expectVerdict(eventId: string): void {
    const all = this.#unsettled;
    all.delete(eventId);
    all.add(eventId);
    if (all.size > unsettledMax) all.delete(all.values().next().value!);
  }

  joined(): void {
    if (!this.#isOver) this.#options.socket.connection.join(this.id);
  }

  isApart(): boolean {
    return this.#screening.isApart();
  }

  troubled(): void {
    const trouble = {
      code: "INTERNAL_ERROR",
      message: "the store cannot be read now",
      retrying: true,
    } as const;
    void this.#options.socket.connection.send(troubleFrame(this.id, trouble));
  }

  async permit(pattern: string): Promise<void> {
    // The pattern that was asked for was permitted by `begin`, and the reauthorizer asks about it again and
    // again.
    if (pattern !== this.pattern) await this.#options.socket.permit({ pattern, consumerGroup: this.group });
    this.#reads = pattern;
  }

  ended(fault?: Fault): void {
    if (!fault) this.#options.socket.connection.end();
    else if (!this.#isAccepted) {
      this.#early = fault;
      this.drop();
    }
    // A subscription that was stopped may have a successor with the same id: that one goes on.
    else if (!this.#isOver) this.end(codeOfEnd(fault), fault.message);
  }
}

const isRefused = ({ kind }: Fault): boolean => kind === "permission_denied" || kind === "unauthenticated";

const codeOfEnd = (fault: Fault) => {
  if (isRefused(fault)) return "PERMISSION_DENIED";
  return fault.kind === "resource_exhausted" ? "LIMIT_EXCEEDED" : "INVALID_ARGUMENT";
};
