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
export const patienceMs = (leaseMs: number): number => leaseMs * 0.3;
/** Of a job that arrives: the server may end a lease of that age when a poll of this process broke. */
export const youngMs = (leaseMs: number): number => leaseMs * 0.15;
