import { cachedQuery } from "../../../kit/cached-query.ts";
import { type Clock, type Instant, parseRfc3339 } from "../../../kit/clock.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import {
  gaugeCountMax,
  gaugeKeptMs,
  gaugeWaitMsMax,
  laneIdleMsMax,
  laneLookMax,
  purgeSliceMax,
  searchBytesMax,
  wakeSliceMax,
} from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import { pageSize, readCursor, writeCursor } from "../../../kit/page.ts";
import { roundRobin } from "../../../kit/round-robin.ts";
import type { Watch } from "../../../kit/watch.ts";
import type { Session, Store } from "../../../store/store.ts";
import { sharedLane } from "../functions/rules.ts";
import { type Children, type ChildrenDeps, openChildren } from "./children/children.ts";
import { notifyingTally } from "./children/run-ends.ts";
import { type ClaimedRow, type ClaimInput, claimFlush } from "./execution/claim.ts";
import { claimLimitedFlush, type LaneFound, type LimitedInput } from "./execution/claim-limited.ts";
import { type ExecutionChange, neverWakesAt } from "./execution/commit-reports.ts";
import {
  adoptRuns,
  forgetLanes,
  type LaneLook,
  limitedFunctions,
  lookAtLanes,
} from "./execution/lane-rows.ts";
import { type Handover, handOver, type LeaseState, leaseStates } from "./execution/leases.ts";
import { openPutOff } from "./execution/put-off.ts";
import { noteRefusal, type ReportRefusal } from "./execution/refusal.ts";
import type { RunReport } from "./execution/report.ts";
import { openReports, type ReportsDeps, whyRefused } from "./execution/report-queue.ts";
import * as rows from "./rows.ts";
import { parseRunStatus } from "./rules.ts";
import type { CompletedStep, Fence, Run, Step } from "./run.ts";
import { publishReportedSteps, type StepMoves } from "./step-moves.ts";
import { openTally } from "./tally.ts";
import { type Matcher, openMatcher } from "./waits/matcher.ts";
import { cancelQueued, endRuns, type QueueHint, type RunEnd } from "./wakes/due.ts";
import { finishResumes } from "./wakes/finish-resumes.ts";
import { openWakes } from "./wakes/wake-work.ts";

export interface ListRunsInput {
  functionId?: string;
  eventId?: string;
  search?: string;
  /** In any spelling of proto/README.md 'Encoding'. */
  statuses?: readonly string[];
  /** RFC 3339. */
  since?: string;
  until?: string;
  limit?: number;
  offset?: number;
  cursor?: string;
}

export interface RunsPage {
  runs: Run[];
  nextCursor: string | undefined;
  /** Counted up to limits.countCap. */
  totalCount: number;
}

