import { cachedQuery } from "../../../kit/cached-query.ts";
import type { Instant } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import {
  gaugeCountMax,
  gaugeKeptMs,
  gaugeWaitMsMax,
  laneLookMax,
  purgeSliceMax,
} from "../../../kit/limits.ts";
import type { Waker } from "../../../kit/loop.ts";
import { unranked } from "../../../kit/step-id.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import { sharedLane } from "../functions/rules.ts";
import type { AttributeNames } from "./attributes/attribute-names.ts";
import { openStates, type States } from "./awaited/states.ts";
import { type Children, type ChildrenDeps, openChildren } from "./children/children.ts";
import { openDeadlines } from "./deadlines.ts";
import { type EventRun, runsOfEvents } from "./event-runs.ts";
import { type ClaimedRow, type ClaimInput, claimFlush } from "./execution/claim.ts";
import { claimLimitedFlush, type LaneFound, type LimitedInput } from "./execution/claim-limited.ts";
import { claimPacedFlush } from "./execution/claim-paced.ts";
import { neverWakesAt } from "./execution/commit-reports.ts";
import { noteDeviations, type ReportedDeviations } from "./execution/deviations.ts";
import {
  adoptRuns,
  forgetLanes,
  type LaneLook,
  limitedFunctions,
  lookAtLanes,
} from "./execution/lane-rows.ts";
import {
  ackExecution,
  cancelledOf,
  type FoundLease,
  findLeases,
  type Handover,
  handOver,
  type LeaseLook,
  type LeaseState,
  leaseStates,
  renewLeases,
  type Silence,
} from "./execution/leases.ts";
import { openPutOff, wasDenied } from "./execution/put-off.ts";
import { noteRefusal, type ReportRefusal } from "./execution/refusal.ts";
import type { RunReport } from "./execution/report.ts";
import { openReports, type ReportsDeps } from "./execution/report-queue.ts";
import { whyRefused } from "./execution/why-refused.ts";
import { forgetGates } from "./gates.ts";
import { laneIdleMsMax, wakeSliceMax } from "./limits.ts";
import { type ListRunsInput, listRuns, type RunsPage } from "./list-runs.ts";
import { FirstRooms } from "./logs/first-rooms.ts";
import type { EndedRun, RunObservers } from "./observer.ts";
import * as rows from "./rows.ts";
import type { CompletedStep, Fence, QueueHint, Run, Step, TerminalStatus } from "./run.ts";
import { publishReportedSteps, type StepMoves } from "./step-moves.ts";
import { openStory, type RunStory } from "./story.ts";
import { openTally } from "./tally.ts";
import { endRuns, type Undoing } from "./undo/end-runs.ts";
import type { RunEnd } from "./undo/ending.ts";
import { compareAgain } from "./waits/compare-again.ts";
import { type Matcher, openMatcher } from "./waits/matcher.ts";
import { rankMet } from "./waits/rank-met.ts";
import { cancelQueued } from "./wakes/due.ts";
import { finishResumes } from "./wakes/finish-resumes.ts";
import { openWakeLooks } from "./wakes/wake-looks.ts";
import { openWakes } from "./wakes/wake-work.ts";

export type { ListRunsInput, RunsPage };

