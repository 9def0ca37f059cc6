import type { Clock } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";
import { pollJobsMax } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import { noTracer, type Tracer } from "../../../kit/trace.ts";
import type { Job } from "../jobs/rules.ts";
import type { NewRun } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import type { QueueHint } from "../runs/wakes/due.ts";
import { openClaims } from "./claims.ts";
import { type DispatchFacts, dispatchFacts } from "./facts.ts";
import type { GiveBack } from "./give-back.ts";
import { type IdleWorker, openIdleWorkers } from "./idle-workers.ts";
import { isUnknownLane, newLimitedLanes, noteHint } from "./limited-lanes.ts";
import { openHeldPolls } from "./polls.ts";
import {
  type FunctionQueue,
  type HeldPoll,
  isAwaited,
  markStale,
  mayHaveWork,
  newFunctionQueue,
  type PollRequest,
} from "./queues.ts";
import { openReservations, type Reservation } from "./reservations.ts";
import type { UnsentJob } from "./unsent.ts";

export interface Dispatcher {
  poll(request: PollRequest): Promise<Job[]>;
  /**
   * A lease for a run born now, when a worker waits here and the lane has no older work. In a lane with a limit it is only
   * wished for: whether there is room is known under the lane's lock.
   */
  reserve(run: Pick<NewRun, "environmentId" | "functionId" | "laneId" | "actorId">): Reservation | undefined;
  /** Answers the workers that runs were delivered to: once, after the last birth of a flush. */
  answerDelivered(): void;
  /** A worker let a lease end: its held polls are answered with nothing, and it gets no job before it asks again. */
  distrust(worker: { environmentId: string; workerId: string }): void;
  /** The environment is gone: its held polls are answered with nothing. */
  forgetEnvironment(environmentId: string): void;
  /** Runs were queued or leases of limited functions ended, here or (by hint) on another node. */
  queued(lanes: readonly QueueHint[]): void;
  /** The tick of loop `workers.dispatch`: looks everywhere, whatever hints were lost. */
  lookOnce(): Promise<void>;
  /** Answers all held polls with nothing, and every later one at once; resolves once nothing is claimed or given back any more. */
  drain(): Promise<void>;
  waiting(): number;
  /** What only this node knows of its workers and lanes, as the capacity endpoints show it. */
  facts(): DispatchFacts;
}

export interface DispatcherDeps {
  back: GiveBack;
  runs: Pick<Runs, "claim" | "claimLimited" | "lookAtLanes" | "completedSteps" | "handOver">;
  clock: Clock;
  log: Log;
  ids: Ids;
  leaseMs: number;
  /** A claimed job that cannot be handed to anybody. */
  onUnsent?: (job: Job, error: UnsentJob) => void;
  /** False while this node is not sure of the time. */
  mayClaim: () => boolean;
  tracer?: Tracer;
}

/** A lane nobody has looked at for this long is looked at on the next poll. */
const lookEveryMs = 1_000;