export interface Runs {
  get(environmentId: string, runId: string): Promise<Run>;
  list(environmentId: string, input: ListRunsInput): Promise<RunsPage>;
  steps(environmentId: string, runId: string): Promise<Step[]>;
  /** For the transaction that deletes a function; answers the runs it ends, for `cancelled` after the commit. */
  cancelQueued(
    session: Session,
    target: { environmentId: string; functionId: string; cause: string },
  ): Promise<string[]>;
  cancelled(runIds: readonly string[]): void;
  /** Ends runs whose executions' locks the caller holds. */
  endHeld(session: Session, ends: readonly RunEnd[]): Promise<void>;
  /** Second half of resumes whose executions' locks the caller holds; answers the lanes that have got work. */
  finishResumes(session: Session, runIds: readonly string[]): Promise<QueueHint[]>;
  /** The wake of an execution that a person holds. */
  readonly neverWakesAt: Instant;
  /**
   * Commits what the holder of a run reports; rejects with the fault of proto/README.md 'Refused reports'
   * when its fence does not hold.
   */
  report(report: RunReport): Promise<void>;
  /** Puts a claimed run back that nobody has begun. */
  release(fence: Fence & { environmentId: string }): Promise<void>;
  /** Puts a claimed run back that cannot be handed to anybody: due later, and failed when that was tried often enough. */
  putOff: ReturnType<typeof openPutOff>;
  /** A report of this lease's holder could not be read: unless it is heard of again, the run fails when the lease ends. */
  noteRefusal(refusal: ReportRefusal): Promise<void>;
  /** Resolves once no report is on its way to the store. */
  drain(): Promise<void>;
  /** Notes that an assignment has arrived; rejects like `report`. */
  ack(fence: Fence & { environmentId: string }, leaseMs: number): Promise<void>;
  /** Extends the leases of a worker's jobs inside a transaction. */
  renew(session: Session, renewal: Parameters<typeof rows.renewLeases>[1]): Promise<void>;
  /** Who holds these leases now, in the order given. */
  leaseStates(asked: Parameters<typeof leaseStates>[1]): Promise<LeaseState[]>;
  /** Leases of a claim that shall go to other workers than they were claimed for. */
  handOver(handovers: readonly Handover[]): Promise<void>;
  /** `limited`: places of the demands whose functions have a limit; their runs are claimed by lane. */
  claim(input: ClaimInput): Promise<{ runs: ClaimedRow[]; limited: number[] }>;
  claimLimited(input: LimitedInput): Promise<{ runs: ClaimedRow[]; lanes: LaneFound[] }>;
  /** Lanes of a function with a limit that have queued runs: at most `limits.laneLookMax`, by id, from behind `after`. */
  lookAtLanes(target: { environmentId: string; functionId: string }, after: string): Promise<LaneLook>;
  /** Runs that were created before their function had a limit count against it from now on. */
  adopt(target: { environmentId: string; functionId: string }): Promise<void>;
  /** The tick of loop `runs.lanes`: forgets idle lanes, adopts what nodes of an earlier version have queued. */
  tidyLanes(write: Store["write"]): Promise<void>;
  /** What handlers of these runs need not do again, in order. */
  completedSteps(runIds: readonly string[]): Promise<Map<string, CompletedStep[]>>;
  /** The tick of loop `runs.wake`: moves all that is due; answers in how many milliseconds the next is. */
  wakeOnce(): Promise<{ againInMs?: number }>;
  /** Brings runs that wait for events on, and ends those that events cancel. */
  matcher: Matcher;
  /** The tick of loop `runs.children`. */
  childrenOnce: Children["moveOnce"];
}

export interface RunsDeps {
  store: Store;
  clock: Clock;
  log: Log;
  watch: Watch;
  definitionOf: ReportsDeps["definitionOf"];
  /** Lanes that have got work. */
  onQueued: (lanes: readonly QueueHint[]) => void;
  /** A worker let a lease end without a word. */
  onSilent: (worker: { environmentId: string; workerId: string }) => void;
  /** Told after the commit of runs that ended on this node. */
  onEnded: (runIds: readonly string[]) => void;
  /** The same of runs that began, and of all that was reported. */
  onClaimed?: (runs: readonly ClaimedRow[]) => void;
  onMoved?: (settlements: readonly ExecutionChange[]) => void;
  /** Of steps that were reported. */
  steps?: StepMoves;
  /** An execution's next wake was planned for then: the wake loop shall look by that time. */
  onWakePlanned: (at: Instant) => void;
  /** Starts a child (see `Children`). */
  invoke: ChildrenDeps["invoke"];
  /** Ask for a tick of `matcher.matchOnce` and of `childrenOnce` now. */
  wakeMatcher: () => void;
  wakeChildren: () => void;
}

/** A due row that somebody holds is looked at again after this, not at once. */
const wakeEveryMsMin = 20;

