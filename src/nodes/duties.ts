import type { Clock, Instant } from "../kit/clock.ts";
import type { LoopOptions, Waker } from "../kit/loop.ts";
import { nodesWithout } from "../kit/node-facts.ts";
import { sql } from "../kit/sql.ts";
import type { Basics, LeaderWrite, Store } from "../store/store.ts";
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

const keptMs = 2_000;

/**
 * Whether all listed nodes say a fact of themselves; a silent node is listed for an hour. A file has one
 * node. The answer is kept for two seconds. False if unreadable: what only new nodes know is then left alone.
 */
export function everyNodeSays(
  fact: string,
  { store, clock }: { store: Store; clock: Pick<Clock, "now"> },
): () => Promise<boolean> {
  let kept: { at: Instant; answer: Promise<boolean> } | undefined;
  const ask = async () => (await store.one(sql`${nodesWithout(fact)} LIMIT 1`)) === undefined;
  return () => {
    if (!store.isShared) return Promise.resolve(true);
    const now = clock.now();
    if (kept === undefined || now - kept.at >= keptMs) {
      const answer = ask().catch(() => {
        kept = undefined;
        return false;
      });
      kept = { at: now, answer };
    }
    return kept.answer;
  };
}
