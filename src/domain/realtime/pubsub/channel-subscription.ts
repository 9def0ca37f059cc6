import { Fault, type FaultKind } from "../../../kit/fault.ts";
import type { Basics } from "../../../store/store.ts";
import { catchUp, deliveriesFound, type Effort, newestOf, openEffort, runFramesAfter } from "./catch-up.ts";
import type { Broadcast, Channel, ChannelSpec, LateMember, Member } from "./channel.ts";
import type { Delivery, Source, Sources } from "./delivery.ts";
import type { Hub } from "./hub.ts";
import { frameSliceMax, replayMax } from "./limits.ts";
import type { SubscriptionOptions } from "./options.ts";
import { endsOf } from "./rows.ts";
import { logNameOf } from "./shared-hubs.ts";

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

export interface LogFollowerDeps extends Basics<"clock" | "log"> {
  sources: Sources;
}

/** Faults of the position or the filter: another try would not help. */
const endsReading: ReadonlySet<FaultKind> = new Set(["failed_precondition", "resource_exhausted"]);

/** The fault that ends a subscription whose reading failed; undefined when reading is to be tried again. */
const endOfReading = (error: unknown): Fault | undefined =>
  error instanceof Fault && endsReading.has(error.kind) ? error : undefined;

/** Pauses before a failed read of the store is tried again. */
const retryMsMin = 100;
const retryMsMax = 5_000;

/**
 * Delivers what the subscription asked for of the past, reads on to the hub's position, and joins there. A
 * failed read is tried again behind the last delivery, for as long as the subscription lasts.
 */
export async function followLog(
  { sources, clock, log }: LogFollowerDeps,
  subscription: ChannelSubscription,
  start: number | undefined,
): Promise<void> {
  const { spec, member, hub } = subscription;
  const source = sources[logNameOf(spec)];
  const effort = openEffort({ environmentId: spec.environmentId, clock, filter: spec.filter });
  const isOver = () => subscription.isOver;
  /** The last position that was delivered; undefined while a replay by count has delivered nothing. */
  let after = start;
  const give = (delivery: Delivery) => {
    after = delivery.sequence ?? after;
    return member.deliver(spec, delivery);
  };
  for (let pauseMs = retryMsMin; !isOver(); pauseMs = Math.min(retryMsMax, pauseMs * 2)) {
    try {
      if (after === undefined) {
        const last = hub.position();
        await replayNewest(source, subscription, { last, effort, give });
        if (isOver()) return;
        after = last;
      }
      const reading = { source, spec, give, position: () => hub.position(), isOver, effort };
      const reached = await catchUp(reading, after);
      if (!isOver()) subscription.joinAt(reached);
      return;
    } catch (error) {
      const end = endOfReading(error);
      if (end) return subscription.end(end);
      log.warn("pubsub.read_failed", { subscriptionId: spec.id, error });
      if (!isOver()) member.troubled();
      await clock.sleep(pauseMs);
    }
  }
}

/** Delivers the newest `replay` entries up to and with `last`. */
async function replayNewest(
  source: Source,
  subscription: ChannelSubscription,
  { last, effort, give }: { last: number; effort: Effort; give: (one: Delivery) => void | Promise<void> },
): Promise<void> {
  const { spec, wanted } = subscription;
  const found = await newestOf(source, spec, { last, count: wanted.replay, effort });
  for await (const delivery of deliveriesFound(source, spec, found, effort)) {
    if (subscription.isOver) return;
    const full = give(delivery);
    if (full) await full;
  }
}

export type RunFollowersDeps = Basics<"store" | "clock" | "log">;

/**
 * Subscriptions to one run each, from a place in that run's history. Frames are hints and may be lost, so the
 * history is read for the past, and again when the run has ended.
 */
export class RunFollowers {
  readonly #deps: RunFollowersDeps;
  /** Those whose run is not known to be over. */
  readonly #followers = new Set<RunFollower>();

  constructor(deps: RunFollowersDeps) {
    this.#deps = deps;
  }

  follow(subscription: ChannelSubscription, runId: string): void {
    const follower = new RunFollower(this.#deps, { subscription, runId, onRunOver: () => forget() });
    const forget = () => this.#followers.delete(follower);
    this.#followers.add(follower);
    subscription.onStop(forget);
    void follower.look();
  }

  /** Finds ends of followed runs that no frame told of. */
  async lookOnce(): Promise<void> {
    const byRun = Map.groupBy(this.#followers, ({ runId }) => runId);
    const runIds = [...byRun.keys()];
    for (let from = 0; from < runIds.length; from += frameSliceMax)
      for (const { run_id } of await endsOf(this.#deps.store, runIds.slice(from, from + frameSliceMax)))
        for (const follower of byRun.get(run_id) ?? []) await follower.look();
  }
}

interface FollowedRun {
  subscription: ChannelSubscription;
  runId: string;
  /** The history that was read ends with the end of the run. */
  onRunOver: () => void;
}

class RunFollower {
  readonly runId: string;
  readonly #deps: RunFollowersDeps;
  readonly #followed: FollowedRun;
  readonly #late: LateMember;
  readonly #effort: Effort;
  /** Frames that the next read delivers at most. */
  #count: number;

  constructor(deps: RunFollowersDeps, followed: FollowedRun) {
    const { spec, wanted } = followed.subscription;
    this.runId = followed.runId;
    this.#deps = deps;
    this.#followed = followed;
    const after = Number(wanted.startAfter ?? 0n);
    this.#late = { after, isReading: false, isReadWanted: false, isLone: true };
    this.#count = wanted.replay > 0 ? wanted.replay : replayMax;
    this.#effort = openEffort({ environmentId: spec.environmentId, clock: deps.clock, filter: spec.filter });
    followed.subscription.addLate(this.#late);
  }

  /** Delivers what the run's history has behind the last place that was delivered. */
  async look(): Promise<void> {
    const { subscription } = this.#followed;
    if (this.#late.isReading || subscription.isOver) return;
    this.#late.isReading = true;
    try {
      do await this.#read();
      while (this.#late.isReadWanted && !subscription.isOver);
    } catch (error) {
      const end = endOfReading(error);
      if (end) subscription.end(end);
      else this.#deps.log.warn("pubsub.read_failed", { subscriptionId: subscription.id, error });
    } finally {
      this.#late.isReading = false;
    }
  }

  async #read(): Promise<void> {
    const { subscription, runId, onRunOver } = this.#followed;
    const { spec, member } = subscription;
    const late = this.#late;
    late.isReadWanted = false;
    const range = { after: late.after, count: this.#count, effort: this.#effort };
    const found = await runFramesAfter(this.#deps.store, spec, runId, range);
    this.#count = replayMax;
    for (const delivery of found.deliveries) {
      if (subscription.isOver) return;
      const full = member.deliver(spec, delivery);
      if (full) await full;
    }
    late.after = found.last;
    if (found.isOver) onRunOver();
  }
}
