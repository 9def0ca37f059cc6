import type { Instant } from "../../../kit/clock.ts";
import type { Desk, Desks } from "./desks.ts";
import type { Lane, Waiter } from "./lanes.ts";
import { creditOf } from "./waiters.ts";

/** A worker as one node's dispatcher has it. */
export interface SessionFacts {
  environmentId: string;
  workerId: string;
  functionIds: readonly string[];
  createdAt: Instant;
  askedAt: Instant;
  /** Places for one job each: free, and promised to a claim or a birth under way or to a job that lies at the desk. */
  free: number;
  reserved: number;
}

/** The queue of one function as one node's dispatcher has it. */
export interface BucketFacts {
  environmentId: string;
  functionId: string;
  createdAt: Instant;
  lastDispatchedAt: Instant | undefined;
  /** Runs that are leased and wait at a desk to be fetched. */
  reserved: number;
}

export interface DispatchFacts {
  sessions: SessionFacts[];
  buckets: BucketFacts[];
}

export function dispatchFacts(lanes: Iterable<Lane>, desks: Desks): DispatchFacts {
  const known = Array.from(lanes);
  const waiters = new Map<Desk, Set<Waiter>>();
  for (const lane of known)
    for (const waiter of lane.waiters)
      waiters.set(waiter.desk, (waiters.get(waiter.desk) ?? new Set()).add(waiter));
  const lying = new Map<string, number>();
  const sessions = Array.from(desks.all(), (desk): SessionFacts => {
    const asking = [...(waiters.get(desk) ?? [])];
    for (const { functionId } of desk.box) {
      const key = `${desk.environmentId}\n${functionId}`;
      lying.set(key, (lying.get(key) ?? 0) + 1);
    }
    return {
      environmentId: desk.environmentId,
      workerId: desk.workerId,
      functionIds: desk.functionIds,
      createdAt: desk.createdAt,
      askedAt: desk.askedAt,
      free:
        asking.reduce((sum, waiter) => sum + Math.max(0, creditOf(waiter)), 0) +
        (desks.expects(desk) ? desks.creditOf(desk) : 0),
      reserved: desk.pending + desk.box.length + asking.reduce((sum, waiter) => sum + waiter.pending, 0),
    };
  });
  return {
    sessions,
    buckets: known.map(({ environmentId, functionId, createdAt, lastDispatchedAt }) => ({
      environmentId,
      functionId,
      createdAt,
      lastDispatchedAt,
      reserved: lying.get(`${environmentId}\n${functionId}`) ?? 0,
    })),
  };
}
