import type { CelProgram } from "../../../kit/cel/cel.ts";
import type { Clock } from "../../../kit/clock.ts";
import type { Fault } from "../../../kit/fault.ts";
import { openTrie } from "../../../kit/trie.ts";
import { Delivery, type TopicDelivery } from "./delivery.ts";
import type { Frame, Frames } from "./frames.ts";
import { frameKindsOf, type Pattern, tokensOf } from "./rules.ts";
import type { SourceEntry } from "./source.ts";
import { openJudge, tooMuch, type Verdicts } from "./verdicts.ts";

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
  deliver(spec: ChannelSpec, delivery: Delivery, isStillHeld?: () => boolean): void | Promise<void>;
  /** From now on it has what its outlet publishes on the channel. */
  joined(spec: ChannelSpec): void;
  /** Some of what comes is not for its caller: it is given each delivery by itself. */
  isApart(): boolean;
  /** It cannot go on for now, and will. */
  troubled(): void;
  /** Of a group, which may come to read something else than was asked for: throws unless its caller may have that. */
  permit(pattern: string): Promise<void>;
  /** Nothing follows: the environment is gone, or what the fault says. It leaves by itself. */
  ended(fault?: Fault): void;
}

/** A way to many connections at once. */
export interface Broadcast {
  publish(spec: ChannelSpec, delivery: Delivery): void;
}

export interface Channel {
  readonly spec: ChannelSpec;
  readonly broadcast: Broadcast;
  readonly joined: Set<Member>;
  /** As those, each by itself. */
  readonly apart: Set<Member>;
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
  channelOf(spec: ChannelSpec, broadcast: Broadcast): Channel;
  /** The member goes on from its place, with the others once the log has come there. */
  addLate(channel: Channel, member: Member, late: Late): void;
  /** It has what comes from now on, with the others or apart. */
  join(channel: Channel, member: Member): void;
  /** Has it come to the channel's place, it goes on apart from now on. */
  setApart(channel: Channel, member: Member): void;
  /** Forgets the channel when it has no members. */
  leave(channel: Channel, member: Member): void;
  /** Everything up to here has been handed to the channels. */
  position(): number;
  /** The environment is gone: nothing will come any more. */
  isOver(): boolean;
  onEntries(list: readonly SourceEntry[]): void;
  onFrame(frame: Frame): void;
  /** Every member is told, once. */
  end(): void;
}

/** So many letters of what came may wait for filters; beyond that the filtered subscriptions of the log end. */
const backlogCharsMax = 16 * 1024 * 1024;
const backlogMax = 10_000;

export interface HubDeps {
  environmentId: string;
  frames: Frames;
  clock: Pick<Clock, "elapsed" | "sleep">;
  /** Of the feed: what came up to there was told. */
  fedTo: () => number;
  failed: (error: unknown) => void;
}

/** What stands at one position, under its topics; frames have none. */
interface BacklogEntry {
  position: number | undefined;
  placed: readonly TopicDelivery[];
}

const charsOf = ({ placed }: BacklogEntry): number =>
  placed.reduce((sum, { delivery }) => sum + delivery.data.length, 0);

