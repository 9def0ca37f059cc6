import { missing } from "../../../kit/fault.ts";
import {
  gaugeCountMax,
  gaugeKeptMs,
  gaugeWaitMsMax,
  laneLookMax,
  purgeSliceMax,
} from "../../../kit/limits.ts";
import type { Waker } from "../../../kit/loop.ts";
import { fitting } from "../../../kit/slice-size.ts";
import { unranked } from "../../../kit/step-id.ts";
import { cachedQuery } from "../../../kit/ttl-cache.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import { sharedLane } from "../functions/rules.ts";
import type { AttributeNames } from "./attributes/attribute-names.ts";
import { openStates } from "./awaited/states.ts";
import { type ChildrenDeps, openChildren } from "./children/children.ts";
import { openDeadlines } from "./deadlines.ts";
import { type ClaimedRow, type ClaimInput, claimFlush } from "./execution/claim.ts";
import { claimLimitedFlush, type LaneFound, type LimitedInput } from "./execution/claim-limited.ts";
import { claimPacedFlush, claimPinnedFlush } from "./execution/claim-paced.ts";
import { neverWakesAt } from "./execution/commit-reports.ts";
import { adoptRuns, forgetLanes, limitedFunctions, lookAtLanes } from "./execution/lane-rows.ts";
import {
  ackExecution,
  cancelledOf,
  findLeases,
  type Handover,
  handOver,
  type LeaseLook,
  leaseStates,
  renewLeases,
} from "./execution/leases.ts";
import { openPutOff, wasDenied } from "./execution/put-off.ts";
import {
  noteDeviations,
  noteRefusal,
  type ReportedDeviations,
  type ReportRefusal,
  whyRefused,
} from "./execution/refusal.ts";
import { openReports, type ReportsDeps } from "./execution/report-queue.ts";
import { forgetGates } from "./gates.ts";
import { cutStep, stepsTooLarge, type WithCuts } from "./large-values.ts";
import { laneIdleMsMax, stepsAtOnceMax, stepsBytesMax, wakeSliceMax } from "./limits.ts";
import { type ListRunsInput, listRuns, type RunsPage, runsOfEvents } from "./list-runs.ts";
import { FirstRooms } from "./logs/lines-to-store.ts";
import { type EndedRun, openTally, type RunObservers } from "./observer.ts";
import { type OutputsDeps, openOutputs } from "./outputs/outputs.ts";
import * as rows from "./rows.ts";
import type { CompletedStep, Fence, Run, Step, TerminalStatus } from "./run.ts";
import { openSignals } from "./signals/signals.ts";
import { publishReportedSteps, type StepMoves } from "./step-moves.ts";
import { openStory } from "./story.ts";
import { endRuns, type RunEnd } from "./undo/end-runs.ts";
import { compareAgain } from "./waits/drop-waits.ts";
import { openMatcher } from "./waits/matcher.ts";
import { rankMet } from "./waits/rank-met.ts";
import { cancelQueued } from "./wakes/due.ts";
import { finishResumes } from "./wakes/finish-resumes.ts";
import { openWakeLooks, openWakes } from "./wakes/wake-work.ts";

export type { ListRunsInput, RunsPage };

export type Runs = ReturnType<typeof openRuns>;

export interface RunsDeps extends Basics<"store" | "clock" | "log" | "watch"> {
  names: Pick<AttributeNames, "require" | "requireTypes" | "forget">;
  definitionOf: ReportsDeps["definitionOf"];
  secretValues: ReportsDeps["secretValues"];
  observers: RunObservers;
  outputNews: Pick<OutputsDeps, "tell" | "hearsAll" | "watchEnd">;
  /** Receives the steps of committed reports. */
  steps: StepMoves;
  /** Of the loops that tick `wakeOnce`, `matcher.matchOnce`, `states.lookOnce` and `Children.moveOnce`. */
  wakers: Record<"wake" | "matcher" | "states" | "children", Waker>;
}

