/** An instant on both clocks: one that the machine's sleep may stop, one that somebody may set. */
export interface Stamp {
  monotonicMs: number;
  wallMs: number;
}

export const stamp = (): Stamp => ({ monotonicMs: performance.now(), wallMs: Date.now() });

const msSince = (since: Stamp): number =>
  Math.max(performance.now() - since.monotonicMs, Date.now() - since.wallMs);

/**
 * What a worker knows of the lease of its job. A process that was frozen, or an answer that came late, may find the job with
 * another worker, and its steps done: when the lease could be over by now, the server is asked before anything begins.
 */
export interface Lease {
  /** Undefined while the lease surely holds; otherwise resolves when the server says so, rejects when the job is lost. */
  sure(): Promise<void> | undefined;
  /** A renewal that was asked for then has been answered. */
  renewed(askedAt: Stamp): void;
}

export function createLease(
  askedAt: Stamp,
  /** Milliseconds; undefined from servers that do not tell: nothing is asked then. */
  leaseMs: number | undefined,
  /** Throws SvcError when the job is lost. */
  confirm: () => Promise<void>,
): Lease {
  let since = askedAt;
  let asking: Promise<void> | undefined;
  const holds = () => leaseMs === undefined || msSince(since) < leaseMs;

  async function ask(): Promise<void> {
    const at = stamp();
    await confirm();
    since = at;
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
      if (holds()) since = at;
    },
  };
}
