import { tryAgain } from "./fault.ts";

/** Limits how many things one holder has open at this node. */
export type HolderLimit = ReturnType<typeof openHolderLimit>;

/** `what` is the plural that the refusal names: `sockets`; `whose` says what a holder is. */
export function openHolderLimit({
  most,
  what,
  whose = "key or user",
}: {
  most: number;
  what: string;
  whose?: string;
}) {
  const counts = new Map<string, number>();
  return {
    /** Throws `resource_exhausted` at the limit; the returned function gives the place back, once. */
    acquire(holder: string): () => void {
      const count = counts.get(holder) ?? 0;
      if (count >= most)
        throw tryAgain("resource_exhausted", `too many ${what}: at most ${most} for one ${whose} on a node`, {
          code: "LIMIT_EXCEEDED",
        });
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
    count: (holder: string) => counts.get(holder) ?? 0,
  };
}
