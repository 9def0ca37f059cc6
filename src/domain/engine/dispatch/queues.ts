import type { Clock, Instant } from "../../../kit/clock.ts";
import { WholeLooks } from "../../../kit/whole-looks.ts";
import type { Job, JobEvent } from "../jobs/rules.ts";
import type { QueueHint } from "../runs/run.ts";
import type { IdleWorker, IdleWorkers } from "./idle-workers.ts";
import { type LimitedLanes, newLimitedLanes, noteHint } from "./limited-lanes.ts";

/** What jobs may bring to a worker's credential. */
export interface JobRights {
  mayHave(secrets: readonly string[]): Promise<boolean>;
  mayRead(events: readonly JobEvent[]): boolean | Promise<boolean>;
}

/** A worker asks this node for jobs. */
export interface PollRequest {
  environmentId: string;
  workerId: string;
  functionIds: readonly string[];
  /** Free slots of the worker; the answer never has more jobs. */
  available: number;
  /** How long to wait for a first job; 0 looks once. */
  holdMs: number;
  /** The request brought reports: the worker polls again right after the answer, even after an empty one. */
  reports: boolean;
  /** Aborted when the worker went away. */
  signal: AbortSignal;
  /** What the worker's credential may have; undefined allows all. */
  rights?: JobRights | undefined;
  /** How long its leases last; the configured time when left out. */
  leaseMs?: number;
  /** The mark of its process; left out by one that does not tell itself from others of its name. */
  holder?: string | undefined;
  /** Which build of its program it is, where that is known. */
  deployment?: string | undefined;
  /** False for a worker that would take the job of a run that is compensating for any other. */
  compensates?: boolean;
}

/** A poll that is not answered yet. */
export interface HeldPoll extends PollRequest {
  worker: IdleWorker;
  queues: FunctionQueue[];
  jobs: Job[];
  /** Slots held by a claim or a reservation under way. */
  pending: number;
  /** Claims that included this poll. */
  looks: number;
  /** The answer is being prepared: no further claim or reservation may use this poll. */
  closed: boolean;
  answered: boolean;
  answer: () => void;
}

/** The queue of one function, as this node knows it. */
export interface FunctionQueue {
  environmentId: string;
  functionId: string;
  /** May hold queued runs that this node has not tried to claim. */
  dirty: boolean;
  /** The next claim skips rows that were queued before this; see `FunctionDemand.since`. */
  since: number;
  /** Runs assigned, and claims that found none. The queue with the lowest count gets slots first. */
  served: number;
  /** Whether it had work when the last claim was planned. */
  hasWork: boolean;
  /** Set while the function is known to have a concurrency limit: its lanes by concurrency key. */
  limited: LimitedLanes | undefined;
  /** Of a function that pins its runs: which workers the queue is of; null for those that do not say. */
  pin: { deployment: string | null } | undefined;
  createdAt: Instant;
  lastDispatchedAt: Instant | undefined;
  /** Says when a claim ignores `since` and looks at the whole queue. */
  wholeLooks: WholeLooks;
  lookedAt: number;
  /** Runs to ask for in the next claim; grows while claims come back full. */
  claimSize: number;
  polls: Set<HeldPoll>;
  /** Workers whose poll was just answered and that are expected back. */
  idle: Set<IdleWorker>;
}

/** One run that a claim asks for, the worker that gets it, and its lease. */
export interface ClaimSlot {
  /** Undefined for an idle worker. */
  poll: HeldPoll | undefined;
  worker: IdleWorker;
  token: string;
  hash: string;
  leaseUntil: Instant;
}

/**
 * Every run asked for costs a lease token: a first claim asks for few, and each full claim doubles the
 * number.
 */
export const claimSizeMin = 16;

/** A poll makes a queue stale that no claim has looked at for this long. */
export const lookEveryMs = 1_000;
/** Claims look at a whole queue this often, and for at most this share of the time. */
const wholeEveryMs = 2_000;
const wholeShareMax = 0.1;
/** A queue that nobody polls is forgotten after this. */
const unpolledKeptMs = 60 * lookEveryMs;

const newFunctionQueue = (environmentId: string, functionId: string, now: Instant): FunctionQueue => ({
  environmentId,
  functionId,
  dirty: true,
  since: 0,
  served: 0,
  hasWork: false,
  limited: undefined,
  pin: undefined,
  createdAt: now,
  lastDispatchedAt: undefined,
  wholeLooks: new WholeLooks({ everyMs: wholeEveryMs, shareMax: wholeShareMax }),
  lookedAt: 0,
  claimSize: claimSizeMin,
  polls: new Set(),
  idle: new Set(),
});

/** Whether there may be runs to claim. */
export const mayHaveWork = ({ dirty, limited }: FunctionQueue): boolean =>
  limited === undefined ? dirty : limited.stale || limited.ready.size > 0;

/** Whether the next claim can include the queue. A limited function's lanes must be known first. */
export const isClaimable = ({ dirty, limited }: FunctionQueue): boolean =>
  limited === undefined ? dirty : limited.ready.size > 0;

/** Whether a worker polls for its runs, or is expected back to. */
export const isAwaited = (queue: FunctionQueue): boolean => queue.polls.size + queue.idle.size > 0;

/** What this node knows of the queue may be outdated: the next claim looks again. */
export function markStale(queue: FunctionQueue): void {
  if (queue.limited) queue.limited.stale = true;
  else queue.dirty = true;
}

