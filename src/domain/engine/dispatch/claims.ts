import type { Clock } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";
import { laneLookMax, pollJobsMax } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import type { Tracer } from "../../../kit/trace.ts";
import { StoreError } from "../../../store/store.ts";
import { type Job, jobOfClaim } from "../jobs/rules.ts";
import type { ClaimedRow } from "../runs/execution/claim.ts";
import type { CompletedStep } from "../runs/run.ts";
import type { Runs } from "../runs/service.ts";
import { openActorAssignment } from "./actors.ts";
import type { IdleWorker, IdleWorkers } from "./idle-workers.ts";
import {
  type LimitedLanes,
  newLimitedLanes,
  noteClaimed,
  noteClaimFailed,
  noteLook,
} from "./limited-lanes.ts";
import { type ClaimPlan, type PlannedQueue, planClaim } from "./plan.ts";
import type { HeldPolls } from "./polls.ts";
import { claimSizeMin, type FunctionQueue, isAwaited } from "./queues.ts";
import { UnsentJob } from "./unsent.ts";

export interface ClaimsDeps {
  runs: Pick<Runs, "claim" | "claimLimited" | "lookAtLanes" | "completedSteps" | "handOver">;
  clock: Clock;
  ids: Ids;
  log: Log;
  tracer: Tracer;
  leaseMs: number;
  queues: ReadonlyMap<string, FunctionQueue>;
  idleWorkers: IdleWorkers;
  polls: HeldPolls;
  onUnsent: (job: Job, error: UnsentJob) => void;
  leaveFor: (worker: IdleWorker, queue: FunctionQueue, job: Job) => void;
  /** A lane was busy and shall be tried again. */
  pump: () => void;
}

/** Rows may become visible this much after their time: a watermark stays behind by it. */
const lateMsMax = 5_000;
/** Another claim is done with a lane after so long. */
const busyMs = 10;

