import type { Instant } from "../../../kit/clock.ts";
import type { Job } from "../jobs/rules.ts";
import type { IdleWorker, IdleWorkers } from "./idle-workers.ts";
import type { LimitedLanes } from "./limited-lanes.ts";

/** A worker that asks this node for jobs. */
export interface PollRequest {
  environmentId: string;
  workerId: string;
  functionIds: readonly string[];
  /** Free slots; never handed more. */
  available: number;
  /** How long to wait for a first job; 0 looks once. */
  holdMs: number;
  /** The request brought reports: its sender asks again right after the answer, whatever it holds. */
  reports: boolean;
  /** The worker went away. */
  signal: AbortSignal;
  /** Whether its credential may have these secrets; left out: it may have all. */
  mayHave?: ((secrets: readonly string[]) => Promise<boolean>) | undefined;
}

export interface HeldPoll extends PollRequest {
  worker: IdleWorker;
  queues: FunctionQueue[];
  jobs: Job[];
  /** Slots that are promised to a claim or a birth under way. */
  pending: number;
  /** Claims that looked while it waited. */
  looks: number;
  /** Takes no further promise: it is being answered. */
  closed: boolean;
  answered: boolean;
  answer: () => void;
}

/** The queue of one function, as this node knows it. */
export interface FunctionQueue {
  environmentId: string;
  functionId: string;
  /** May hold queued runs that nobody here has tried to claim. */
  dirty: boolean;
  /** Rows before this are taken; see LaneDemand.since. */
  since: number;
  /** Runs handed out, and looks that found none: who was served least is first. */
  served: number;
  /** Whether it had work when a claim was last planned. */
  hasWork: boolean;
  /** Set while the function is known to have a limit: its lanes by concurrency key. */
  limited: LimitedLanes | undefined;
  createdAt: Instant;
  lastDispatchedAt: Instant | undefined;
  /** When the lane was last looked at from its very start. */
  wholeAt: number;
  lookedAt: number;
  /** Runs to ask for in the next claim; grows while claims come back full. */
  claimSize: number;
  polls: Set<HeldPoll>;
  /** Desks of workers that are on their way back. */
  away: Set<IdleWorker>;
}

/** A slot of a claim: where its run goes. */
export interface ClaimSlot {
  /** Undefined for a worker on its way back. */
  poll: HeldPoll | undefined;
  worker: IdleWorker;
  token: string;
  hash: string;
}

/** Every run asked for costs a token: a claim begins with so many, and doubles while there are more. */
export const claimSizeMin = 16;

export const newFunctionQueue = (
  { environmentId, functionId }: { environmentId: string; functionId: string },
  now: Instant,
): FunctionQueue => ({
  environmentId,
  functionId,
  dirty: true,
  since: 0,
  served: 0,
  hasWork: false,
  limited: undefined,
  createdAt: now,
  lastDispatchedAt: undefined,
  wholeAt: 0,
  lookedAt: 0,
  claimSize: claimSizeMin,
  polls: new Set(),
  away: new Set(),
});

/** Whether there may be runs to claim. */
export const mayHaveWork = ({ dirty, limited }: FunctionQueue): boolean =>
  limited === undefined ? dirty : limited.stale || limited.ready.size > 0;

/** Whether the next claim can ask for it: a limited function's lanes must be known. */
export const isClaimable = ({ dirty, limited }: FunctionQueue): boolean =>
  limited === undefined ? dirty : limited.ready.size > 0;

/** Whether a worker waits for its runs, or is about to. */
export const isAwaited = (queue: FunctionQueue): boolean => queue.polls.size + queue.away.size > 0;

/** Whatever is known of it may be old. */
export function markStale(queue: FunctionQueue): void {
  if (queue.limited) queue.limited.stale = true;
  else queue.dirty = true;
}

/** A worker that was answered a moment ago and will ask again: runs may wait for it at its desk. */
export function expectedWorker(queue: FunctionQueue, workers: IdleWorkers): IdleWorker | undefined {
  for (const worker of queue.away) {
    if (workers.expects(worker)) return worker;
    queue.away.delete(worker);
  }
  return undefined;
}