export interface Runs extends RunStory {
  get(environmentId: string, runId: string): Promise<Run>;
  list(environmentId: string, input: ListRunsInput): Promise<RunsPage>;
  /** `stepId`: that step alone. */
  steps(environmentId: string, runId: string, stepId?: string): Promise<Step[]>;
  /** The runs that these events started, by the event's id. */
  ofEvents(environmentId: string, eventIds: readonly string[]): Promise<Map<string, EventRun[]>>;
  /**
   * Cancels the queued runs of a function, in the transaction that deletes it. Hand its answer to `cancelled`
   * after the commit.
   */
  cancelQueued(
    session: Session,
    target: { environmentId: string; functionId: string; cause: string },
  ): Promise<string[]>;
  cancelled(environmentId: string, runIds: readonly string[]): void;
  /** Ends runs; the caller holds the locks of their executions. Answers those that are undone first. */
  endHeld(session: Session, ends: readonly RunEnd[]): Promise<Undoing>;
  /**
   * Second step of a resume; the caller holds the locks of the executions. Answers the queues that got work.
   */
  finishResumes(session: Session, runIds: readonly string[]): Promise<QueueHint[]>;
  /** What the run waits for is compared anew: while it was `resuming` it was passed over. */
  compareAgain(session: Session, runId: string): Promise<number>;
  /** `wake_at` of a held execution. */
  readonly neverWakesAt: Instant;
  /**
   * Commits a worker's report. Rejects with `aborted`, code `STALE_EXECUTION` or `RUN_NOT_RUNNING`, when its
   * lease is over.
   */
  report(report: RunReport): Promise<void>;
  /** Returns a claimed run to its queue when no worker began it. */
  release(fence: Fence & { environmentId: string }): Promise<void>;
  /**
   * Returns a claimed run whose job cannot be built to its queue, due later; fails the run after
   * `putOffTriesMax` tries.
   */
  putOff: ReturnType<typeof openPutOff>;
  /** See `wasDenied`. */
  wasDenied(runId: string): Promise<boolean>;
  /**
   * Records that a report of this lease could not be decoded: without a valid one the run fails when the
   * lease ends.
   */
  noteRefusal(refusal: ReportRefusal): Promise<void>;
  /** Notes what a run's handler did otherwise than before; undefined when the fence does not hold. */
  noteDeviations(
    reported: ReportedDeviations,
  ): Promise<{ functionId: string; functionVersion: number } | undefined>;
  /** Resolves once every submitted report is committed or refused. */
  drain(): Promise<void>;
  /** Notes that an assignment has arrived; rejects like `report`. */
  ack(fence: Fence & { environmentId: string }, leaseMs: number): Promise<void>;
  /** Extends the leases of a worker's jobs inside a transaction. */
  renew(session: Session, renewal: Parameters<typeof renewLeases>[1]): Promise<void>;
  /** Whether these leases still hold, in the order given. */
  leaseStates(asked: Parameters<typeof leaseStates>[1]): Promise<LeaseState[]>;
  cancelledOf(asked: Parameters<typeof cancelledOf>[1]): Promise<Set<string>>;
  findLeases(look: LeaseLook): Promise<FoundLease[]>;
  /** Ends leases of a worker that were not renewed since it may have gone; answers how many. */
  endSilent(silence: Silence): Promise<number>;
  /** Moves claimed leases to other workers than they were claimed for. */
  handOver(handovers: readonly Handover[]): Promise<void>;
  /**
   * `limited`: places (from 1) of the demands whose functions have a concurrency limit: use `claimLimited`
   * for them.
   */
  claim(input: ClaimInput): Promise<{ runs: ClaimedRow[]; limited: number[] }>;
  claimLimited(input: LimitedInput): Promise<{ runs: ClaimedRow[]; lanes: LaneFound[] }>;
  /**
   * Concurrency queues of a function that hold queued runs, by id, after `after`: at most
   * `laneLookMax`.
   */
  lookAtLanes(target: { environmentId: string; functionId: string }, after: string): Promise<LaneLook>;
  /** Puts runs that were created before their function had a limit into its concurrency queue. */
  adopt(target: { environmentId: string; functionId: string }): Promise<void>;
  /**
   * The tick of loop `runs.lanes`: deletes idle queues, and adopts runs that nodes of an earlier version
   * created.
   */
  tidyLanes(write: Store["write"]): Promise<void>;
  /** Completed steps of these runs, in order: handlers do not rerun them. Met steps get their ranks here. */
  completedSteps(runIds: readonly string[]): Promise<Map<string, CompletedStep[]>>;
  /**
   * The tick of loop `runs.wake`: moves due executions; answers in how many milliseconds the next is due. One
   * that is asked for looks at all of them.
   */
  wakeOnce(isAsked?: boolean): Promise<{ againInMs?: number }>;
  /** Resumes runs whose event came, and ends runs that an event cancels. */
  matcher: Matcher;
  /** Resumes runs whose entity, key or child is what they wait for. */
  states: States;
  /** The tick of loop `runs.deadlines`. */
  deadlinesOnce: ReturnType<typeof openDeadlines>;
  /** Opens what starts child runs, once there is a log to start them by. */
  openChildren(invoke: ChildrenDeps["invoke"]): Children;
}

export interface RunsDeps extends Basics<"store" | "clock" | "log" | "watch"> {
  names: Pick<AttributeNames, "require" | "requireTypes" | "forget">;
  definitionOf: ReportsDeps["definitionOf"];
  secretValues: ReportsDeps["secretValues"];
  observers: RunObservers;
  /** Receives the steps of committed reports. */
  steps: StepMoves;
  /** Of the loops that tick `wakeOnce`, `matcher.matchOnce`, `states.lookOnce` and `Children.moveOnce`. */
  wakers: Record<"wake" | "matcher" | "states" | "children", Waker>;
}

