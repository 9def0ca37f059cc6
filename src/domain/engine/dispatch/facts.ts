import type { Instant } from "../../../kit/clock.ts";
import type { IdleWorker, IdleWorkers } from "./idle-workers.ts";
import { creditOf } from "./polls.ts";
import type { FunctionQueue, HeldPoll } from "./queues.ts";

/** A worker as one node's dispatcher has it. */
export interface SessionFacts {
  environmentId: string;
  workerId: string;
  functionIds: readonly string[];
  createdAt: Instant;
  askedAt: Instant;
  /** Slots that could take a run now. */
  free: number;
  /** Slots held by a claim or a reservation under way, or by a job that is kept for the next poll. */
  reserved: number;
}

/** The queue of one function as one node's dispatcher has it. */
export interface BucketFacts {
  environmentId: string;
  functionId: string;
  createdAt: Instant;
  lastDispatchedAt: Instant | undefined;
  /** Leased runs whose jobs are kept for the next poll of an idle worker. */
  reserved: number;
}

export interface DispatchFacts {
  sessions: SessionFacts[];
  buckets: BucketFacts[];
}

export function dispatchFacts(queues: Iterable<FunctionQueue>, idleWorkers: IdleWorkers): DispatchFacts {
  const known = Array.from(queues);
  const pollsOf = new Map<IdleWorker, Set<HeldPoll>>();
  for (const queue of known)
    for (const poll of queue.polls)
      pollsOf.set(poll.worker, (pollsOf.get(poll.worker) ?? new Set()).add(poll));
  const unfetched = new Map<string, number>();
  const sessions = Array.from(idleWorkers.all(), (worker): SessionFacts => {
    const polls = [...(pollsOf.get(worker) ?? [])];
    for (const { functionId } of worker.unfetched) {
      const key = `${worker.environmentId}\n${functionId}`;
      unfetched.set(key, (unfetched.get(key) ?? 0) + 1);
    }
    return {
      environmentId: worker.environmentId,
      workerId: worker.workerId,
      functionIds: worker.functionIds,
      createdAt: worker.createdAt,
      askedAt: worker.askedAt,
      free:
        polls.reduce((sum, poll) => sum + Math.max(0, creditOf(poll)), 0) +
        (idleWorkers.expects(worker) ? idleWorkers.creditOf(worker) : 0),
      reserved: worker.pending + worker.unfetched.length + polls.reduce((sum, poll) => sum + poll.pending, 0),
    };
  });
  return {
    sessions,
    buckets: known.map(({ environmentId, functionId, createdAt, lastDispatchedAt }) => {
      const key = `${environmentId}\n${functionId}`;
      const reserved = unfetched.get(key) ?? 0;
      // A function that pins its runs has several queues.
      unfetched.delete(key);
      return { environmentId, functionId, createdAt, lastDispatchedAt, reserved };
    }),
  };
}
