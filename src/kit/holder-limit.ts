import { tryAgain } from "./fault.ts";

/**
 * `what` is the plural that the refusal names: `sockets`; `whose` says what a holder is. Of `all`, a holder
 * never has more than three times what is left to others.
 */
export function openHolderLimit({
  most,
  what,
  whose = "key or user",
  all = Number.POSITIVE_INFINITY,
}: {
  most: number;
  what: string;
  whose?: string;
  all?: number;
}) {
  const counts = new Map<string, number>();
  let left = all;
  const free = (holder: string): number => {
    const own = counts.get(holder) ?? 0;
    return Math.min(most - own, Math.ceil((3 * left - own) / 4));
  };
  return {
    /** What the holder may take now; may be below zero. */
    free,
    /** Throws `resource_exhausted` at the limit; the returned function gives the place back, once. */
    acquire(holder: string, count = 1): () => void {
      if (free(holder) < count)
        throw tryAgain("resource_exhausted", `too many ${what}: at most ${most} for one ${whose} on a node`, {
          code: "LIMIT_EXCEEDED",
        });
      left -= count;
      counts.set(holder, (counts.get(holder) ?? 0) + count);
      let held = true;
      return () => {
        if (!held) return;
        held = false;
        left += count;
        const own = counts.get(holder)! - count;
        if (own > 0) counts.set(holder, own);
        else counts.delete(holder);
      };
    },
    count: (holder: string) => counts.get(holder) ?? 0,
  };
}

/** Who asks, and whose it is: of `all` a tenant has one share, however many keys it makes. */
export interface OwnedHolder {
  id: string;
  orgId: string;
}

/** The same with `most` a holder, and of `all` a share an organization. */
export function openOrgLimit({
  all,
  ...own
}: Omit<Parameters<typeof openHolderLimit>[0], "all"> & { all: number }) {
  const holders = openHolderLimit(own);
  const orgs = openHolderLimit({ most: all, all, what: own.what, whose: "organization" });
  return {
    acquire({ id, orgId }: OwnedHolder, count = 1): () => void {
      const leave = holders.acquire(id, count);
      try {
        const leaveAll = orgs.acquire(orgId, count);
        return () => {
          leave();
          leaveAll();
        };
      } catch (error) {
        leave();
        throw error;
      }
    },
  };
}
