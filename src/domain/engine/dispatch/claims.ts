import type { Instant } from "../../../kit/clock.ts";
import { laneLookMax, pollJobsMax } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import type { Tracer } from "../../../kit/trace.ts";
import { type Basics, isOfItem } from "../../../store/store.ts";
import { type Job, jobOfClaim } from "../jobs/rules.ts";
import type { ClaimedRow } from "../runs/execution/claim.ts";
import type { LaneFound } from "../runs/execution/claim-limited.ts";
import { compensatingJob } from "../runs/rules.ts";
import type { CompletedStep } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import type { IdleWorkers } from "./idle-workers.ts";
import {
  type LimitedLanes,
  newLimitedLanes,
  noteClaimed,
  noteClaimFailed,
  noteLook,
} from "./limited-lanes.ts";
import { assignToActors, type ClaimPlan, type PlannedQueue, planClaim } from "./plan.ts";
import type { HeldPolls } from "./polls.ts";
import {
  claimSizeMin,
  type FunctionQueue,
  type FunctionQueues,
  type HeldPoll,
  isAwaited,
  lookEveryMs,
} from "./queues.ts";
import { jobCharsMax, jobTooLarge, UnsentJob } from "./unsent.ts";

/** The completed steps of a run, or why its job cannot be sent without them. */
export type StepsOfRuns = ReadonlyMap<string, readonly CompletedStep[] | UnsentJob>;

const noSteps: StepsOfRuns = new Map();

/**
 * Reads the completed steps of all runs at once. If that fails, reads them run by run, so that one unreadable
 * step does not keep the jobs of the other runs back.
 */
export async function readCompletedSteps(
  claimed: readonly { run_id: string; step_count: number }[],
  { runs, log }: { runs: Pick<Runs, "completedSteps" | "completedBytes">; log: Log },
): Promise<StepsOfRuns> {
  const runIds = claimed.map(({ run_id }) => run_id);
  try {
    const large = await tooLarge(claimed, runs);
    if (large.size === 0) return await runs.completedSteps(runIds);
    return new Map<string, readonly CompletedStep[] | UnsentJob>([
      ...(await runs.completedSteps(runIds.filter((id) => !large.has(id)))),
      ...large,
    ]);
  } catch (error) {
    log.warn("job.steps_unread", { runCount: runIds.length, error });
    return readOneByOne(runIds, runs, error);
  }
}

/** Of so few steps no run holds more than is sent: none is asked for its size. */
const stepsUnaskedMax = 32;
/** No character of JSON takes more bytes. */
const charBytesMax = 3;

/** Runs that are never sent are not read either: a node has no room for what some hold. */
async function tooLarge(
  claimed: readonly { run_id: string; step_count: number }[],
  runs: Pick<Runs, "completedBytes">,
): Promise<Map<string, UnsentJob>> {
  const asked = claimed.filter((row) => row.step_count > stepsUnaskedMax).map((row) => row.run_id);
  const sizes = asked.length === 0 ? [] : await runs.completedBytes(asked);
  return new Map(
    sizes
      .filter(({ bytes }) => bytes > charBytesMax * jobCharsMax)
      .map(({ run_id, bytes }) => [run_id, jobTooLarge(`${bytes} bytes`)]),
  );
}

async function readOneByOne(
  runIds: readonly string[],
  runs: Pick<Runs, "completedSteps">,
  error: unknown,
): Promise<StepsOfRuns> {
  const steps = new Map<string, readonly CompletedStep[] | UnsentJob>();
  // Where the database is in trouble, reading another run would fail, too.
  let away = isOfItem(error) ? undefined : error;
  for (const runId of runIds) {
    try {
      if (away) throw away;
      steps.set(runId, (await runs.completedSteps([runId])).get(runId) ?? []);
    } catch (cause) {
      if (!isOfItem(cause)) away = cause;
      steps.set(runId, new UnsentJob("STEPS_UNREADABLE", "the run's completed steps cannot be read", cause));
    }
  }
  return steps;
}

export interface ClaimsDeps extends Basics<"clock" | "ids" | "log"> {
  runs: Pick<
    Runs,
    "claim" | "claimLimited" | "lookAtLanes" | "completedSteps" | "completedBytes" | "handOver"
  >;
  tracer: Tracer;
  queues: FunctionQueues;
  idleWorkers: IdleWorkers;
  polls: HeldPolls;
  onUnsent: (job: Job, error: UnsentJob) => void;
  /** A lane that another claim had locked is ready to be tried again. */
  claimAgain: () => void;
}

/** A row may become visible this late: `FunctionQueue.since` stays behind the newest `queued_at` by it. */
const lateMsMax = 5_000;
/** Claims queued runs for all polls and idle workers of this node together. */
export class Claims {
  readonly #deps: ClaimsDeps;