export function openRuns(deps: RunsDeps) {
  const { store, clock, log, observers, wakers } = deps;
  const onQueued = observers.queued;
  observers.add(openTally(deps.watch.metrics) ?? {});
  observers.add({ reported: (changes, now) => publishReportedSteps(deps.steps, changes, now) });
  const onChildren = wakers.children.wake;
  const tellEnded = (ends: TerminalStatus, runs: readonly Omit<EndedRun, "ends">[]) => {
    if (runs.length === 0) return;
    observers.ended(
      runs.map(({ runId, environmentId }) => ({ runId, environmentId, ends })),
      clock.now(),
    );
    onChildren();
  };
  const matcher = openMatcher({
    store,
    clock,
    onQueued,
    onCancelled: (environmentId, runIds) => tellEnded("cancelled", runsIn(environmentId, runIds)),
    wakeLoop: wakers.matcher.wake,
  });
  const onFailed = (runs: readonly Omit<EndedRun, "ends">[]) => tellEnded("failed", runs);
  const states = openStates({ store, clock, onQueued, wakeLoop: wakers.states.wake });
  const firstRooms = new FirstRooms();
  observers.add(firstRooms);
  const reports = openReports({
    ...{ ...deps, firstRooms },
    ...{ onWaiting: matcher.wake, onWaitingStates: states.awaited, onChildren },
    onWakePlanned: (at) => wakers.wake.wakeIn(at - clock.now()),
  });
  gaugeActive(deps);
  const outputs = openOutputs({ store, clock, watch: deps.watch, ...deps.outputNews });
  const wakes = openWakes({ store, clock, log, matcher, states, observers, onFailed });
  return {
    /**
     * Commits a worker's report. Rejects with `aborted`, code `STALE_EXECUTION` or `RUN_NOT_RUNNING`, when
     * its lease is over.
     */
    report: reports.submit,
    /** Returns a claimed run to its queue when no worker began it. */
    release: (fence: Fence & { environmentId: string }) => reports.release(fence),
    /**
     * Records that a report of this lease could not be decoded: without a valid one the run fails when the
     * lease ends.
     */
    noteRefusal: async (refusal: ReportRefusal) =>
      void (await store.write((session) => noteRefusal(session, refusal, clock.now()))),
    /** Notes what a run's handler did otherwise than before; undefined when the fence does not hold. */
    noteDeviations: (reported: ReportedDeviations) =>
      store.write((session) => noteDeviations(session, reported)),
    wasDenied: (runId: string) => wasDenied(store, runId),
    putOff: openPutOff({ store, clock, report: reports.submit, release: reports.release }),
    /** Resolves once every submitted report is committed or refused. */
    drain: () => Promise.all([reports.drain(), outputs.drain()]),
    ...leasesIn(deps),
    /** Ends leases of a worker that were not renewed since it may have gone; answers how many. */
    endSilent: wakes.endSilent,
    /** Resumes runs whose event came, and ends runs that an event cancels. */
    matcher,
    /** Resumes runs whose entity, key, child or signal is what they wait for. */
    states,
    /** What is sent to runs by name. */
    signals: openSignals({ store, clock, onQueued }),
    /** What handlers write while they run. */
    outputs,
    /** Opens what starts child runs, once there is a log to start them by. */
    openChildren: (invoke: ChildrenDeps["invoke"]) =>
      openChildren({ store, clock, log, invoke, onQueued, onFailed, onEnded: wakers.states.wake }),
    deadlinesOnce: openDeadlines({
      ...{ store, clock, onQueued },
      onCancelled: (runs) => tellEnded("cancelled", runs),
    }),
    /** Completed steps of these runs, in order: handlers skip them. Met steps get their ranks. */
    async completedSteps(runIds: readonly string[]): Promise<Map<string, CompletedStep[]>> {
      const steps = await rows.completedSteps(store, runIds, clock.now());
      const met = [...steps.values()].flat().filter(({ sequence }) => sequence >= unranked);
      if (met.length > 0) await store.write((session) => rankMet(session, met));
      return steps;
    },
    /** What of these runs the completed steps hold, in bytes. */
    completedBytes: (runIds: readonly string[]) => rows.completedBytes(store, runIds),
    ...readsIn(deps),
    ...claimsIn(deps),
    /** Ends runs; the caller holds the locks of their executions. Answers those that are undone first. */
    endHeld: (session: Session, ends: readonly RunEnd[]) => endRuns(session, ends, clock.now()),
    /**
     * Second step of a resume; the caller holds the locks of the executions. Answers the queues that got
     * work.
     */
    finishResumes: (session: Session, runIds: readonly string[]) =>
      finishResumes(session, runIds, clock.now()),
    /** What the run waits for is compared anew: while it was `resuming` it was passed over. */
    compareAgain: (session: Session, runId: string) => compareAgain(session, runId, { at: clock.now() }),
    neverWakesAt,
    /**
     * Cancels the queued runs of a function, in the transaction that deletes it. Hand its answer to
     * `cancelled` after the commit.
     */
    cancelQueued: (session: Session, target: { environmentId: string; functionId: string; cause: string }) =>
      cancelQueued(session, { ...target, now: clock.now() }),
    cancelled: (environmentId: string, runIds: readonly string[]) =>
      tellEnded("cancelled", runsIn(environmentId, runIds)),

    wakeOnce: openWakeLooks({ store, clock }, wakes),
  };
}