export function openHub({ environmentId, frames, clock, fedTo, failed }: HubDeps): Hub {
  const trie = openTrie<Channel>();
  const channels = new Map<Broadcast, Map<string, Channel>>();
  const lateChannels = new Set<Channel>();
  /** What came while filters were asked for what came before it. */
  const backlog: BacklogEntry[] = [];
  let backlogChars = 0;
  let working = false;
  /** While it works. */
  let reached = 0;
  let over = false;

  const position = () => (working ? reached : fedTo());
  const judge = openJudge<Channel>({ environmentId, clock, end: endChannel });

  function endChannel(channel: Channel, fault: Fault): void {
    for (const member of [...channel.joined, ...channel.apart, ...channel.late.keys()]) {
      leave(channel, member);
      member.ended(fault);
    }
  }

  /** All filters are asked before anybody is told: who joins meanwhile is told too, or has it already. */
  function deliver({ placed }: BacklogEntry): Promise<void> | undefined {
    const candidates = placed.map((one) => ({
      ...one,
      matching: () => trie.match(one.tokens),
      verdicts: new Map() as Verdicts<Channel>,
    }));
    const judgeAll = (): Promise<void> | undefined => {
      for (const { delivery, matching, verdicts } of candidates) {
        const pause = judge.judge(delivery, matching, verdicts);
        if (pause) return pause.then(judgeAll);
      }
      for (const { delivery, matching, verdicts } of candidates)
        for (const channel of matching()) if (verdicts.get(channel)) deliverToChannel(channel, delivery);
      return undefined;
    };
    return judgeAll();
  }

  function deliverToChannel(channel: Channel, delivery: Delivery): void {
    if (channel.joined.size > 0) channel.broadcast.publish(channel.spec, delivery);
    for (const member of channel.apart) void member.deliver(channel.spec, delivery);
    if (channel.late.size > 0)
      for (const [member, late] of channel.late) deliverLate(channel, member, late, delivery);
  }

  /** One after the other, in the order in which they came. */
  async function workOff(first: BacklogEntry, delivered: Promise<void>): Promise<void> {
    working = true;
    let pause: Promise<void> | undefined = delivered;
    for (let unit: BacklogEntry | undefined = first; unit && !over; unit = backlog.shift()) {
      try {
        if (unit !== first) {
          backlogChars -= charsOf(unit);
          pause = deliver(unit);
        }
        if (pause) await pause;
      } catch (error) {
        failed(error);
      }
      reached = unit.position ?? reached;
      joinAllLate();
    }
    working = false;
    joinAllLate();
  }

  function accept(unit: BacklogEntry): void {
    if (!working) {
      const pause = deliver(unit);
      if (!pause) return;
      reached = unit.position === undefined ? fedTo() : unit.position - 1;
      void workOff(unit, pause);
      return;
    }
    backlog.push(unit);
    backlogChars += charsOf(unit);
    if (backlog.length > backlogMax || backlogChars > backlogCharsMax)
      for (const channel of all()) if (channel.spec.filter) endChannel(channel, tooMuch());
  }

  function deliverLate(channel: Channel, member: Member, late: Late, delivery: Delivery): void {
    const { sequence } = delivery;
    if (sequence !== undefined) {
      if (late.reading) {
        late.again = true;
        return;
      }
      if (sequence <= late.after) return;
      late.after = sequence;
    }
    void member.deliver(channel.spec, delivery);
  }

  function join(channel: Channel, member: Member): void {
    if (member.isApart()) {
      channel.apart.add(member);
      return;
    }
    channel.joined.add(member);
    member.joined(channel.spec);
  }

  /** Those whose place the log has come to go on with the others. */
  function joinLate(channel: Channel): void {
    for (const [member, late] of channel.late) {
      if (late.isLone || late.reading || late.after > position()) continue;
      channel.late.delete(member);
      join(channel, member);
    }
    if (channel.late.size === 0) lateChannels.delete(channel);
  }

  const joinAllLate = () => {
    for (const channel of [...lateChannels]) joinLate(channel);
  };

  function leave(channel: Channel, member: Member): void {
    const { spec, broadcast, joined, apart, late } = channel;
    joined.delete(member);
    apart.delete(member);
    late.delete(member);
    if (late.size === 0) lateChannels.delete(channel);
    if (joined.size + apart.size + late.size > 0) return;
    const byId = channels.get(broadcast);
    if (byId?.get(spec.id) !== channel) return;
    byId.delete(spec.id);
    judge.forget(channel);
    if (byId.size === 0) channels.delete(broadcast);
    trie.remove(spec.pattern.tokens, channel);
    for (const kind of frameKindsOf(spec.pattern)) frames.want(kind, environmentId, false);
  }

  const all = () => [...channels.values()].flatMap((byId) => [...byId.values()]);

  return {
    environmentId,
    position,

    channelOf(spec, broadcast) {
      let byId = channels.get(broadcast);
      if (!byId) {
        byId = new Map();
        channels.set(broadcast, byId);
      }
      let channel = byId.get(spec.id);
      if (!channel) {
        channel = { spec, broadcast, joined: new Set(), apart: new Set(), late: new Map() };
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

    join,
    leave,

    setApart(channel, member) {
      if (channel.joined.delete(member)) channel.apart.add(member);
    },

    isOver: () => over,

    onEntries(list) {
      for (const unit of list) accept(unit);
      joinAllLate();
    },

    onFrame({ topic, data, at, sequence }) {
      const facts = { eventId: undefined, custom: null, source: "system" } as const;
      const delivery = new Delivery({ ...facts, topic, data, at, sequence });
      accept({ position: undefined, placed: [{ delivery, tokens: tokensOf(topic) }] });
    },

    end() {
      over = true;
      for (const { joined, apart, late } of all())
        for (const member of [...joined, ...apart, ...late.keys()]) member.ended();
    },
  };
}
