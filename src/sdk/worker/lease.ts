/** An instant on two clocks: the monotonic one may stop while the machine sleeps, the wall clock may be set. */
export interface Stamp {
  monotonicMs: number;
  wallMs: number;
}

export const stamp = (): Stamp => ({ monotonicMs: performance.now(), wallMs: Date.now() });

const msBetween = (since: Stamp, until: Stamp): number =>
  Math.max(until.monotonicMs - since.monotonicMs, until.wallMs - since.wallMs);

/**
 * What a worker knows of the lease of its job. While its process was frozen, or an answer was late, another worker may have
 * taken the job and done its steps: when the lease could be over, the worker asks the server before a step begins.
 */
export interface Lease {
  /** Undefined while the lease cannot be over; otherwise resolves when the server confirms it, rejects when the job is lost. */
  sure(): Promise<void> | undefined;
  /** The server has answered a renewal that was sent at `askedAt`. */
  renewed(askedAt: Stamp): void;
}

/** Where every answer is late, a step begins all the same: a server that is so slow ends leases as slowly. */
const askTriesMax = 5;

export function createLease(
  askedAt: Stamp,
  /** Undefined from servers that do not tell it: the lease then counts as held. */
  leaseMs: number | undefined,
  /** Throws SvcError when the job is lost. */
  confirm: () => Promise<void>,
  /** How long the server waits for a renewal when this process seems to be gone. */
  patienceMs = Number.POSITIVE_INFINITY,
  /** The lease was made just now: otherwise it may have been ended on the job's way here. */
  isYoung = true,
): Lease {
  let since = askedAt;
  /** When the server has last heard of this process, or sent it the job; undefined before it is asked about an old one. */
  let seen = isYoung ? stamp() : undefined;
  let asking: Promise<void> | undefined;
  const holds = () => {
    if (leaseMs === undefined) return true;
    const now = stamp();
    if (msBetween(since, now) >= leaseMs) return false;
    return seen !== undefined && msBetween(seen, now) < patienceMs;
  };
  const note = (at: Stamp) => {
    since = at;
    seen = at;
  };

  async function ask(): Promise<void> {
    // What comes late was said of a lease that may be over by now.
    for (let tries = 1; tries === 1 || (tries <= askTriesMax && !holds()); tries++) {
      const at = stamp();
      await confirm();
      note(at);
    }
  }

  return {
    sure() {
      if (holds()) return undefined;
      asking ??= ask().finally(() => {
        asking = undefined;
      });
      return asking;
    },
    renewed(at) {
      // Answered after the lease could have ended, a renewal may have come too late for this job.
      if (holds()) note(at);
    },
  };
}
