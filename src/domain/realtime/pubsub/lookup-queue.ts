import type { Clock } from "../../../kit/clock.ts";
import { endsWaitingMax, lookEveryMs } from "./limits.ts";

export interface LookupQueueOptions<Item> {
  clock: Pick<Clock, "elapsed" | "sleep">;
  /** Items of one look. */
  sliceMax: number;
  look: (items: readonly Item[]) => Promise<void>;
  /** The items of the failed look are dropped, because frames are hints. */
  onFailed: (error: unknown) => void;
}

/**
 * Looks up the rows that frames are made of. One look runs at a time; the next takes what came meanwhile,
 * once a key. A look begins at once when there was none within `lookEveryMs`; otherwise a busy node would ask
 * the store for nearly each run by itself.
 */
export function openLookupQueue<Item>({ clock, sliceMax, look, onFailed }: LookupQueueOptions<Item>) {
  const waiting = new Map<string, Item>();
  let looking = false;
  let beganAt = Number.NEGATIVE_INFINITY;

  async function lookAll(): Promise<void> {
    looking = true;
    while (waiting.size > 0) {
      const restMs = beganAt + lookEveryMs - clock.elapsed();
      if (restMs > 0 && waiting.size < sliceMax) await clock.sleep(restMs);
      beganAt = clock.elapsed();
      const slice = [...waiting.entries().take(sliceMax)];
      for (const [key] of slice) waiting.delete(key);
      await look(slice.map(([, item]) => item)).catch(onFailed);
    }
    looking = false;
  }

  return (items: Iterable<readonly [key: string, item: Item]>): void => {
    for (const [key, item] of items) if (waiting.size < endsWaitingMax) waiting.set(key, item);
    if (!looking && waiting.size > 0) void lookAll();
  };
}
