import type { CelProgram } from "../../kit/cel.ts";
import type { Fault } from "../../kit/fault.ts";
import { openTrie } from "../../kit/trie.ts";
import { Delivery, type Placed } from "./delivery.ts";
import type { Frame, Frames } from "./frames.ts";
import { frameKindsOf, type Pattern, tokensOf } from "./rules.ts";
import type { Told } from "./source.ts";

/** What all subscriptions of one id have in common: the same deliveries, in the same bytes. */
export interface ChannelSpec {
  readonly id: string;
  readonly environmentId: string;
  readonly pattern: Pattern;
  readonly filter: CelProgram | undefined;
  readonly includeMetadata: boolean;
  readonly topicOnly: boolean;
}

/** Where a subscription begins: it gets everything behind this place of this log. */
export interface Start {
  readonly sequence: number;
  readonly epoch: number;
}

/** One subscription on one connection. */
export interface Member {
  /** Confirms the subscription, before anything is delivered; with its start when it asked for that and there is one. */
  accepted(start: Start | undefined): void;
  /**
   * A delivery for this one alone. A promise asks whoever reads from the store to wait for it. `stands`, of a group's, is asked
   * right before it is written: after a no it is dropped.
   */
  give(spec: ChannelSpec, delivery: Delivery, stands?: () => boolean): void | Promise<void>;
  /** From now on it has what its outlet publishes on the channel. */
  joined(spec: ChannelSpec): void;
  /** It cannot go on for now, and will. */
  troubled(): void;
  /** Of a group, which may come to read something else than was asked for: throws unless its caller may have that. */
  permit(pattern: string): Promise<void>;
  /** Nothing follows: the environment is gone, or what the fault says. */
  ended(fault?: Fault): void;
}

/** A way to many connections at once. */
export interface Outlet {
  publish(spec: ChannelSpec, delivery: Delivery): void;
}

export interface Channel {
  readonly spec: ChannelSpec;
  readonly outlet: Outlet;
  readonly joined: Set<Member>;
  /** Members that have not come to the channel's place yet, and take what is after theirs one by one. */
  readonly late: Map<Member, Late>;
}

export interface Late {
  /** Has everything up to here. */
  after: number;
  /** Is being read for: what comes meanwhile will be found there. */
  reading: boolean;
  /** Came meanwhile. */
  again: boolean;
  /** Of a run: each frame is for it alone, for ever. */
  isLone: boolean;
}

/** All subscriptions of one log of an environment on one node. */
export interface Hub {
  readonly environmentId: string;
  /** The channel of this id and outlet, made when there is none. */
  channelOf(spec: ChannelSpec, outlet: Outlet): Channel;
  /** The member goes on from its place, with the others once the log has come there. */
  addLate(channel: Channel, member: Member, late: Late): void;
  /** Forgets the channel when it has no members. */
  leave(channel: Channel, member: Member): void;
  /** Everything up to here has been handed to the channels. */
  position(): number;
  /** The environment is gone: nothing will come any more. */
  isOver(): boolean;
  onTold(list: readonly Told[]): void;
  onFrame(frame: Frame): void;
  /** Every member is told, once. */
  end(): void;
}

export function openHub(environmentId: string, frames: Frames, position: () => number): Hub {
  const trie = openTrie<Channel>();
  const channels = new Map<Outlet, Map<string, Channel>>();
  const lateChannels = new Set<Channel>();
  let over = false;

  function deliver({ delivery, tokens }: Placed): void {
    for (const channel of trie.match(tokens)) {
      if (channel.spec.filter && !delivery.passes(channel.spec.filter)) continue;
      if (channel.joined.size > 0) channel.outlet.publish(channel.spec, delivery);
      if (channel.late.size > 0)
        for (const [member, late] of channel.late) giveLate(channel, member, late, delivery);
    }
  }

  function giveLate(channel: Channel, member: Member, late: Late, delivery: Delivery): void {
    const { sequence } = delivery;
    if (sequence !== undefined) {
      if (late.reading) {
        late.again = true;
        return;
      }
      if (sequence <= late.after) return;
      late.after = sequence;
    }
    void member.give(channel.spec, delivery);
  }

  /** Those whose place the log has come to go on with the others. */
  function joinLate(channel: Channel): void {
    for (const [member, late] of channel.late) {
      if (late.isLone || late.reading || late.after > position()) continue;
      channel.late.delete(member);
      channel.joined.add(member);
      member.joined(channel.spec);
    }
    if (channel.late.size === 0) lateChannels.delete(channel);
  }

  const all = () => [...channels.values()].flatMap((byId) => [...byId.values()]);

  return {
    environmentId,
    position,

    channelOf(spec, outlet) {
      let byId = channels.get(outlet);
      if (!byId) {
        byId = new Map();
        channels.set(outlet, byId);
      }
      let channel = byId.get(spec.id);
      if (!channel) {
        channel = { spec, outlet, joined: new Set(), late: new Map() };
        byId.set(spec.id, channel);
        trie.add(spec.pattern.tokens, channel);
        for (const kind of frameKindsOf(spec.pattern)) frames.want(kind, environmentId, true);
      }
      return channel;
    },

    addLate(channel, member, late) {
      channel.late.set(member, late);
      lateChannels.add(channel);
    },

    leave(channel, member) {
      const { spec, outlet, joined, late } = channel;
      joined.delete(member);
      late.delete(member);
      if (late.size === 0) lateChannels.delete(channel);
      if (joined.size > 0 || late.size > 0) return;
      const byId = channels.get(outlet);
      if (byId?.get(spec.id) !== channel) return;
      byId.delete(spec.id);
      if (byId.size === 0) channels.delete(outlet);
      trie.remove(spec.pattern.tokens, channel);
      for (const kind of frameKindsOf(spec.pattern)) frames.want(kind, environmentId, false);
    },

    isOver: () => over,

    onTold(list) {
      for (const { placed } of list) for (const one of placed) deliver(one);
      for (const channel of [...lateChannels]) joinLate(channel);
    },

    onFrame({ topic, data, at, sequence }) {
      const facts = { eventId: undefined, custom: null, source: "system" } as const;
      deliver({
        delivery: new Delivery({ ...facts, topic, data, at, sequence }),
        tokens: tokensOf(topic),
      });
    },

    end() {
      over = true;
      for (const { joined, late } of all()) for (const member of [...joined, ...late.keys()]) member.ended();
    },
  };
}