const readsIn = ({ store, names }: RunsDeps) => ({
  /** The runs that these events started, by the event's id. */
  ofEvents: (environmentId: string, eventIds: readonly string[]) =>
    runsOfEvents(store, environmentId, eventIds),

  async get(environmentId: string, runId: string): Promise<Run> {
    const run = await rows.getRun(store, environmentId, runId);
    if (!run) throw missing("run", runId);
    return run;
  },

  list: (environmentId: string, input: ListRunsInput) => listRuns({ store, names }, environmentId, input),

  /**
   * `stepId`: that step alone. Values larger than `valueBytesMax` are cut, and of a run with more than
   * `stepsBytesMax` no more than a portion is read at once; whole, it is refused.
   */
  async steps(
    environmentId: string,
    runId: string,
    { stepId, valueBytesMax = 0 }: { stepId?: string | undefined; valueBytesMax?: number | undefined } = {},
  ): Promise<(Step & WithCuts)[]> {
    const read = async (stepIds?: readonly string[]) =>
      (await rows.getSteps(store, environmentId, runId, stepIds)).map((step) => cutStep(step, valueBytesMax));
    const sizes = stepId === undefined ? await rows.stepSizes(store, environmentId, runId) : [];
    const bytes = sizes.reduce((sum, one) => sum + one.bytes, 0);
    const steps: (Step & WithCuts)[] = [];
    if (bytes <= stepsBytesMax) steps.push(...(await read(stepId === undefined ? undefined : [stepId])));
    else if (valueBytesMax === 0) throw stepsTooLarge(bytes);
    else
      for (let left = sizes; left.length > 0; ) {
        const some = fitting(left.slice(0, stepsAtOnceMax), (one) => one.bytes);
        left = left.slice(some.length);
        steps.push(...(await read(some.map((one) => one.step_id))));
      }
    if (steps.length === 0 && !(await rows.getRun(store, environmentId, runId))) throw missing("run", runId);
    return steps;
  },

  ...openStory(store),
});

