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
import { openSeating } from "./actors.ts";
import type { Desk, Desks } from "./desks.ts";
import { askMin, isAwaited, type Lane } from "./lanes.ts";
import { type Limited, looked, newLimited, tell, untold } from "./limited.ts";
import { type Plan, type Planned, planClaim } from "./plan.ts";
import { UnsentJob } from "./unsent.ts";
import type { Waiters } from "./waiters.ts";

export interface ClaimsDeps {
  runs: Pick<Runs, "claim" | "claimLimited" | "lookAtLanes" | "completedSteps" | "handOver">;
  clock: Clock;
  ids: Ids;
  log: Log;
  tracer: Tracer;
  leaseMs: number;
  lanes: ReadonlyMap<string, Lane>;
  desks: Desks;
  waiters: Waiters;
  onUnsent: (job: Job, error: UnsentJob) => void;
  leaveAt: (desk: Desk, lane: Lane, job: Job) => void;
  /** A lane was busy and shall be tried again. */
  pump: () => void;
}

/** Rows may become visible this much after their time: a watermark stays behind by it. */
const lateMsMax = 5_000;
/** Another claim is done with a lane after so long. */
const busyMs = 10;

export function openClaims(deps: ClaimsDeps) {
  const { runs, clock, log, tracer, leaseMs, lanes, waiters, onUnsent, leaveAt } = deps;
  const seat = openSeating(deps);

  async function look(lane: Lane, state: Limited): Promise<void> {
    state.stale = false;
    lane.lookedAt = clock.now();
    try {
      const found = await runs.lookAtLanes(lane, state.after);
      if (found.limit === undefined) {
        lane.limited = undefined;
        lane.dirty = true;
      } else looked(state, found, laneLookMax);
    } catch (error) {
      state.stale = true;
      throw error;
    }
  }

  /** Which lanes of limited functions have work, where nobody here knows. */
  async function lookWhereStale(): Promise<void> {
    const looks: Promise<void>[] = [];
    for (const lane of lanes.values())
      if (lane.limited?.stale && isAwaited(lane)) looks.push(look(lane, lane.limited));
    if (looks.length > 0) await Promise.all(looks);
  }

  async function claim(plan: Plan): Promise<number> {
    const now = clock.now();
    const leaseUntil = now + leaseMs;
    const times = { now, leaseUntil };
    const [open, limited] = await Promise.allSettled([
      plan.demands.length === 0 ? undefined : runs.claim({ ...times, lanes: plan.demands }),
      plan.limited.length === 0 ? undefined : runs.claimLimited({ ...times, demands: plan.limited }),
    ]);
    if (open.status === "rejected") for (const { lane } of plan.demands) lane.dirty = true;
    if (limited.status === "rejected") for (const { state } of plan.limited) untold(state);
    if (open.status === "fulfilled" && open.value) {
      for (const place of open.value.limited) plan.demands[place - 1]!.lane.limited ??= newLimited();
      await hand(open.value.runs, plan.demands, leaseUntil);
    }
    if (limited.status === "fulfilled" && limited.value) {
      for (const [at, { lane, state }] of plan.limited.entries()) {
        const found = limited.value.lanes.filter((one) => one.lane === at + 1);
        // Paused, or without a limit by now: a look will tell.
        if (found.length === 0) state.stale = true;
        const busy = tell(state, found);
        if (busy.length > 0)
          clock.after(busyMs, () => {
            for (const laneId of busy) state.ready.add(laneId);
            if (isAwaited(lane)) deps.pump();
          });
      }
      await hand(limited.value.runs, plan.limited, leaseUntil);
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

  async function hand(
    rows: readonly ClaimedRow[],
    demands: readonly Planned[],
    leaseUntil: number,
  ): Promise<void> {
    const resumed = rows.filter((row) => row.step_count > 0).map((row) => row.run_id);
    const steps = resumed.length === 0 ? noSteps : await stepsOf(resumed);
    const seatOf = await seat(
      rows,
      demands.map(({ places }) => places),
    );
    const now = clock.now();
    const taken = new Map<number, number>();
    for (const row of rows) {
      const { lane, places } = demands[row.lane - 1]!;
      const { token } = places[row.rank - 1]!;
      const { waiter, desk } = seatOf(row);
      const done = steps.get(row.run_id) ?? [];
      const job = jobOfClaim(row, token, leaseUntil, done instanceof UnsentJob ? [] : done);
      // Without knowing what is done already nobody may begin.
      if (done instanceof UnsentJob) onUnsent(job, done);
      else if (waiter) waiter.jobs.push(job);
      else leaveAt(desk, lane, job);
      taken.set(row.lane, (taken.get(row.lane) ?? 0) + 1);
      lane.since = Math.max(lane.since, row.queued_at - lateMsMax);
      lane.lastDispatchedAt = now;
    }
    for (const [at, { lane, places }] of demands.entries()) {
      const count = taken.get(at + 1) ?? 0;
      if (count === places.length && !lane.limited) lane.dirty = true;
      lane.ask = count === places.length ? Math.min(pollJobsMax, lane.ask * 2) : Math.max(askMin, 2 * count);
      // A look that found nothing counts too: a lane that only seems to have work must not be first for ever.
      lane.served += Math.max(1, count);
    }
  }

  /** One claim for all that wait; false when there was nothing to claim or nobody to claim for. */
  async function claimOnce(): Promise<boolean> {
    await lookWhereStale();
    const plan = planClaim(lanes.values(), deps);
    const planned: Planned[] = [...plan.demands, ...plan.limited];
    if (planned.length === 0) return false;
    const slots = planned.flatMap(({ places }) => places);
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
      for (const slot of slots) (slot.waiter ?? slot.desk).pending--;
      // Whose claim only found that its function has a limit has not been looked for yet.
      const asked = new Set(
        planned.flatMap(({ lane, places }) =>
          lane.limited?.stale ? [] : places.flatMap((place) => place.waiter ?? []),
        ),
      );
      // Who does not hold is answered by the claim that asked for it, or by the second that had no slot left for it.
      for (const waiter of plan.waiters)
        waiters.finish(waiter, waiter.holdMs === 0 && (asked.has(waiter) || waiter.looks > 1));
      waiters.handOut();
    }
    return true;
  }

  return { claimOnce };
}

/** The database itself is in trouble: no other run would fare better. */
const isAway = (error: unknown): error is StoreError =>
  error instanceof StoreError && error.trouble !== "refused";

const noSteps = new Map<string, CompletedStep[]>();
