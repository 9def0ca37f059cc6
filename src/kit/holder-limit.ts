import { tryAgain } from "./fault.ts";

/** Things that are held open at this node for somebody, so many at most for one. */
export interface HolderLimit {
  /** Throws `resource_exhausted` when there are too many; the answered function gives it back, once. */
  acquire(holder: string): () => void;
  count(holder: string): number;
}

/** `what`: in the plural, as the refusal names them. */
export function openHolderLimit({ most, what }: { most: number; what: string }): HolderLimit {
  const counts = new Map<string, number>();
  return {
    acquire(holder) {
      const count = counts.get(holder) ?? 0;
      if (count >= most)
        throw tryAgain(
          "resource_exhausted",
          `too many ${what}: at most ${most} for one key or user on a node`,
          {
            code: "LIMIT_EXCEEDED",
          },
        );
      counts.set(holder, count + 1);
      let held = true;
      return () => {
        if (!held) return;
        held = false;
        const left = counts.get(holder)! - 1;
        if (left > 0) counts.set(holder, left);
        else counts.delete(holder);
      };
    },
    count: (holder) => counts.get(holder) ?? 0,
  };
}
