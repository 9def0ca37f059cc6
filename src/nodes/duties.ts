import type { LoopOptions, Waker } from "../kit/loop.ts";
import type { Basics, LeaderWrite } from "../store/store.ts";
import { Deposed, type Leadership, writeAsLeader } from "./leader.ts";

/** Background work that one node does for all. Loops of one duty are led together. */
export interface DutyLoop {
  /** `retention`. */
  duty: string;
  /** `events.keys`. */
  name: string;
  /** What it does, in one sentence for operators. */
  about: string;
  everyMs: number;
  /** Asks this loop for ticks, on the node that leads. */
  waker?: Waker;
  /** See `LoopOptions.shareMax`. */
  shareMax?: number;
  tick: (write: LeaderWrite) => Promise<{ againInMs?: number } | void>;
}

/** A follower looks this often whether it leads now. */
const followerMs = 1_000;

export interface DutiesDeps extends Basics<"store" | "log"> {
  leadership: Pick<Leadership, "epochOf">;
}

/** The loop of a duty: does nothing on nodes that do not lead it. */
export function dutyLoop(
  { store, leadership, log }: DutiesDeps,
  { duty, name, about, everyMs, waker, shareMax, tick }: DutyLoop,
): LoopOptions {
  return {
    name,
    about,
    duty,
    everyMs,
    ...(waker && { waker }),
    ...(shareMax !== undefined && { shareMax }),
    async tick() {
      const epoch = leadership.epochOf(duty);
      if (epoch === undefined) return { againInMs: followerMs };
      try {
        return await tick((work) => writeAsLeader(store, duty, epoch, work));
      } catch (error) {
        if (!(error instanceof Deposed)) throw error;
        log.warn("cluster.deposed", { duty, loop: name, epoch });
        return { againInMs: followerMs };
      }
    },
  };
}