export function openDispatcher(deps: DispatcherDeps): Dispatcher {
  const { runs, clock, ids, log, leaseMs, mayClaim, tracer = noTracer } = deps;
  const { giveBack, underWay } = deps.back;
  const queues = new Map<string, FunctionQueue>();
  let pumping: Promise<void> | undefined;
  /** Asked to pump while pumping. */
  let again = false;
  let draining = false;

  const queueOf = (environmentId: string, functionId: string): FunctionQueue => {
    const key = `${environmentId}\n${functionId}`;
    let queue = queues.get(key);
    if (!queue) {
      queue = newFunctionQueue({ environmentId, functionId }, clock.now());
      queues.set(key, queue);
    }
    return queue;
  };

  const idleWorkers = openIdleWorkers(clock, giveBack);
  const polls = openHeldPolls(idleWorkers, () => draining);
  const { finish, answerDelivered } = polls;

  function queued(list: readonly QueueHint[]): void {
    let wanted = false;
    for (const { environmentId, functionId, laneId, freed = false, queued = true } of list) {
      const queue = queues.get(`${environmentId}\n${functionId}`);
      if (!queue) continue;
      if (laneId !== undefined && queued) queue.limited ??= newLimitedLanes();
      if (laneId === undefined) markStale(queue);
      else if (!queue.limited || !noteHint(queue.limited, laneId, { queued, freed })) continue;
      wanted ||= isAwaited(queue);
    }
    if (wanted) void pump();
  }

  /** Claims as long as there is a lane to look at and a slot to fill. One claim at a time: each takes all that wait. */
  function pump(): Promise<void> {
    again = pumping !== undefined;
    // Cleared behind the assignment, always: a round that may not claim is over before it, and would look under way for ever.
    pumping ??= claimAll().finally(() => {
      pumping = undefined;
      // Asked for between the last look and here.
      if (again) void pump();
    });
    return pumping;
  }

  async function claimAll(): Promise<void> {
    try {
      while (mayClaim() && (await claims.claimOnce()));
    } catch (error) {
      again = false;
      log.warn("claim failed", { error: String(error) });
    }
  }

  /** For its worker to fetch; or handed over, when the worker has come back meanwhile. */
  function leaveFor(idle: IdleWorker, queue: FunctionQueue, job: Job): void {
    for (const poll of queue.polls) {
      // Not creditOf: what is promised at the desk is this very job.
      if (poll.worker !== idle || poll.available - poll.pending - poll.jobs.length <= 0) continue;
      poll.jobs.push(job);
      polls.delivered(poll);
      return;
    }
    if (draining) giveBack([job]);
    else idleWorkers.keepFor(idle, job);
  }

  const parts = { clock, ids, leaseMs, idleWorkers, polls, leaveFor };
  const reservations = openReservations(parts);
  const { onUnsent = (job: Job) => giveBack([job]) } = deps;
  const claims = openClaims({ ...parts, runs, log, tracer, queues, onUnsent, pump: () => void pump() });

  return {
    poll(request) {
      return new Promise<Job[]>((resolve) => {
        const polledQueues = request.functionIds.map((id) => queueOf(request.environmentId, id));
        const idle = idleWorkers.of(request);
        idle.pollCount++;
        idle.askedAt = clock.now();
        idle.functionIds = request.functionIds;
        const poll: HeldPoll = {
          ...request,
          worker: idle,
          available: Math.min(request.available, pollJobsMax),
          queues: polledQueues,
          jobs: [],
          pending: 0,
          looks: 0,
          closed: false,
          answered: false,
          answer: () => {
            idle.pollCount--;
            cancelHold();
            request.signal.removeEventListener("abort", leave);
            if (request.signal.aborted && poll.jobs.length > 0) giveBack(poll.jobs.splice(0));
            resolve(poll.jobs);
          },
        };
        const leave = () => finish(poll, true);
        request.signal.addEventListener("abort", leave, { once: true });
        const cancelHold = clock.after(request.holdMs, () => {
          // A poll that looks once is answered by its claim; should that fail, here.
          if (request.holdMs > 0 || !pumping) finish(poll, true);
        });
        if (poll.available <= 0) idle.spare = 0;
        if (poll.available <= 0 || draining || request.signal.aborted) return finish(poll, true);
        const now = clock.now();
        poll.jobs = idleWorkers.fetch(idle, { most: poll.available, functionIds: request.functionIds });
        for (const queue of polledQueues) {
          queue.polls.add(poll);
          queue.away.delete(idle);
          if (now - queue.lookedAt >= lookEveryMs) markStale(queue);
        }
        const dirty = polledQueues.some(mayHaveWork);
        // What lay at its desk goes out at once; what else there is will lie there when it comes back.
        if (poll.jobs.length > 0) {
          finish(poll, true);
          if (dirty) void pump();
        } else if (dirty) void pump().then(() => request.holdMs === 0 && finish(poll, true));
        else if (request.holdMs === 0) finish(poll, true);
      });
    },

    reserve({ environmentId, functionId, laneId, actorId }) {
      const queue = queues.get(`${environmentId}\n${functionId}`);
      if (!queue || draining || !mayClaim()) return undefined;
      const mayLease =
        laneId === null ? !queue.limited && !queue.dirty : isUnknownLane(queue.limited, laneId);
      if (!mayLease) return undefined;
      return reservations.reserve(queue, actorId);
    },

    answerDelivered,

    distrust(worker) {
      const idle = idleWorkers.of(worker);
      for (const queue of queues.values())
        for (const poll of [...queue.polls]) if (poll.worker === idle) finish(poll, true);
      idle.spare = 0;
    },

    forgetEnvironment(environmentId) {
      for (const idle of idleWorkers.all()) if (idle.environmentId === environmentId) idle.spare = 0;
      for (const [key, queue] of queues) {
        if (queue.environmentId !== environmentId) continue;
        for (const poll of [...queue.polls]) finish(poll, true);
        queues.delete(key);
      }
    },

    queued,

    async lookOnce() {
      const now = clock.now();
      idleWorkers.tidy(false);
      for (const [key, queue] of queues) {
        if (queue.polls.size > 0) markStale(queue);
        else if (now - queue.lookedAt > 60 * lookEveryMs) queues.delete(key);
      }
      // Under load a pump goes on and on; the tick must not wait for its end.
      void pump();
    },

    async drain() {
      draining = true;
      idleWorkers.tidy(true);
      for (const queue of queues.values()) for (const poll of [...queue.polls]) finish(poll, true);
      while (pumping || underWay.size > 0) await Promise.all([pumping, ...underWay]);
    },

    waiting: () => new Set([...queues.values()].flatMap((queue) => [...queue.polls])).size,
    facts: () => dispatchFacts(queues.values(), idleWorkers),
  };
}