export function openClaims(deps: ClaimsDeps) {
  const { runs, clock, log, tracer, leaseMs, queues, polls, onUnsent, leaveFor } = deps;
  const assignToActors = openActorAssignment(deps);

  async function look(queue: FunctionQueue, state: LimitedLanes): Promise<void> {
    state.stale = false;
    queue.lookedAt = clock.now();
    try {
      const found = await runs.lookAtLanes(queue, state.after);
      if (found.limit === undefined) {
        queue.limited = undefined;
        queue.dirty = true;
      } else noteLook(state, found, laneLookMax);
    } catch (error) {
      state.stale = true;
      throw error;
    }
  }

  /** Which lanes of limited functions have work, where nobody here knows. */
  async function lookWhereStale(): Promise<void> {
    const looks: Promise<void>[] = [];
    for (const queue of queues.values())
      if (queue.limited?.stale && isAwaited(queue)) looks.push(look(queue, queue.limited));
    if (looks.length > 0) await Promise.all(looks);
  }

  async function claim(plan: ClaimPlan): Promise<number> {
    const now = clock.now();
    const leaseUntil = now + leaseMs;
    const times = { now, leaseUntil };
    const [open, limited] = await Promise.allSettled([
      plan.demands.length === 0 ? undefined : runs.claim({ ...times, demands: plan.demands }),
      plan.limited.length === 0 ? undefined : runs.claimLimited({ ...times, demands: plan.limited }),
    ]);
    if (open.status === "rejected") for (const { queue } of plan.demands) queue.dirty = true;
    if (limited.status === "rejected") for (const { state } of plan.limited) noteClaimFailed(state);
    if (open.status === "fulfilled" && open.value) {
      for (const place of open.value.limited) plan.demands[place - 1]!.queue.limited ??= newLimitedLanes();
      await assign(open.value.runs, plan.demands, leaseUntil);
    }
    if (limited.status === "fulfilled" && limited.value) {
      for (const [at, { queue, state }] of plan.limited.entries()) {
        const found = limited.value.lanes.filter((one) => one.lane === at + 1);
        // Paused, or without a limit by now: a look will tell.
        if (found.length === 0) state.stale = true;
        const busy = noteClaimed(state, found);
        if (busy.length > 0)
          clock.after(busyMs, () => {
            for (const laneId of busy) state.ready.add(laneId);
            if (isAwaited(queue)) deps.pump();
          });
      }
      await assign(limited.value.runs, plan.limited, leaseUntil);
    }
    for (const one of [open, limited]) if (one.status === "rejected") throw one.reason;
    return [open, limited].reduce(
      (sum, one) => sum + ("value" in one ? (one.value?.runs.length ?? 0) : 0),
      0,
    );
  }

  /** What is done already of each run; where that cannot be read together, each alone, and of those that fail why. */
  async function stepsOf(runIds: readonly string[]): Promise<Map<string, CompletedStep[] | UnsentJob>> {
    try {
      return await runs.completedSteps(runIds);
    } catch (error) {
      log.warn("job.steps_unread", { runCount: runIds.length, error });
      const unread = (cause: unknown) =>
        new UnsentJob("STEPS_UNREADABLE", "the run's completed steps cannot be read", cause);
      const found = new Map<string, CompletedStep[] | UnsentJob>();
      let away = isAway(error) ? error : undefined;
      for (const runId of runIds) {
        try {
          if (away) throw away;
          found.set(runId, (await runs.completedSteps([runId])).get(runId) ?? []);
        } catch (cause) {
          if (isAway(cause)) away = cause;
          found.set(runId, unread(cause));
        }
      }
      return found;
    }
  }

  async function assign(
    rows: readonly ClaimedRow[],
    demands: readonly PlannedQueue[],
    leaseUntil: number,
  ): Promise<void> {
    const resumed = rows.filter((row) => row.step_count > 0).map((row) => row.run_id);
    const steps = resumed.length === 0 ? noSteps : await stepsOf(resumed);
    const slotOf = await assignToActors(
      rows,
      demands.map(({ claimSlots }) => claimSlots),
    );
    const now = clock.now();
    const taken = new Map<number, number>();
    for (const row of rows) {
      const { queue, claimSlots } = demands[row.lane - 1]!;
      const { token } = claimSlots[row.rank - 1]!;
      const { poll, worker } = slotOf(row);
      const done = steps.get(row.run_id) ?? [];
      const job = jobOfClaim(row, token, leaseUntil, done instanceof UnsentJob ? [] : done);
      // Without knowing what is done already nobody may begin.
      if (done instanceof UnsentJob) onUnsent(job, done);
      else if (poll) poll.jobs.push(job);
      else leaveFor(worker, queue, job);
      taken.set(row.lane, (taken.get(row.lane) ?? 0) + 1);
      queue.since = Math.max(queue.since, row.queued_at - lateMsMax);
      queue.lastDispatchedAt = now;
    }
    for (const [at, { queue, claimSlots }] of demands.entries()) {
      const count = taken.get(at + 1) ?? 0;
      if (count === claimSlots.length && !queue.limited) queue.dirty = true;
      queue.claimSize =
        count === claimSlots.length
          ? Math.min(pollJobsMax, queue.claimSize * 2)
          : Math.max(claimSizeMin, 2 * count);
      // A look that found nothing counts too: a lane that only seems to have work must not be first for ever.
      queue.served += Math.max(1, count);
    }
  }

  /** One claim for all that wait; false when there was nothing to claim or nobody to claim for. */
  async function claimOnce(): Promise<boolean> {
    await lookWhereStale();
    const plan = planClaim(queues.values(), deps);
    const planned: PlannedQueue[] = [...plan.demands, ...plan.limited];
    if (planned.length === 0) return false;
    const slots = planned.flatMap(({ claimSlots }) => claimSlots);
    const span = tracer.start("claim", "client");
    span.set("svc.claim.lanes", planned.length);
    let failed: string | undefined;
    try {
      span.set("svc.claim.runs", await claim(plan));
    } catch (error) {
      failed = "failed";
      throw error;
    } finally {
      span.end(failed);
      for (const slot of slots) (slot.poll ?? slot.worker).pending--;
      // Whose claim only found that its function has a limit has not been looked for yet.
      const claimedFor = new Set(
        planned.flatMap(({ queue, claimSlots }) =>
          queue.limited?.stale ? [] : claimSlots.flatMap((place) => place.poll ?? []),
        ),
      );
      // Who does not hold is answered by the claim that asked for it, or by the second that had no slot left for it.
      for (const poll of plan.polls)
        polls.finish(poll, poll.holdMs === 0 && (claimedFor.has(poll) || poll.looks > 1));
      polls.answerDelivered();
    }
    return true;
  }

  return { claimOnce };
}

/** The database itself is in trouble: no other run would fare better. */
const isAway = (error: unknown): error is StoreError =>
  error instanceof StoreError && error.trouble !== "refused";

const noSteps = new Map<string, CompletedStep[]>();
