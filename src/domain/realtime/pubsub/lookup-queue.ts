import { endsWaitingMax } from "../../../kit/limits.ts";

export interface LookupQueueOptions<Item> {
  /** Looked up at once. */
  sliceMax: number;
  look: (items: readonly Item[]) => Promise<void>;
  /** What gathered is lost: frames are hints. */
  onFailed: (error: unknown) => void;
}

/** Looks up what frames are about: one look at a time takes what gathered meanwhile, each under its key once. */
export function openLookupQueue<Item>({ sliceMax, look, onFailed }: LookupQueueOptions<Item>) {
  const waiting = new Map<string, Item>();
  let looking = false;

  async function lookAll(): Promise<void> {
    looking = true;
    try {
      while (waiting.size > 0) {
        const slice = [...waiting.entries().take(sliceMax)];
        for (const [key] of slice) waiting.delete(key);
        await look(slice.map(([, item]) => item));
      }
    } catch (error) {
      onFailed(error);
    } finally {
      looking = false;
    }
  }

  return (items: Iterable<readonly [key: string, item: Item]>): void => {
    for (const [key, item] of items) if (waiting.size < endsWaitingMax) waiting.set(key, item);
    if (!looking && waiting.size > 0) void lookAll();
  };
}
