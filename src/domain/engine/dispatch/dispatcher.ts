import type { Instant } from "../../../kit/clock.ts";
import type { Log } from "../../../kit/log.ts";
import { noTracer, type Tracer } from "../../../kit/trace.ts";
import type { Basics } from "../../../store/store.ts";
import { type Job, leaseHashOf } from "../jobs/rules.ts";
import type { FoundLease } from "../runs/execution/leases.ts";
import type { NewRun, QueueHint } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import { Claims } from "./claims.ts";
import { type IdleWorker, type IdleWorkers, openIdleWorkers } from "./idle-workers.ts";
import { isUnknownLane } from "./limited-lanes.ts";
import { creditOf, HeldPolls } from "./polls.ts";
import { type FunctionQueue, FunctionQueues, type HeldPoll, type PollRequest } from "./queues.ts";
import { openReservations } from "./reservations.ts";
import type { UnsentJob } from "./unsent.ts";

export interface GiveBackDeps {
  runs: Pick<Runs, "release">;
  log: Log;
  /** The queues of released jobs have work again. */
  onQueued: (queues: readonly { environmentId: string; functionId: string }[]) => void;
}

export type GiveBack = ReturnType<typeof openGiveBack>;

/**
 * Returns jobs that no worker has started to their queues, without spending an attempt. If a release fails,
 * the run waits until its lease ends.
 */
export function openGiveBack({ runs, log, onQueued }: GiveBackDeps) {
  const underWay = new Set<Promise<void>>();
  function release(lease: FoundLease): void {
    const released = runs
      .release(lease)
      .then(() => onQueued([lease]))
      .catch((error: unknown) => log.warn("job.not_given_back", { runId: lease.runId, error }))
      .finally(() => underWay.delete(released));
    underWay.add(released);
  }

  return {
    /** Releases the leases at once; `underWay` holds the releases until they are over. */
    giveBack(jobs: readonly Job[]) {
      for (const job of jobs) release({ ...job, leaseHash: leaseHashOf(job.leaseToken) });
    },
    giveBackLeases(leases: readonly FoundLease[]) {
      for (const lease of leases) release(lease);
    },
    /** Releases that are not committed yet. */
    underWay,
  };
}

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

function dispatchFacts(queues: Iterable<FunctionQueue>, idleWorkers: IdleWorkers): DispatchFacts {
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

interface PumpOptions {
  /** One claim for every poll and idle worker; false when nothing was left to claim. */
  claimOnce: () => Promise<boolean>;
  /** False while this node is not sure of the time. */
  mayClaim: () => boolean;
  log: Log;
}

/**
 * Claims until nothing is left. One claim at a time: each serves every poll, and two would ask for the same
 * runs.
 */
class Pump {
  readonly #options: PumpOptions;
  #running: Promise<void> | undefined;
  /** `run` was called while a claim was under way. */
  #again = false;

  constructor(options: PumpOptions) {
    this.#options = options;
  }

  /** The round under way; undefined while nothing is claimed. */
  get running(): Promise<void> | undefined {
    return this.#running;
  }

  /** Resolves with the round under way, or with a new one. */
  run(): Promise<void> {
    this.#again = this.#running !== undefined;
    // Reset in `finally`, behind the assignment. When `mayClaim` is false, `#claimAll` ends before `#running`
    // is assigned: a reset inside it would be overwritten, and no later call would ever claim.
    this.#running ??= this.#claimAll().finally(() => {
      this.#running = undefined;
      // `run` was called after the last claim had looked.
      if (this.#again) void this.run();
    });
    return this.#running;
  }

  async #claimAll(): Promise<void> {
    const { claimOnce, mayClaim, log } = this.#options;
    try {
      while (mayClaim() && (await claimOnce()));
    } catch (error) {
      // Mostly the database is away. The next tick of `workers.dispatch` tries again.
      this.#again = false;
      log.warn("dispatch.claim_failed", { error });
    }
  }
}

export type Dispatcher = ReturnType<typeof openDispatcher>;

export interface DispatcherDeps extends Basics<"clock" | "ids" | "log"> {
  back: GiveBack;
  runs: Pick<
    Runs,
    "claim" | "claimLimited" | "lookAtLanes" | "completedSteps" | "completedBytes" | "handOver"
  >;
  /** Of workers that ask for no other. */
  leaseMs: number;
  /** Called with a claimed job that cannot be sent to any worker. Without it the job returns to its queue. */
  onUnsent?: (job: Job, error: UnsentJob) => void;
  /** False while this node is not sure of the time. */
  mayClaim: () => boolean;
  tracer?: Tracer;
}