/** An idle worker that a run can be leased to. Drops those from `queue.idle` that did not come back. */
export function expectedWorker(queue: FunctionQueue, workers: IdleWorkers): IdleWorker | undefined {
  for (const worker of queue.idle) {
    if (workers.expects(worker)) return worker;
    queue.idle.delete(worker);
  }
  return undefined;
}

/** The queues that workers have polled on this node. */
export class FunctionQueues {
  readonly #clock: Clock;
  readonly #queues = new Map<string, FunctionQueue>();
  /** Functions that pin their runs, as the last look found: each has a queue for each deployment. */
  readonly #pinned = new Map<string, Map<string | null, FunctionQueue>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  *all(): Iterable<FunctionQueue> {
    yield* this.#queues.values();
    for (const byDeployment of this.#pinned.values()) yield* byDeployment.values();
  }

  /** Undefined when no worker has polled for the function here, or when it pins its runs. */
  find(environmentId: string, functionId: string): FunctionQueue | undefined {
    return this.#queues.get(`${environmentId}\n${functionId}`);
  }

  polledBy({ environmentId, functionIds, deployment }: PollRequest): FunctionQueue[] {
    return functionIds.map((id) => this.of(environmentId, id, deployment));
  }

  of(environmentId: string, functionId: string, deployment?: string): FunctionQueue {
    const key = `${environmentId}\n${functionId}`;
    const byDeployment = this.#pinned.get(key);
    const place = deployment ?? null;
    const known = byDeployment ? byDeployment.get(place) : this.#queues.get(key);
    if (known) return known;
    const queue = newFunctionQueue(environmentId, functionId, this.#clock.now());
    if (!byDeployment) this.#queues.set(key, queue);
    else {
      queue.limited = newLimitedLanes();
      queue.pin = { deployment: place };
      byDeployment.set(place, queue);
    }
    return queue;
  }

  /**
   * A look found that the function pins its runs, or does so no more. Its polls and idle workers go to other
   * queues, which look at their lanes anew.
   */
  repin({ environmentId, functionId }: FunctionQueue, pins: boolean): void {
    const key = `${environmentId}\n${functionId}`;
    const before = this.#ofFunction(key);
    this.#queues.delete(key);
    this.#pinned.delete(key);
    if (pins) this.#pinned.set(key, new Map());
    for (const old of before) {
      for (const poll of old.polls) {
        const queue = this.of(environmentId, functionId, poll.deployment);
        poll.queues = poll.queues.map((one) => (one === old ? queue : one));
        queue.polls.add(poll);
      }
      for (const worker of old.idle) this.of(environmentId, functionId, worker.deployment).idle.add(worker);
      old.polls.clear();
      old.idle.clear();
    }
  }

  #ofFunction(key: string): FunctionQueue[] {
    const plain = this.#queues.get(key);
    return [...(plain ? [plain] : []), ...(this.#pinned.get(key)?.values() ?? [])];
  }

  /** Adds the poll to its queues. Returns whether one of them may have work. */
  add(poll: HeldPoll): boolean {
    const now = this.#clock.now();
    let wanted = false;
    for (const queue of poll.queues) {
      queue.polls.add(poll);
      queue.idle.delete(poll.worker);
      // Hints of queued runs may be lost.
      if (now - queue.lookedAt >= lookEveryMs) markStale(queue);
      wanted ||= mayHaveWork(queue);
    }
    return wanted;
  }

  /**
   * A run was queued (`queued`) or a limited lease ended (`freed`). Returns whether a worker waits for it.
   */
  noteHint({ environmentId, functionId, laneId, freed = false, queued = true }: QueueHint): boolean {
    let isAwaitedByOne = false;
    for (const queue of this.#ofFunction(`${environmentId}\n${functionId}`)) {
      if (laneId !== undefined && queued) queue.limited ??= newLimitedLanes();
      if (laneId === undefined) markStale(queue);
      else if (!queue.limited || !noteHint(queue.limited, laneId, { queued, freed })) continue;
      isAwaitedByOne ||= isAwaited(queue);
    }
    return isAwaitedByOne;
  }

  /** Marks polled queues as stale, so that a lost hint delays a run by one tick; forgets the others. */
  tidy(): void {
    tidyQueues(this.#queues, this.#clock.now());
    for (const [key, byDeployment] of this.#pinned) {
      tidyQueues(byDeployment, this.#clock.now());
      if (byDeployment.size === 0) this.#pinned.delete(key);
    }
  }

  /** Each poll once, even if it waits for several queues. */
  polls(): Set<HeldPoll> {
    const polls = new Set<HeldPoll>();
    for (const queue of this.all()) for (const poll of queue.polls) polls.add(poll);
    return polls;
  }

  /** Returns the polls that were held for the environment. */
  forgetEnvironment(environmentId: string): Set<HeldPoll> {
    const polls = new Set<HeldPoll>();
    for (const queue of [...this.all()]) {
      if (queue.environmentId !== environmentId) continue;
      for (const poll of queue.polls) polls.add(poll);
      this.#queues.delete(`${environmentId}\n${queue.functionId}`);
      this.#pinned.delete(`${environmentId}\n${queue.functionId}`);
    }
    return polls;
  }
}

function tidyQueues<Key>(queues: Map<Key, FunctionQueue>, now: Instant): void {
  for (const [key, queue] of queues) {
    if (queue.polls.size > 0) markStale(queue);
    else if (now - queue.lookedAt > unpolledKeptMs) queues.delete(key);
  }
}
