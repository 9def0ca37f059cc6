import type { Basics } from "../../../store/store.ts";
import { runFramesAfter } from "./catch-up.ts";
import type { LateMember } from "./channel.ts";
import type { ChannelSubscription } from "./channel-subscription.ts";
import { type Effort, openEffort } from "./effort.ts";
import { frameSliceMax, replayMax } from "./limits.ts";
import { endOfReading } from "./log-follower.ts";
import { endsOf } from "./rows.ts";

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