/** Matches queued runs with the workers that poll this node. A restart loses nothing: leases are stored. */
export function openDispatcher(deps: DispatcherDeps) {
  const { runs, clock, ids, log, leaseMs, mayClaim, tracer = noTracer } = deps;
  const { giveBack, underWay } = deps.back;
  let draining = false;
  const queues = new FunctionQueues(clock);
  const idleWorkers = openIdleWorkers(clock, giveBack);
  const polls = new HeldPolls({
    clock,
    idleWorkers,
    giveBack,
    isDraining: () => draining,
    isClaiming: () => pump.running !== undefined,
  });
  const parts = { clock, ids, idleWorkers, polls };
  const reservations = openReservations(parts);
  const claims = new Claims({
    ...parts,
    runs,
    log,
    tracer,
    queues,
    onUnsent: deps.onUnsent ?? ((job) => giveBack([job])),
    claimAgain: () => void pump.run(),
  });
  const pump = new Pump({ claimOnce: () => claims.claimOnce(), mayClaim, log });

  /** Answers the poll now, or claims for it. */
  function serve(request: PollRequest, resolve: (jobs: Job[]) => void): void {
    const worker = idleWorkers.of(request);
    worker.askedAt = clock.now();
    worker.functionIds = request.functionIds;
    worker.leaseMs = request.leaseMs ?? leaseMs;
    worker.deployment = request.deployment;
    const polledQueues = queues.polledBy(request);
    const poll = polls.open(request, worker, polledQueues, resolve);
    if (poll.available <= 0) worker.spare = 0;
    if (poll.available <= 0 || draining || request.signal.aborted) {
      polls.finish(poll, true);
      return;
    }
    poll.jobs = idleWorkers.fetch(worker, { most: poll.available, functionIds: request.functionIds });
    const mayFind = queues.add(poll);
    // Kept jobs go out without waiting for the claim, whose jobs are kept for the worker's next poll.
    if (poll.jobs.length > 0) polls.finish(poll, true);
    const claimed = mayFind ? pump.run() : undefined;
    if (request.holdMs > 0 || poll.answered) return;
    if (claimed) void claimed.then(() => polls.finish(poll, true));
    else polls.finish(poll, true);
  }

  return {
    /** Resolves with jobs leased to the worker, or with none once the hold has ended. */
    poll: (request: PollRequest) => new Promise<Job[]>((resolve) => serve(request, resolve)),

    /**
     * A lease for a run that the caller is about to create, when a worker has a free slot and no older run is
     * queued. For a function with a concurrency limit the lease is only a request: the transaction that
     * creates the run decides under the lane's lock.
     */
    reserve(run: Pick<NewRun, "environmentId" | "functionId" | "laneId" | "actorId">) {
      const { environmentId, functionId, laneId, actorId } = run;
      const queue = queues.find(environmentId, functionId);
      if (!queue || draining || !mayClaim()) return undefined;
      const noneQueued =
        laneId === null ? !queue.limited && !queue.dirty : isUnknownLane(queue.limited, laneId);
      return noneQueued ? reservations.reserve(queue, actorId) : undefined;
    },

    /** Answers the polls that reservations were delivered to. Called once, after the last run of a flush. */
    answerDelivered: () => polls.answerDelivered(),

    /**
     * The worker let a lease end: its polls are answered as they are, and it gets no job before its next
     * poll.
     */
    distrust({ environmentId, workerId }: { environmentId: string; workerId: string }) {
      const isDistrusted = (one: { environmentId: string; workerId: string }) =>
        one.workerId === workerId && one.environmentId === environmentId;
      for (const poll of queues.polls()) if (isDistrusted(poll)) polls.finish(poll, true);
      for (const worker of idleWorkers.all()) if (isDistrusted(worker)) worker.spare = 0;
    },

    /** The environment is gone: its polls are answered, and no run is leased to its workers. */
    forgetEnvironment(environmentId: string) {
      for (const worker of idleWorkers.all()) if (worker.environmentId === environmentId) worker.spare = 0;
      for (const poll of queues.forgetEnvironment(environmentId)) polls.finish(poll, true);
    },

    /** Runs were queued or leases of limited functions ended, here or (by hint) on another node. */
    queued(hints: readonly QueueHint[]) {
      let wanted = false;
      for (const hint of hints) if (queues.noteHint(hint)) wanted = true;
      if (wanted) void pump.run();
    },

    /**
     * The tick of loop `workers.dispatch`: claims for every poll, so that a lost hint delays a run by one
     * tick.
     */
    async lookOnce() {
      idleWorkers.tidy(false);
      queues.tidy();
      // Not awaited: under load the pump claims without a pause, and this tick would never end.
      void pump.run();
    },

    /** Answers all polls, and every later one at once. Resolves when no claim and no release is under way. */
    async drain() {
      draining = true;
      idleWorkers.tidy(true);
      for (const poll of queues.polls()) polls.finish(poll, true);
      while (pump.running || underWay.size > 0) await Promise.all([pump.running, ...underWay]);
    },

    /** How many polls are held. */
    waiting: () => queues.polls().size,
    /** What only this node knows of its workers and queues, as the capacity endpoints show it. */
    facts: () => dispatchFacts(queues.all(), idleWorkers),
  };
}