export function openRuns(deps: RunsDeps): Runs {
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
  const wakes = openWakes({ store, clock, log, matcher, states, observers, onFailed });
  return {
    report: reports.submit,
    release: (fence) => reports.release(fence),
    noteRefusal: async (refusal) =>
      void (await store.write((session) => noteRefusal(session, refusal, clock.now()))),
    noteDeviations: (reported) => store.write((session) => noteDeviations(session, reported)),
    wasDenied: (runId) => wasDenied(store, runId),
    putOff: openPutOff({ store, clock, report: reports.submit, release: reports.release }),
    drain: reports.drain,
    ...leasesIn(deps),
    endSilent: wakes.endSilent,
    matcher,
    states,
    openChildren: (invoke) =>
      openChildren({ store, clock, log, invoke, onQueued, onFailed, onEnded: wakers.states.wake }),
    deadlinesOnce: openDeadlines({
      ...{ store, clock, onQueued },
      onCancelled: (runs) => tellEnded("cancelled", runs),
    }),
    async claim(input) {
      const rows = await store.flush(claimFlush, input);
      const runs = rows.filter(isRun);
      observers.claimed(runs);
      return { runs, limited: rows.flatMap((row) => (row.rank === 0 ? row.lane : [])) };
    },
    async claimLimited(input) {
      const rows = await store.flush(
        input.demands.some(({ paced }) => paced) ? claimPacedFlush : claimLimitedFlush,
        input,
      );
      const runs = rows.filter(isRun);
      observers.claimed(runs);
      return {
        runs,
        lanes: rows.filter((row): row is LaneFound & { rank: 0 } => row.rank === 0),
      };
    },
    lookAtLanes: (target, after) => lookAtLanes(store, target, { after, most: laneLookMax }),
    adopt: (target) => adoptAll(store.write, target),
    async tidyLanes(write) {
      const before = clock.now() - laneIdleMsMax;
      while ((await write((session) => forgetLanes(session, before, purgeSliceMax))) === purgeSliceMax);
      const now = clock.now();
      while ((await write((session) => forgetGates(session, now, purgeSliceMax))) === purgeSliceMax);
      for (const { environment_id, id } of await limitedFunctions(store))
        await adoptAll(write, { environmentId: environment_id, functionId: id });
    },
    async completedSteps(runIds) {
      const steps = await rows.completedSteps(store, runIds, clock.now());
      const met = [...steps.values()].flat().filter(({ sequence }) => sequence >= unranked);
      if (met.length > 0) await store.write((session) => rankMet(session, met));
      return steps;
    },
    ofEvents: (environmentId, eventIds) => runsOfEvents(store, environmentId, eventIds),

    async get(environmentId, runId) {
      const run = await rows.getRun(store, environmentId, runId);
      if (!run) throw missing("run", runId);
      return run;
    },

    list: (environmentId, input) => listRuns(deps, environmentId, input),

    async steps(environmentId, runId, stepId) {
      const steps = await rows.getSteps(store, environmentId, runId, stepId);
      if (steps.length === 0 && !(await rows.getRun(store, environmentId, runId)))
        throw missing("run", runId);
      return steps;
    },

    ...openStory(store),
    endHeld: (session, ends) => endRuns(session, ends, clock.now()),
    finishResumes: (session, runIds) => finishResumes(session, runIds, clock.now()),
    compareAgain: (session, runId) => compareAgain(session, runId, { at: clock.now() }),
    neverWakesAt,
    cancelQueued: (session, target) => cancelQueued(session, { ...target, now: clock.now() }),
    cancelled: (environmentId, runIds) => tellEnded("cancelled", runsIn(environmentId, runIds)),

    wakeOnce: openWakeLooks({ store, clock }, wakes),
  };
}

const leasesIn = ({
  store,
  clock,
}: RunsDeps): Pick<Runs, "ack" | "renew" | "leaseStates" | "cancelledOf" | "findLeases" | "handOver"> => ({
  async ack(fence, leaseMs) {
    const now = clock.now();
    const times = { now, leaseUntil: now + leaseMs };
    if (await store.write((session) => ackExecution(session, fence, times))) return;
    const [why] = await whyRefused(store, [fence]);
    throw why;
  },
  renew: renewLeases,
  leaseStates: (asked) => leaseStates(store, asked),
  cancelledOf: (asked) => cancelledOf(store, asked),
  findLeases: (look) => findLeases(store, look),
  handOver: (handovers) => store.write((session) => handOver(session, handovers)),
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