export function openRuns(deps: RunsDeps): Runs {
  const { store, clock, log, onQueued } = deps;
  const { metrics } = deps.watch;
  const tally = notifyingTally(openTally(metrics), deps.onEnded, deps.onMoved, (settlements, now) => {
    if (deps.steps) publishReportedSteps(deps.steps, settlements, now);
  });
  const onChildren = deps.wakeChildren;
  const matcher = openMatcher({
    store,
    clock,
    onQueued,
    onCancelled(runIds) {
      tally?.ended("cancelled", runIds, clock.now());
      onChildren();
    },
    wakeLoop: deps.wakeMatcher,
  });
  const onFailed = (runs: readonly { runId: string; environmentId: string }[]) => {
    if (runs.length === 0) return;
    tally?.ended("failed", idsOf(runs), clock.now());
    onChildren();
  };
  const children = openChildren({ store, clock, log, invoke: deps.invoke, onQueued, onFailed });
  const reports = openReports({ ...deps, onWaiting: matcher.wake, onChildren }, tally);
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
  const { wakes, timeouts } = openWakes({ ...deps, matcher, onFailed });
  return {
    report: reports.submit,
    release: (fence) => reports.release(fence),
    noteRefusal: async (refusal) =>
      void (await store.write((session) => noteRefusal(session, refusal, clock.now()))),
    putOff: openPutOff({ store, clock, report: reports.submit, release: reports.release }),
    async ack(fence, leaseMs) {
      const now = clock.now();
      const times = { now, leaseUntil: now + leaseMs };
      if (await store.write((session) => rows.ackExecution(session, fence, times))) return;
      const [why] = await whyRefused(store, [fence]);
      throw why;
    },
    drain: reports.drain,
    renew: rows.renewLeases,
    leaseStates: (asked) => leaseStates(store, asked),
    handOver: (handovers) => store.write((session) => handOver(session, handovers)),
    matcher,
    childrenOnce: children.moveOnce,
    async claim(input) {
      const rows = await store.flush(claimFlush, input);
      const runs = rows.filter(isRun);
      deps.onClaimed?.(runs);
      return { runs, limited: rows.flatMap((row) => (row.rank === 0 ? row.lane : [])) };
    },
    async claimLimited(input) {
      const rows = await store.flush(claimLimitedFlush, input);
      const runs = rows.filter(isRun);
      deps.onClaimed?.(runs);
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
      for (const { environment_id, id } of await limitedFunctions(store))
        await adoptAll(write, { environmentId: environment_id, functionId: id });
    },
    completedSteps: (runIds) => rows.completedSteps(store, runIds),

    async get(environmentId, runId) {
      const run = await rows.getRun(store, environmentId, runId);
      if (!run) throw missing("run", runId);
      return run;
    },

    async list(environmentId, input) {
      const filter = toFilter(environmentId, input);
      if (input.cursor !== undefined && (input.offset ?? 0) > 0)
        throw invalid("cursor", "cannot be combined with offset");
      const limit = pageSize(input.limit);
      const after = input.cursor === undefined ? undefined : readCursor("cursor", input.cursor);
      const [found, totalCount] = await Promise.all([
        rows.listRuns(store, filter, {
          ...(after && { after }),
          limit: limit + 1,
          offset: input.offset ?? 0,
        }),
        rows.countRuns(store, filter),
      ]);
      const runs = found.slice(0, limit);
      const last = runs.at(-1);
      const nextCursor =
        found.length > limit && last ? writeCursor({ at: last.createdAt, id: last.id }) : undefined;
      return { runs, nextCursor, totalCount };
    },

    async steps(environmentId, runId) {
      const steps = await rows.getSteps(store, environmentId, runId);
      if (steps.length === 0 && !(await rows.getRun(store, environmentId, runId)))
        throw missing("run", runId);
      return steps;
    },

    endHeld: (session, ends) => endRuns(session, ends, clock.now()),
    finishResumes: (session, runIds) => finishResumes(session, runIds, clock.now()),
    neverWakesAt,
    cancelQueued: (session, target) => cancelQueued(session, { ...target, now: clock.now() }),
    cancelled(runIds) {
      tally?.ended("cancelled", runIds, clock.now());
      if (runIds.length > 0) onChildren();
    },

    async wakeOnce() {
      await roundRobin([wakes, timeouts], { clock, limit: wakeSliceMax });
      const next = await rows.nextWakeAt(store);
      return next === undefined ? {} : { againInMs: Math.max(wakeEveryMsMin, next - clock.now()) };
    },
  };
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

const idsOf = (list: readonly { runId: string }[]) => list.map((one) => one.runId);

function toFilter(environmentId: string, input: ListRunsInput): rows.RunFilter {
  const statuses = (input.statuses ?? []).map((text) => {
    const status = parseRunStatus(text);
    if (!status) throw invalid("statuses", `"${text.slice(0, 40)}" is no run status`);
    return status;
  });
  const instant = (field: string, text: string) => {
    const at = parseRfc3339(text);
    if (at === undefined)
      throw new Fault("invalid_argument", `invalid '${field}' parameter: must be RFC3339`, { field });
    return at;
  };
  if (input.search !== undefined && input.search.length > searchBytesMax)
    throw invalid("search", `at most ${searchBytesMax} characters`);
  return {
    environmentId,
    statuses,
    ...(input.functionId && { functionId: input.functionId }),
    ...(input.eventId && { eventId: input.eventId }),
    ...(input.search && { search: input.search }),
    ...(input.since && { since: instant("since", input.since) }),
    ...(input.until && { until: instant("until", input.until) }),
  };
}