const claimsIn = ({ store, clock, observers }: RunsDeps) => ({
  /**
   * `limited`: places (from 1) of the demands whose functions have a concurrency limit: use `claimLimited`
   * for them.
   */
  async claim(input: ClaimInput): Promise<{ runs: ClaimedRow[]; limited: number[] }> {
    const rows = await store.flush(claimFlush, input);
    const runs = rows.filter(isRun);
    observers.claimed(runs);
    return { runs, limited: rows.flatMap((row) => (row.rank === 0 ? row.lane : [])) };
  },
  async claimLimited(input: LimitedInput): Promise<{ runs: ClaimedRow[]; lanes: LaneFound[] }> {
    const rows = await store.flush(claimFlushOf(input), input);
    const runs = rows.filter(isRun);
    observers.claimed(runs);
    return {
      runs,
      lanes: rows.filter((row): row is LaneFound & { rank: 0 } => row.rank === 0),
    };
  },
  /**
   * Concurrency queues of a function that hold queued runs, by id, after `after`: at most
   * `laneLookMax`.
   */
  lookAtLanes: (target: { environmentId: string; functionId: string }, after: string) =>
    lookAtLanes(store, target, { after, most: laneLookMax }),
  /** Puts runs that were created before their function had a limit into its concurrency queue. */
  adopt: (target: { environmentId: string; functionId: string }) => adoptAll(store.write, target),
  /**
   * The tick of loop `runs.lanes`: deletes idle queues, and adopts runs that nodes of an earlier version
   * created.
   */
  async tidyLanes(write: Store["write"]) {
    const before = clock.now() - laneIdleMsMax;
    while ((await write((session) => forgetLanes(session, before, purgeSliceMax))) === purgeSliceMax);
    const now = clock.now();
    while ((await write((session) => forgetGates(session, now, purgeSliceMax))) === purgeSliceMax);
    for (const { environment_id, id } of await limitedFunctions(store))
      await adoptAll(write, { environmentId: environment_id, functionId: id });
  },
});

const leasesIn = ({ store, clock }: RunsDeps) => ({
  /** Notes that an assignment has arrived; rejects like `report`. */
  async ack(fence: Fence & { environmentId: string }, leaseMs: number) {
    const now = clock.now();
    const times = { now, leaseUntil: now + leaseMs };
    if (await store.write((session) => ackExecution(session, fence, times))) return;
    const [why] = await whyRefused(store, [fence]);
    throw why;
  },
  renew: renewLeases,
  /** Whether these leases still hold, in the order given. */
  leaseStates: (asked: Parameters<typeof leaseStates>[1]) => leaseStates(store, asked),
  cancelledOf: (asked: Parameters<typeof cancelledOf>[1]) => cancelledOf(store, asked),
  findLeases: (look: LeaseLook) => findLeases(store, look),
  /** Moves claimed leases to other workers than they were claimed for. */
  handOver: (handovers: readonly Handover[]) => store.write((session) => handOver(session, handovers)),
});

/** `svc_active_runs`: the query is shared by readings within `gaugeKeptMs`. */
function gaugeActive({
  store,
  clock,
  watch: { metrics },
}: Pick<RunsDeps, "store" | "clock" | "watch">): void {
  const active = metrics.gauge({
    name: "svc_active_runs",
    help: `Runs of the whole installation that are not over, counted up to ${gaugeCountMax}.`,
  })();
  const countActive = cachedQuery({
    clock,
    keptMs: gaugeKeptMs,
    waitMsMax: gaugeWaitMsMax,
    query: () => rows.countActive(store, gaugeCountMax),
  });
  metrics.beforeReading(async () => active.set(await countActive()));
}

function claimFlushOf({ demands }: LimitedInput) {
  if (demands.some(({ pin }) => pin)) return claimPinnedFlush;
  return demands.some(({ paced }) => paced) ? claimPacedFlush : claimLimitedFlush;
}

const isRun = <R extends { rank: number }>(row: R | ClaimedRow): row is ClaimedRow => row.rank > 0;

async function adoptAll(
  write: Store["write"],
  target: { environmentId: string; functionId: string },
): Promise<void> {
  const laneId = sharedLane(target.environmentId, target.functionId);
  const slice = { ...target, laneId, most: wakeSliceMax };
  while ((await write((session) => adoptRuns(session, slice))) === wakeSliceMax);
}

const runsIn = (environmentId: string, runIds: readonly string[]) =>
  runIds.map((runId) => ({ runId, environmentId }));
