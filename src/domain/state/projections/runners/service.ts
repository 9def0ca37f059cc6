import type { Basics } from "../../../../store/store.ts";
import type { Feeds } from "../../../log/core/feed.ts";
import { projectionHeldPollsMax, projectionLeaseMs } from "../limits.ts";
import type { ProjectionKey } from "../rows.ts";
import { eventNamesOf, type NameMatcher, type Runner } from "../rules.ts";
import { type Delivered, type Deliveries, definitionText } from "./deliveries.ts";
import { type Failure, type ProjectionAck, type Save, type Saved, StoredSaves } from "./saves.ts";
import { Rest, type Signals } from "./signals.ts";

export interface PollAsk {
  key: ProjectionKey;
  runner: Runner;
  limit: number;
  /** Undefined: of all partitions. */
  partition: string | undefined;
  /** See `RunnerAsk`. */
  permitted?: string;
  signal: AbortSignal;
}

/** For those who fold projections. */
export type Runners = ReturnType<typeof openRunners>;

export interface RunnersDeps extends Basics<"store" | "clock"> {
  feeds: Pick<Feeds, "follow">;
  signals: Signals;
  deliveries: Deliveries;
  pollHoldMs: number;
  onDelivered: (delivered: Delivered) => void;
  onSaved: (saved: Saved) => void;
}

/** How often a poll that stands by looks whether it may take over. */
const standbyMs = 1_000;

/** How often a held poll renews the lease, which is shorter than it may be held. */
const renewMs = projectionLeaseMs / 2;

const knownNamesMax = 1_000;

/** Every event of the environment asks each runner: a name is matched with the patterns once. */
function remembered({ matches }: NameMatcher): NameMatcher["matches"] {
  const known = new Map<string, boolean>();
  return (name) => {
    let isOne = known.get(name);
    if (isOne === undefined) {
      if (known.size >= knownNamesMax) known.clear();
      isOne = matches(name);
      known.set(name, isOne);
    }
    return isOne;
  };
}

export function openRunners(deps: RunnersDeps) {
  const { clock, feeds, signals, deliveries, pollHoldMs, onDelivered, onSaved } = deps;
  const saves = new StoredSaves(deps);
  const resting = new Set<Rest>();
  const heldPolls = new Map<string, number>();
  let isDraining = false;

  const eventsOf = async (key: ProjectionKey) => (await deliveries.read(key)).events;

  async function listen(key: ProjectionKey, rest: Rest): Promise<() => void> {
    const matches = remembered(eventNamesOf(JSON.parse(await eventsOf(key)) as string[]));
    const unlisten = signals.listen(key, () => rest.wake());
    const following = await feeds.follow(key.environment_id, {
      onEvents(events) {
        for (const { name } of events) if (matches(name)) return rest.wake();
      },
      onEnd: () => rest.wake(),
    });
    return () => {
      unlisten();
      following.stop();
    };
  }

  async function look(ask: PollAsk): Promise<Delivered> {
    const delivered = await deliveries.poll(ask);
    if (delivered.advanced) onDelivered(delivered);
    return delivered;
  }

  const isOver = ({ state, events }: Delivered) => state === "idle" || events.length > 0;

  async function held(ask: PollAsk, first: Delivered): Promise<Delivered> {
    const rest = new Rest();
    const onAbort = () => rest.wake();
    ask.signal.addEventListener("abort", onAbort, { once: true });
    const unlisten = await listen(ask.key, rest);
    resting.add(rest);
    try {
      const until = clock.elapsed() + pollHoldMs;
      let last = first;
      // What was committed before the feed was followed woke nobody.
      rest.wake();
      for (;;) {
        const left = until - clock.elapsed();
        if (left <= 0 || isDraining || ask.signal.aborted) return last;
        await rest.for(Math.min(left, last.state === "standby" ? standbyMs : renewMs), clock);
        last = await look(ask);
        // What wakes it is not what the projection wants now.
        const isRedefined = definitionText(last.held) !== definitionText(first.held);
        if (isOver(last) || isRedefined) return last;
      }
    } finally {
      resting.delete(rest);
      ask.signal.removeEventListener("abort", onAbort);
      unlisten();
    }
  }

  return {
    /** Held open until there are events, or the time of a held poll is over. */
    async poll(ask: PollAsk): Promise<Delivered> {
      const first = await look(ask);
      if (isOver(first) || pollHoldMs === 0 || isDraining) return first;
      const text = `${ask.key.environment_id}\n${ask.key.name}`;
      const count = heldPolls.get(text) ?? 0;
      if (count >= projectionHeldPollsMax) return first;
      heldPolls.set(text, count + 1);
      try {
        return await held(ask, first);
      } finally {
        const left = heldPolls.get(text)! - 1;
        if (left > 0) heldPolls.set(text, left);
        else heldPolls.delete(text);
      }
    },
    save: async (save: Save) => onSaved(await saves.save(save)),
    ack: async (ack: ProjectionAck) => onSaved(await saves.ack(ack)),
    fail: async (failure: Failure) => onSaved(await saves.fail(failure)),
    /** Wakes `rest` on events that a projection may want and on its changes, until the answer is called. */
    listen,
    /** Event names and patterns of a projection, as they are stored; throws `not_found`. */
    eventsOf,
    /** Answers all held polls. */
    drain() {
      isDraining = true;
      for (const rest of resting) rest.wake();
    },
  };
}