  constructor(deps: ClaimsDeps) {
    this.#deps = deps;
  }

  /** False when no run may be queued, or when nobody has a free slot. */
  async claimOnce(): Promise<boolean> {
    const { queues, tracer, polls } = this.#deps;
    await this.#lookAtStaleLanes();
    const plan = planClaim(queues.all(), this.#deps);
    const planned: PlannedQueue[] = [...plan.demands, ...plan.limited];
    if (planned.length === 0) return false;
    const span = tracer.start("claim", "client");
    span.set("svc.claim.lanes", planned.length);
    let failed: string | undefined;
    try {
      span.set("svc.claim.runs", await this.#claim(plan));
    } catch (error) {
      failed = "failed";
      throw error;
    } finally {
      span.end(failed);
      for (const { claimSlots } of planned)
        for (const { poll, worker } of claimSlots) (poll ?? worker).pending--;
      const claimed = claimedPolls(planned);
      // A poll with `holdMs` 0 is answered after its first claim, or after the second that had no slot for
      // it.
      for (const poll of plan.polls)
        polls.finish(poll, poll.holdMs === 0 && (claimed.has(poll) || poll.looks > 1));
      polls.answerDelivered();
    }
    return true;
  }

  /** Finds out which lanes of limited functions have work. Only for queues that a worker waits for. */
  async #lookAtStaleLanes(): Promise<void> {
    const { queues } = this.#deps;
    const looks: Promise<FunctionQueue | undefined>[] = [];
    for (const queue of queues.all())
      if (queue.limited?.stale && isAwaited(queue)) looks.push(this.#lookAtLanes(queue, queue.limited));
    if (looks.length === 0) return;
    const turned = (await Promise.all(looks)).filter((queue) => queue !== undefined);
    if (turned.length === 0) return;
    for (const queue of turned) if (isAwaited(queue)) queues.repin(queue, queue.pin === undefined);
    await this.#lookAtStaleLanes();
  }

  /** Answers the queue when its function pins its runs and it is for all deployments, or the other way. */
  async #lookAtLanes(queue: FunctionQueue, lanes: LimitedLanes): Promise<FunctionQueue | undefined> {
    const { runs, clock } = this.#deps;
    lanes.stale = false;
    queue.lookedAt = clock.now();
    try {
      const found = await runs.lookAtLanes(queue, lanes.after);
      if ((found.pins ?? false) !== (queue.pin !== undefined)) return queue;
      if (found.limit === undefined) {
        queue.limited = undefined;
        queue.dirty = true;
      } else noteLook(lanes, found, laneLookMax);
      return undefined;
    } catch (error) {
      lanes.stale = true;
      throw error;
    }
  }

  /**
   * Returns how many runs were claimed. Functions with and without a limit are claimed in one transaction
   * each; those that pin their runs in further ones.
   */
  async #claim({ demands, limited }: ClaimPlan): Promise<number> {
    const { runs, clock } = this.#deps;
    const now = clock.now();
    const startedAt = clock.elapsed();
    const [first = [], ...pinned] = roundsOf(limited);
    const [unlimitedClaim, limitedClaim, pinnedClaims] = await Promise.all([
      settled(() => (demands.length === 0 ? undefined : runs.claim({ now, demands }))),
      settled(() => (first.length === 0 ? undefined : runs.claimLimited({ now, demands: first }))),
      this.#claimPinned(pinned, now),
    ]);
    for (const { queue, since } of demands)
      if (since === 0) queue.wholeLooks.took(clock.elapsed() - startedAt);
    // All are noted before a failure is thrown: what one has claimed must reach its workers.
    if ("error" in unlimitedClaim) for (const { queue } of demands) queue.dirty = true;
    let count = 0;
    if ("value" in unlimitedClaim && unlimitedClaim.value) {
      const { runs: rows, limited: nowLimited } = unlimitedClaim.value;
      for (const lane of nowLimited) demands[lane - 1]!.queue.limited ??= newLimitedLanes();
      await this.#assign(rows, demands);
      count += rows.length;
    }
    const limitedClaims = [limitedClaim, ...pinnedClaims];
    for (const [place, round] of [first, ...pinned].entries()) {
      const claimed = limitedClaims[place]!;
      if ("error" in claimed) for (const { state } of round) noteClaimFailed(state);
      if (!("value" in claimed) || !claimed.value) continue;
      this.#noteLanes(round, claimed.value.lanes);
      await this.#assign(claimed.value.runs, round);
      count += claimed.value.runs.length;
    }
    for (const one of [unlimitedClaim, ...limitedClaims]) if ("error" in one) throw one.error;
    return count;
  }

