import type { Clock } from "../../../kit/clock.ts";
import type { Store } from "../../../store/store.ts";
import type { Feeds } from "../../log/log/feed.ts";
import type { Delivered, Deliveries } from "./deliveries.ts";
import type { ProjectionKey } from "./rows.ts";
import { eventNamesOf, type Runner } from "./rules.ts";
import { type Failure, type ProjectionAck, type Save, type Saved, StoredSaves } from "./saves.ts";
import { Rest, type Signals } from "./signals.ts";

export interface PollAsk {
  key: ProjectionKey;
  runner: Runner;
  limit: number;
  /** Undefined: of all partitions. */
  partition: string | undefined;
  signal: AbortSignal;
}

/** For those who fold projections. */
export interface Runners {
  /** Held open until there are events, or the time of a held poll is over. */
  poll(ask: PollAsk): Promise<Delivered>;
  save(save: Save): Promise<void>;
  ack(ack: ProjectionAck): Promise<void>;
  fail(failure: Failure): Promise<void>;
  /** Event names and patterns of a projection; throws `not_found`. */
  eventsOf(key: ProjectionKey): Promise<string[]>;
  /** Wakes `rest` on events that a projection may want and on its changes, until the answer is called. */
  listen(key: ProjectionKey, rest: Rest): Promise<() => void>;
  /** Answers all held polls. */
  drain(): void;
}

export interface RunnersDeps {
  store: Store;
  clock: Clock;
  feeds: Pick<Feeds, "follow">;
  signals: Signals;
  deliveries: Deliveries;
  pollHoldMs: number;
  onDelivered: (delivered: Delivered) => void;
  onSaved: (saved: Saved) => void;
}

/** How often a poll that stands by looks whether it may take over. */
const standbyMs = 1_000;

export function openRunners(deps: RunnersDeps): Runners {
  const { clock, feeds, signals, deliveries, pollHoldMs, onDelivered, onSaved } = deps;
  const saves = new StoredSaves(deps);
  const resting = new Set<Rest>();
  let isDraining = false;

  const eventsOf = async (key: ProjectionKey) => JSON.parse((await deliveries.read(key)).events) as string[];

  async function listen(key: ProjectionKey, rest: Rest): Promise<() => void> {
    const names = eventNamesOf(await eventsOf(key));
    const unlisten = signals.listen(key, () => rest.wake());
    const following = await feeds.follow(key.environment_id, {
      onEvents(events) {
        for (const { name } of events) if (names.matches(name)) return rest.wake();
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
        await rest.for(last.state === "standby" ? Math.min(left, standbyMs) : left, clock);
        last = await look(ask);
        if (isOver(last)) return last;
      }
    } finally {
      resting.delete(rest);
      ask.signal.removeEventListener("abort", onAbort);
      unlisten();
    }
  }

  return {
    async poll(ask) {
      const first = await look(ask);
      if (isOver(first) || pollHoldMs === 0 || isDraining) return first;
      return held(ask, first);
    },
    save: async (save) => onSaved(await saves.save(save)),
    ack: async (ack) => onSaved(await saves.ack(ack)),
    fail: async (failure) => onSaved(await saves.fail(failure)),
    listen,
    eventsOf,
    drain() {
      isDraining = true;
      for (const rest of resting) rest.wake();
    },
  };
}
