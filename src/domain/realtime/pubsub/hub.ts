import type { Clock } from "../../../kit/clock.ts";
import type { Fault } from "../../../kit/fault.ts";
import {
  type Broadcast,
  type Channel,
  type ChannelSpec,
  Channels,
  type LateMember,
  type Member,
} from "./channel.ts";
import { Delivery, positionDelivery, type SourceEntry, type TopicDelivery } from "./delivery.ts";
import type { Frame, FrameKind, Frames } from "./frames.ts";
import { frameKindsOf, tokensOf } from "./rules.ts";
import { type Judge, openJudge, tooMuch, type Verdicts } from "./verdicts.ts";

/*
 * INVARIANTS of subscriptions
 *
 * A hub takes no locks and writes nothing: it lives in one event loop, and its order comes from what is not
 * awaited.
 *   - Entries reach a channel in order of position, each once. While the filters of one entry are evaluated
 *     (`#isWorking`), later entries and frames wait in the backlog.
 *   - `position()` is the last entry that every channel got: the position of the feed, which moves right
 *     before `onEntries` is called, or during a backlog the last entry that was worked off.
 *   - A subscriber with a replay reads from the store until it reaches `position()`, then joins. No `await`
 *     separates the last comparison in `catchUp` from `join`, so no event is skipped or repeated.
 *   - All filters of an entry are evaluated before any member gets it, and channels are matched again after
 *     each pause: a member that joins meanwhile is at a position before the entry, and gets it.
 *   - A late member gets only positions behind its own, and joins once the hub has come to its position.
 *
 * What is checked where:
 *   - The caller may have the pattern: by the gate before `PubSub.subscribe`, and again by the reauthorizer.
 *   - Deny policies on single deliveries: `screening.ts`. A member with any is apart, never on a broadcast.
 *   - Start and epoch: `service.ts`, before the subscription is accepted. Expiry later: `catchUp`.
 *   - Work of filters: `verdicts.ts` for new entries, `catch-up.ts` for a replay.
 */

/**
 * Characters that may wait while filters are evaluated; beyond that the filtered subscriptions of the log
 * end.
 */
const backlogCharsMax = 16 * 1024 * 1024;
const backlogMax = 10_000;

export interface HubDeps {
  environmentId: string;
  frames: Pick<Frames, "want"> & { announce(kinds: readonly FrameKind[]): Promise<void> };
  clock: Pick<Clock, "elapsed" | "now" | "sleep">;
  /** Position of the feed: the hub was given every entry up to there. */
  fedTo: () => number;
  failed: (error: unknown) => void;
}

/** What stands at one position, under its topics. A frame has no position. */
interface BacklogEntry {
  position: number | undefined;
  placed: readonly TopicDelivery[];
}

const charsOf = ({ placed }: BacklogEntry): number =>
  placed.reduce((sum, { delivery }) => sum + delivery.data.length, 0);

/** All subscriptions to one log of an environment on one node. */
export class Hub {
  readonly #deps: HubDeps;
  readonly #channels: Channels;
  readonly #lateChannels = new Set<Channel>();
  readonly #judge: Judge<Channel>;
  /** Entries and frames that came while filters were evaluated. */
  readonly #backlog: BacklogEntry[] = [];
  #backlogChars = 0;
  #isWorking = false;
  /** The hub's position while it works. */
  #reached = 0;
  #isOver = false;