  /** One after the other: they ask for the same lanes. A round after one that failed is claimed, too. */
  async #claimPinned(rounds: readonly ClaimPlan["limited"][], now: Instant) {
    const claims: SettledClaim<Awaited<ReturnType<Runs["claimLimited"]>> | undefined>[] = [];
    for (const demands of rounds)
      claims.push(await settled(() => this.#deps.runs.claimLimited({ now, demands })));
    return claims;
  }

  #noteLanes(demands: ClaimPlan["limited"], lanes: readonly LaneFound[]): void {
    const { clock, claimAgain } = this.#deps;
    for (const [at, { queue, state }] of demands.entries()) {
      const found = lanes.filter(({ lane }) => lane === at + 1);
      // The function was paused or lost its limit since: the next look finds out which.
      if (found.length === 0) state.stale = true;
      for (const { laneId, afterMs } of noteClaimed(state, found, lookEveryMs))
        clock.after(afterMs, () => {
          state.full.delete(laneId);
          state.ready.add(laneId);
          if (isAwaited(queue)) claimAgain();
        });
    }
  }

  async #assign(rows: readonly ClaimedRow[], demands: readonly PlannedQueue[]): Promise<void> {
    const { clock, polls, onUnsent } = this.#deps;
    const resumed = rows.filter((row) => row.step_count > 0);
    const steps = resumed.length === 0 ? noSteps : await readCompletedSteps(resumed, this.#deps);
    const claimSlots = demands.map((demand) => demand.claimSlots);
    const slotOf = await assignToActors(rows, claimSlots, this.#deps);
    const now = clock.now();
    const counts = new Array<number>(demands.length).fill(0);
    for (const row of rows) {
      const { queue } = demands[row.lane - 1]!;
      const { poll, worker, token, leaseUntil } = slotOf(row);
      const completed = steps.get(row.run_id) ?? [];
      const compensating = compensatingJob(row.ending);
      if (completed instanceof UnsentJob) {
        // Without its completed steps a worker would run them a second time.
        onUnsent(jobOfClaim(row, token, leaseUntil, [], compensating), completed);
      } else {
        const job = jobOfClaim(row, token, leaseUntil, completed, compensating);
        if (poll) poll.jobs.push(job);
        else polls.deliverToIdle(worker, queue, job);
      }
      counts[row.lane - 1]!++;
      queue.since = Math.max(queue.since, row.queued_at - lateMsMax);
      queue.lastDispatchedAt = now;
    }
    for (const [at, { queue, claimSlots }] of demands.entries())
      noteServed(queue, claimSlots.length, counts[at]!);
  }
}

type SettledClaim<Value> = { value: Value } | { error: unknown };

async function settled<Value>(
  work: () => Promise<Value> | undefined,
): Promise<SettledClaim<Value | undefined>> {
  try {
    return { value: await work() };
  } catch (error) {
    return { error };
  }
}

/**
 * What one statement may ask for: first all functions that do not pin their runs, then the others, of each
 * one deployment at a time. A statement that asked for a lane twice would count its leases wrong.
 */
function roundsOf(limited: ClaimPlan["limited"]): ClaimPlan["limited"][] {
  const rounds: ClaimPlan["limited"][] = [[]];
  const places = new Map<string, number>();
  for (const demand of limited) {
    const key = `${demand.environmentId}\n${demand.functionId}`;
    const round = demand.pin ? (places.get(key) ?? 0) + 1 : 0;
    if (demand.pin) places.set(key, round);
    rounds[round] ??= [];
    rounds[round].push(demand);
  }
  return rounds;
}

/** A claim asked for `asked` runs of the queue and got `count`. */
function noteServed(queue: FunctionQueue, asked: number, count: number): void {
  const isFull = count === asked;
  if (isFull && !queue.limited) queue.dirty = true;
  queue.claimSize = isFull ? Math.min(pollJobsMax, queue.claimSize * 2) : Math.max(claimSizeMin, 2 * count);
  // An empty claim counts as one run: otherwise a queue that only seems to have work stays first for slots.
  queue.served += Math.max(1, count);
}

/**
 * Polls that the claim asked for. Leaves out queues that the claim only found to be limited: nothing was
 * claimed from them yet, so a poll with `holdMs` 0 must not be answered with nothing.
 */
function claimedPolls(planned: readonly PlannedQueue[]): Set<HeldPoll> {
  const polls = new Set<HeldPoll>();
  for (const { queue, claimSlots } of planned) {
    if (queue.limited?.stale) continue;
    for (const { poll } of claimSlots) if (poll) polls.add(poll);
  }
  return polls;
}
