import type { CelProgram } from "../../../kit/cel/cel.ts";
import type { Fault } from "../../../kit/fault.ts";
import { openTrie } from "../../../kit/trie.ts";
import type { Delivery } from "./delivery.ts";
import type { Frames } from "./frames.ts";
import { frameKindsOf, type Pattern } from "./rules.ts";

/** What all subscriptions with one id have in common: they get the same deliveries, in the same bytes. */
export interface ChannelSpec {
  readonly id: string;
  readonly environmentId: string;
  readonly pattern: Pattern;
  readonly filter: CelProgram | undefined;
  readonly includeMetadata: boolean;
  readonly topicOnly: boolean;
  /** Whether its members are told positions while nothing comes. */
  readonly withPositions: boolean;
}

/** Where a subscription begins: it gets everything behind this position of the log of this epoch. */
export interface Start {
  readonly sequence: number;
  readonly epoch: number;
}

/** One subscription on one connection, as its hub sees it. */
export interface Member {
  /**
   * Confirms the subscription, before anything is delivered. `start` is given when it was asked for and
   * exists, `consumerId` to a member of a group: its own name there.
   */
  accepted(start: Start | undefined, consumerId?: string): void;
  /**
   * Writes a delivery for this member alone. A reader of the store waits for the promise before it reads on.
   * For a member of a group `isStillHeld` is called right before the write; after a no the delivery is
   * dropped.
   */
  deliver(spec: ChannelSpec, delivery: Delivery, isStillHeld?: () => boolean): void | Promise<void>;
  /** From now on the member gets what its broadcast publishes on the channel. */
  joined(spec: ChannelSpec): void;
  /**
   * True when deny policies keep some deliveries from the caller: then each delivery is written for it alone.
   */
  isApart(): boolean;
  /** The store cannot be read for now; the subscription goes on when it can. */
  troubled(): void;
  /** For a member of a group, whose pattern may change: throws unless the caller may have this pattern. */
  permit(pattern: string): Promise<void>;
  /** The last call: the environment was deleted, or what the fault says. The member leaves by itself. */
  ended(fault?: Fault): void;
}

/** Writes one delivery to many connections at once. */
export interface Broadcast {
  publish(spec: ChannelSpec, delivery: Delivery): void;
}

export interface Channel {
  readonly spec: ChannelSpec;
  readonly broadcast: Broadcast;
  /** Members that get what the broadcast publishes. */
  readonly joined: Set<Member>;
  /** Members that are as far, and get each delivery by itself. */
  readonly apart: Set<Member>;
  /** Members at another position than the hub: each gets the deliveries behind its own. */
  readonly late: Map<Member, LateMember>;
  /** The position that its members were told last. */
  told: number;
}

/** How far a member is that is not at its hub's position. */
export interface LateMember {
  /** The member has everything up to here. */
  after: number;
  /** History is being read for it: the read finds what comes meanwhile. */
  isReading: boolean;
  /** Something came during the read. */
  isReadWanted: boolean;
  /**
   * A member that follows one run: positions are places in that run's history, so it never joins the others.
   */
  isLone: boolean;
}

/**
 * The channels of one log of an environment, found by broadcast and id, or by the patterns that match a
 * topic.
 */
export class Channels {
  readonly #environmentId: string;
  readonly #frames: Pick<Frames, "want">;
  readonly #trie = openTrie<Channel>();
  readonly #byBroadcast = new Map<Broadcast, Map<string, Channel>>();

  constructor(environmentId: string, frames: Pick<Frames, "want">) {
    this.#environmentId = environmentId;
    this.#frames = frames;
  }

  matching(tokens: readonly string[]): readonly Channel[] {
    return this.#trie.match(tokens);
  }

  all(): Channel[] {
    return [...this.#byBroadcast.values()].flatMap((byId) => [...byId.values()]);
  }

  /** The channel of this id and broadcast; a missing one is made. */
  open(spec: ChannelSpec, broadcast: Broadcast): Channel {
    let byId = this.#byBroadcast.get(broadcast);
    if (!byId) {
      byId = new Map();
      this.#byBroadcast.set(broadcast, byId);
    }
    const found = byId.get(spec.id);
    if (found) return found;
    const channel: Channel = {
      spec,
      broadcast,
      joined: new Set(),
      apart: new Set(),
      late: new Map(),
      told: 0,
    };
    byId.set(spec.id, channel);
    this.#trie.add(spec.pattern.tokens, channel);
    this.#wantFrames(channel, true);
    return channel;
  }

  /** Forgets a channel without members. False when it has members, or was forgotten before. */
  forgetEmpty(channel: Channel): boolean {
    const { spec, broadcast, joined, apart, late } = channel;
    if (joined.size + apart.size + late.size > 0) return false;
    const byId = this.#byBroadcast.get(broadcast);
    if (byId?.get(spec.id) !== channel) return false;
    byId.delete(spec.id);
    if (byId.size === 0) this.#byBroadcast.delete(broadcast);
    this.#trie.remove(spec.pattern.tokens, channel);
    this.#wantFrames(channel, false);
    return true;
  }

  #wantFrames({ spec }: Channel, isWanted: boolean): void {
    for (const kind of frameKindsOf(spec.pattern)) this.#frames.want(kind, this.#environmentId, isWanted);
  }
}