  constructor(deps: HubDeps) {
    const { environmentId, frames, clock } = deps;
    this.#deps = deps;
    this.#channels = new Channels(environmentId, frames);
    this.#judge = openJudge<Channel>({
      environmentId,
      clock,
      end: (channel, fault) => this.#endChannel(channel, fault),
    });
  }

  /** Everything up to here has been handed to the channels. */
  position(): number {
    return this.#isWorking ? this.#reached : this.#deps.fedTo();
  }

  /** The environment was deleted: nothing will come any more. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Resolves when other nodes make the frames of this channel. */
  announce({ pattern }: ChannelSpec): Promise<void> {
    return this.#deps.frames.announce(frameKindsOf(pattern));
  }

  /** The channel of this id and broadcast; a missing one is made. */
  channelOf(spec: ChannelSpec, broadcast: Broadcast): Channel {
    return this.#channels.open(spec, broadcast);
  }

  /** The member goes on from its own position, and joins the others once the hub has come there. */
  addLate(channel: Channel, member: Member, late: LateMember): void {
    channel.late.set(member, late);
    this.#lateChannels.add(channel);
  }

  /** The member gets what comes from now on, with the others or apart. */
  join(channel: Channel, member: Member): void {
    // It may come from far behind what the others were told.
    channel.told = 0;
    if (member.isApart()) {
      channel.apart.add(member);
      return;
    }
    channel.joined.add(member);
    member.joined(channel.spec);
  }

  /** A member that has joined goes on apart. */
  setApart(channel: Channel, member: Member): void {
    if (channel.joined.delete(member)) channel.apart.add(member);
  }

  /** The channel is forgotten with its last member. */
  leave(channel: Channel, member: Member): void {
    channel.joined.delete(member);
    channel.apart.delete(member);
    channel.late.delete(member);
    if (channel.late.size === 0) this.#lateChannels.delete(channel);
    if (this.#channels.forgetEmpty(channel)) this.#judge.forget(channel);
  }

  onEntries(entries: readonly SourceEntry[]): void {
    for (const entry of entries) this.#accept(entry);
    this.#joinAllLate();
  }

  /** Tells members that asked for it how far they have come, if that is further than they were told. */
  tellPositions(): void {
    const position = this.position();
    const delivery = positionDelivery(position, this.#deps.clock.now());
    for (const channel of this.#channels.all()) {
      if (!channel.spec.withPositions || channel.told >= position) continue;
      channel.told = position;
      deliverToChannel(channel, delivery);
    }
  }

  onFrame({ topic, data, at, sequence }: Frame): void {
    const facts = { eventId: undefined, custom: null, source: "system" } as const;
    const delivery = new Delivery({ ...facts, topic, data, at, sequence });
    this.#accept({ position: undefined, placed: [{ delivery, tokens: tokensOf(topic) }] });
  }

  /** Tells every member that the environment was deleted. */
  end(): void {
    this.#isOver = true;
    for (const { joined, apart, late } of this.#channels.all())
      for (const member of [...joined, ...apart, ...late.keys()]) member.ended();
  }

  #accept(entry: BacklogEntry): void {
    if (!this.#isWorking) {
      const pause = this.#deliver(entry);
      if (!pause) return;
      this.#reached = entry.position === undefined ? this.#deps.fedTo() : entry.position - 1;
      void this.#workOff(entry, pause);
      return;
    }
    this.#backlog.push(entry);
    this.#backlogChars += charsOf(entry);
    if (this.#backlog.length <= backlogMax && this.#backlogChars <= backlogCharsMax) return;
    for (const channel of this.#channels.all()) if (channel.spec.filter) this.#endChannel(channel, tooMuch());
  }

  /** Delivers the backlog one entry after the other, behind the first, which is being evaluated. */
  async #workOff(first: BacklogEntry, delivered: Promise<void>): Promise<void> {
    this.#isWorking = true;
    let pause: Promise<void> | undefined = delivered;
    for (let entry: BacklogEntry | undefined = first; entry && !this.#isOver; entry = this.#backlog.shift()) {
      try {
        if (entry !== first) {
          this.#backlogChars -= charsOf(entry);
          pause = this.#deliver(entry);
        }
        if (pause) await pause;
      } catch (error) {
        this.#deps.failed(error);
      }
      this.#reached = entry.position ?? this.#reached;
      this.#joinAllLate();
    }
    this.#isWorking = false;
    this.#joinAllLate();
  }

  /** Evaluates all filters before any member gets the entry. Undefined when that took no pause. */
  #deliver({ placed }: BacklogEntry): Promise<void> | undefined {
    const candidates = placed.map((one) => ({
      ...one,
      matching: () => this.#channels.matching(one.tokens),
      verdicts: new Map() as Verdicts<Channel>,
    }));
    const judgeAll = (): Promise<void> | undefined => {
      for (const { delivery, matching, verdicts } of candidates) {
        const pause = this.#judge.judge(delivery, matching, verdicts);
        if (pause) return pause.then(judgeAll);
      }
      for (const { delivery, matching, verdicts } of candidates)
        for (const channel of matching()) if (verdicts.get(channel)) deliverToChannel(channel, delivery);
      return undefined;
    };
    return judgeAll();
  }

  #endChannel(channel: Channel, fault: Fault): void {
    for (const member of [...channel.joined, ...channel.apart, ...channel.late.keys()]) {
      this.leave(channel, member);
      member.ended(fault);
    }
  }

  #joinAllLate(): void {
    for (const channel of [...this.#lateChannels]) this.#joinLate(channel);
  }

  /** Joins the late members whose position the hub has come to. */
  #joinLate(channel: Channel): void {
    for (const [member, late] of channel.late) {
      if (late.isLone || late.isReading || late.after > this.position()) continue;
      channel.late.delete(member);
      this.join(channel, member);
    }
    if (channel.late.size === 0) this.#lateChannels.delete(channel);
  }
}

function deliverToChannel(channel: Channel, delivery: Delivery): void {
  if (channel.joined.size > 0) channel.broadcast.publish(channel.spec, delivery);
  for (const member of channel.apart) void member.deliver(channel.spec, delivery);
  if (channel.late.size > 0)
    for (const [member, late] of channel.late) deliverLate(channel, member, late, delivery);
}

function deliverLate(channel: Channel, member: Member, late: LateMember, delivery: Delivery): void {
  const { sequence } = delivery;
  if (sequence !== undefined) {
    if (late.isReading) {
      late.isReadWanted = true;
      return;
    }
    if (sequence <= late.after) return;
    late.after = sequence;
  }
  void member.deliver(channel.spec, delivery);
}
