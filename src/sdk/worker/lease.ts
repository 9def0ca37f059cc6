/** What a worker asks of its leases, in every request that gets or renews some. */
export interface LeaseAsking {
  lease_ms: number;
  /** Tells this process from others of the worker's name. */
  instance: string;
}

/** Lets a run whose worker died continue within twelve seconds; leases are renewed every quarter of it. */
const renewedByThreadMs = 10_000;
/** Where a handler that computes holds up the renewals. */
const renewedByLoopMs = 30_000;

export const newLeaseAsking = (): LeaseAsking => ({
  lease_ms: renewedByLoopMs,
  instance: crypto.randomUUID(),
});

export function askFor(asking: LeaseAsking, { hasThread }: { hasThread: boolean }): void {
  asking.lease_ms = hasThread ? renewedByThreadMs : renewedByLoopMs;
}

/** Of a lease: the time between two renewals. */
export const renewalMs = (leaseMs: number): number => leaseMs / 4;
/** The thread renews what the loop, which may be a moment late, has not. */
export const loopSilenceMs = (leaseMs: number): number => leaseMs * 0.26;
/** Where there is a sign that the process is gone, the server waits for a renewal for this long. */
const patienceMs = (leaseMs: number): number => leaseMs * 0.3;
/** Of a job that arrives: the server may end a lease of that age when a poll of this process broke. */
export const youngMs = (leaseMs: number): number => leaseMs * 0.15;

/** An instant on two clocks: the monotonic one may stop while the machine sleeps, the other may be set. */
export interface Stamp {
  monotonicMs: number;
  wallMs: number;
}

export const stamp = (): Stamp => ({ monotonicMs: performance.now(), wallMs: Date.now() });

const msBetween = (since: Stamp, until: Stamp): number =>
  Math.max(until.monotonicMs - since.monotonicMs, until.wallMs - since.wallMs);

/**
 * What a worker knows of its job's lease. While its process was frozen, or an answer was late, another worker
 * may have taken the job: when the lease could be over, the worker asks the server before a step begins.
 */
export type Lease = ReturnType<typeof createLease>;

/** Where every answer is late, a step begins all the same: a server that is so slow ends leases as slowly. */
const askTriesMax = 2;

const longAgo: Stamp = { monotonicMs: Number.NEGATIVE_INFINITY, wallMs: Number.NEGATIVE_INFINITY };

export interface LeaseTimes {
  /** How long the lease lasts from its request; undefined if the server does not say: it counts as held. */
  leftMs: number | undefined;
  /** How long one lasts that is renewed; undefined where that is not known. */
  leaseMs?: number | undefined;
  /** The lease may have been ended on the job's way here. */
  isDoubted?: boolean;
}

export function createLease(
  askedAt: Stamp,
  { leftMs, leaseMs, isDoubted = false }: LeaseTimes,
  /** Throws SvcError when the job is lost. */
  confirm: () => Promise<void>,
) {
  /** How long the server waits for a renewal when this process seems to be gone. */
  const patience = leaseMs === undefined ? Number.POSITIVE_INFINITY : patienceMs(leaseMs);
  let lastsMs = leftMs;
  let since = askedAt;
  /** When the server last got something from this process, or sent it the job. */
  let seen = stamp();
  /** When the way to the server first broke since the lease was sure, and when it broke last. */
  let doubt = isDoubted ? { first: longAgo, last: longAgo } : undefined;
  let asking: Promise<void> | undefined;
  const holds = () => {
    if (lastsMs === undefined) return true;
    const now = stamp();
    if (doubt || msBetween(since, now) >= lastsMs) return false;
    return msBetween(seen, now) < patience;
  };
  const note = (at: Stamp) => {
    since = at;
    seen = at;
    doubt = undefined;
    lastsMs = leaseMs ?? leftMs;
  };
  /** Whether a renewal that was sent at `at` is answered now before any node could end the lease. */
  const endsDoubt = ({ first, last }: NonNullable<typeof doubt>, at: Stamp) =>
    leaseMs !== undefined && msBetween(last, at) >= 0 && msBetween(first, stamp()) < youngMs(leaseMs);

  async function ask(): Promise<void> {
    // What comes late was said of a lease that may be over by now.
    for (let tries = 1; tries === 1 || (tries <= askTriesMax && !holds()); tries++) {
      const at = stamp();
      await confirm();
      note(at);
    }
  }

  return {
    /** Undefined while the lease is held for sure; else resolves when confirmed, and rejects when lost. */
    sure(): Promise<void> | undefined {
      if (holds()) return undefined;
      asking ??= ask().finally(() => {
        asking = undefined;
      });
      return asking;
    },
    /** The server has answered a renewal that was sent at `askedAt`. */
    renewed(at: Stamp) {
      // Answered after the lease could have ended, a renewal may have come too late for this job.
      if (doubt ? endsDoubt(doubt, at) : holds()) note(at);
    },
    /** A poll or the stream broke: the server may take this process for dead, and end unrenewed leases. */
    doubt() {
      const last = stamp();
      doubt = { first: doubt?.first ?? last, last };
    },
  };
}
