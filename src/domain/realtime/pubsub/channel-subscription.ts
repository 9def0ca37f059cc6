import type { Fault } from "../../../kit/fault.ts";
import type { Broadcast, Channel, ChannelSpec, LateMember, Member } from "./channel.ts";
import type { Hub } from "./hub.ts";
import type { SubscriptionOptions } from "./options.ts";

/** What the member of a group says of one delivery. */
export interface GroupVerdict {
  eventId: string;
  verdict: "ack" | "nak" | "term";
  /** Pause before a `nak` is redelivered; undefined: that of the group. */
  delayMs: number | undefined;
}

/** What a subscriber holds to end its subscription. */
export interface Subscription {
  readonly id: string;
  /** Of a member of a group: settles a delivery that it holds. */
  settle?(verdict: GroupVerdict): Promise<void>;
  /** From now on the member gets each delivery by itself, and nothing of what is broadcast. */
  setApart(): void;
  stop(): void;
}

export interface ChannelSubscriptionOptions {
  spec: ChannelSpec;
  wanted: SubscriptionOptions;
  broadcast: Broadcast;
  member: Member;
  hub: Hub;
  /** Gives the hub back. */
  release: () => void;
}

/** A subscription on its way to its channel, and in it. */
export class ChannelSubscription implements Subscription {
  readonly id: string;
  readonly spec: ChannelSpec;
  readonly wanted: SubscriptionOptions;
  readonly member: Member;
  readonly hub: Hub;
  readonly #broadcast: Broadcast;
  readonly #cleanups: (() => void)[];
  #channel: Channel | undefined;
  #isOver = false;

  constructor({ spec, wanted, broadcast, member, hub, release }: ChannelSubscriptionOptions) {
    this.id = spec.id;
    this.spec = spec;
    this.wanted = wanted;
    this.member = member;
    this.hub = hub;
    this.#broadcast = broadcast;
    this.#cleanups = [release];
  }

  get isOver(): boolean {
    return this.#isOver;
  }

  /** Joins the channel at this position of the log; late when the hub is not there yet. */
  joinAt(position: number): void {
    const { hub, member } = this;
    if (hub.isOver) {
      member.ended();
      return;
    }
    if (position > hub.position()) {
      this.addLate({ after: position, isReading: false, isReadWanted: false, isLone: false });
      return;
    }
    this.#channel = hub.channelOf(this.spec, this.#broadcast);
    hub.join(this.#channel, member);
  }

  addLate(late: LateMember): void {
    this.#channel = this.hub.channelOf(this.spec, this.#broadcast);
    this.hub.addLate(this.#channel, this.member, late);
  }

  /** Tells the member of an end, unless it has stopped already. */
  end(fault: Fault): void {
    if (!this.#isOver) this.member.ended(fault);
  }

  setApart(): void {
    if (this.#channel) this.hub.setApart(this.#channel, this.member);
  }

  /** `cleanup` is called once, when the subscription stops. */
  onStop(cleanup: () => void): void {
    this.#cleanups.push(cleanup);
  }

  stop(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (this.#channel) this.hub.leave(this.#channel, this.member);
    for (const cleanup of this.#cleanups) cleanup();
  }
}
