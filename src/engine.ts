import type { Bus } from "./bus/bus.ts";
import type { DutyLoop } from "./cluster/duties.ts";
import type { Keyring } from "./domain/access/keyring/service.ts";
import type { Tenancy } from "./domain/access/tenancy/service.ts";
import { breakersOperations } from "./domain/engine/breakers/operations.ts";
import { openBreakers } from "./domain/engine/breakers/service.ts";
import { openAskNodes } from "./domain/engine/capacity/node-requests.ts";
import { capacityOperations } from "./domain/engine/capacity/operations.ts";
import { openCapacity } from "./domain/engine/capacity/service.ts";
import { debounceOperations } from "./domain/engine/debounce/operations.ts";
import { openDebounce } from "./domain/engine/debounce/service.ts";
import { openAssignments } from "./domain/engine/dispatch/assignments.ts";
import { openDispatcher } from "./domain/engine/dispatch/dispatcher.ts";
import { openGiveBack } from "./domain/engine/dispatch/give-back.ts";
import { definitionUnread, openUnsent } from "./domain/engine/dispatch/unsent.ts";
import { openDefinitions } from "./domain/engine/functions/definitions.ts";
import { requireFewFiltered } from "./domain/engine/functions/filtered-triggers.ts";
import { functionsOperations } from "./domain/engine/functions/operations.ts";
import { type Functions, openFunctions } from "./domain/engine/functions/service.ts";
import { unknownFunctions } from "./domain/engine/functions/unknown-functions.ts";
import { openEndpointCaller } from "./domain/engine/push/endpoint-call.ts";
import { openPush } from "./domain/engine/push/service.ts";
import { openRunEnds } from "./domain/engine/runs/children/run-ends.ts";
import { runsOperations } from "./domain/engine/runs/operations.ts";
import { openRuns, type Runs } from "./domain/engine/runs/service.ts";
import { publishingSteps } from "./domain/engine/runs/step-moves.ts";
import type { QueueHint } from "./domain/engine/runs/wakes/due.ts";
import { openSchedules } from "./domain/engine/schedules/service.ts";
import { secretsOperations } from "./domain/engine/secrets/operations.ts";
import { openSecrets, type Secrets } from "./domain/engine/secrets/service.ts";
import { startsOperations } from "./domain/engine/starts/operations.ts";
import { openStarts } from "./domain/engine/starts/service.ts";
import { openControls } from "./domain/engine/steering/controls.ts";
import { steeringOperations } from "./domain/engine/steering/operations.ts";
import { openSteering } from "./domain/engine/steering/service.ts";
import { workersOperations } from "./domain/engine/workers/operations.ts";
import { openWorkers, type Workers } from "./domain/engine/workers/service.ts";
import { newRun } from "./domain/log/events/new-runs.ts";
import { eventsOperations } from "./domain/log/events/operations.ts";
import { type Events, openEvents } from "./domain/log/events/service.ts";
import { type Feeds, openFeeds } from "./domain/log/log/feed.ts";
import { eventReads } from "./domain/log/log/past.ts";
import { openEventLog } from "./domain/log/log/service.ts";
import type { Frames } from "./domain/realtime/pubsub/frames.ts";
import {
  cronFrames,
  functionFrames,
  secretFrames,
  workerFrames,
} from "./domain/realtime/pubsub/lifecycle-frames.ts";
import { openRunFrames } from "./domain/realtime/pubsub/run-frames.ts";
import { openStepFrames } from "./domain/realtime/pubsub/step-frames.ts";
import type { CallTrail } from "./domain/record/history/operations.ts";
import { addressGuard } from "./kit/addresses.ts";
import type { Clock, Instant } from "./kit/clock.ts";
import type { Ids } from "./kit/ids.ts";
import { pushAnswerBytesMax } from "./kit/limits.ts";
import type { Log } from "./kit/log.ts";
import type { LoopOptions } from "./kit/loop.ts";
import type { Operation } from "./kit/operation.ts";
import type { Watch } from "./kit/watch.ts";
import { openOutboxPart } from "./outbox.ts";
import type { Config } from "./settings.ts";
import type { Store } from "./store/store.ts";
import { openUpkeep } from "./upkeep.ts";

export interface EnginePart {
  functions: Functions;
  runs: Runs;
  workers: Workers;
  events: Events;
  feeds: Feeds;
  operations: readonly Operation[];
  loops: readonly LoopOptions[];
  /** What one node does for all. */
  duties: readonly DutyLoop[];
  /** Lanes that another node says have got work. */
  queuedElsewhere(lanes: readonly QueueHint[]): void;
  /** The environment is gone: nothing of it is handed out any more. */
  letGo(environmentId: string): void;
  /** Held polls are answered; no more work is handed out. */
  drain(): Promise<void>;
  secrets: Secrets;
  /** What is out of balance, as far as this node has looked. */
  warnings(): string[];
  /** Resolves once nothing that was asked for is on its way to the store. */
  settled(): Promise<void>;
}

export interface EngineDeps {
  config: Pick<
    Config,
    | "leaseMs"
    | "pollHoldMs"
    | "drainMs"
    | "capacityAdmission"
    | "eventRetentionDays"
    | "runRetentionDays"
    | "pushTimeoutMs"
    | "pushAllowPrivate"
    | "dev"
    | "natsMirror"
    | "busPayloadMax"
    | "outboxAttempts"
  >;
  keyring: Pick<Keyring, "seal" | "unseal" | "isCurrent" | "refresh" | "current">;
  tenancy: Pick<Tenancy, "shareEnvironment">;
  store: Store;
  /** Tells subscribers what happens to functions and runs. */
  frames: Frames;
  clock: Clock;
  ids: Ids;
  log: Log;
  watch: Watch;
  bus: Bus;
  /** Tells the other nodes about lanes that have got work. */
  tellOthers: (lanes: readonly QueueHint[]) => void;
  /** False while this node is not sure of the time: it claims nothing then. */
  knowsTime: () => boolean;
  /** Asks the wake loop to look by then. */
  wakeBy: (at: Instant) => void;
  /** Asks any loop to look in so many milliseconds at the latest. */
  wakeLoop: (name: string, inMs: number) => void;
  /** Asks a loop for a tick now. */
  wake: (loop: string) => void;
  nodeId: string;
  isDraining: () => boolean;
  /** What callers did, for the trail. */
  callTrail?: CallTrail;
}

/** What turns events into finished runs, put together: functions, runs, workers, events, low to high. */
export function openEngine(deps: EngineDeps): EnginePart {
  const { config, store, clock, ids, log, watch } = deps;
  const onQueued = (lanes: readonly QueueHint[]) => {
    dispatcher.queued(lanes);
    deps.tellOthers(lanes);
  };
  const ends = openRunEnds({ store, clock, bus: deps.bus, self: ids.uuid() });
  const runFrames = openRunFrames({ store, log, frames: deps.frames });
  const tellWorker = workerFrames(deps.frames, clock);
  const stepFrames = openStepFrames({ store, log, frames: deps.frames });
  const storeOfSteps = publishingSteps(store, stepFrames);
  const runs = openRuns({
    store: storeOfSteps,
    clock,
    log,
    watch,
    definitionOf: (environmentId, functionId, version) =>
      functions.definitionAt(environmentId, functionId, version),
    onQueued,
    onSilent(worker) {
      dispatcher.distrust(worker);
      tellWorker({ ...worker, change: "health", healthy: false, draining: false });
    },
    onEnded(runIds) {
      ends.ended(runIds);
      runFrames.ended(runIds);
    },
    onClaimed: runFrames.claimed,
    onMoved: runFrames.moved,
    steps: stepFrames,
    onWakePlanned: deps.wakeBy,
    invoke: (draft, origin) => events.invoke(draft, origin),
    wakeLoop: deps.wake,
  });
  const functions = openFunctions({
    store,
    clock,
    ids,
    activated: (target) => onQueued([target]),
    cancelQueued: runs.cancelQueued,
    cancelled: runs.cancelled,
    onDelete: (session, target) => debounce.dropFunction(session, target),
    announce: functionFrames(deps.frames),
    async requireRoomFor(environmentId, definition) {
      if (definition.triggers.some(({ expression }) => expression !== undefined))
        requireFewFiltered(await definitions.of(environmentId), definition);
    },
    async limitChanged(target, before) {
      if (before === undefined) await runs.adopt(target);
      onQueued([target]);
    },
  });
  const { leaseMs } = config;
  const back = openGiveBack({ runs, log, onQueued });
  const onUnsent = openUnsent({ runs, log, underWay: back.underWay });
  const dispatcher = openDispatcher({
    runs,
    clock,
    ids,
    log,
    leaseMs,
    back,
    onUnsent,
    mayClaim: deps.knowsTime,
    tracer: watch.tracer,
  });
  const definitions = openDefinitions(store);
  const { shareEnvironment } = deps.tenancy;
  const secrets = openSecrets({ ...deps, shareEnvironment, announce: secretFrames(deps.frames) });
  const handing = openAssignments({
    dispatcher,
    definitions,
    definitionAt: functions.definitionAt,
    secrets,
    onUnsent,
    log,
  });
  const workers = openWorkers({
    store,
    shareEnvironment,
    clock,
    dispatcher: { ...dispatcher, poll: handing.toWorker },
    definitions,
    runs,
    log,
    leaseMs,
    drainMs: config.drainMs,
    unknownFunctions: (environmentId, ids) => unknownFunctions(store, environmentId, ids),
    back,
    holdMs: config.pollHoldMs,
    admission: config.capacityAdmission,
    metrics: watch.metrics,
    announce: tellWorker,
  });
  const breakers = openBreakers({ store, clock, log });
  const push = openPush({
    store,
    clock,
    log,
    metrics: watch.metrics,
    nodeId: deps.nodeId,
    assignments: handing,
    breakers,
    definitionAt: functions.definitionAt,
    call: openEndpointCaller({
      clock,
      guard: addressGuard(config.pushAllowPrivate ?? (config.dev ? ["127.0.0.0/8", "::1"] : [])),
      answerBytesMax: pushAnswerBytesMax,
    }),
    signingKey: () => deps.keyring.current("signing_key").secret,
    giveBack: back.giveBack,
    onDefinitionUnread: (job, error) => onUnsent(job, definitionUnread(job, error)),
    report: (job, report) => workers.reportOf(job, report),
    // The lease must not end while somebody still waits for the answer.
    timeoutMs: Math.min(config.pushTimeoutMs, Math.floor(leaseMs * 0.8)),
  });
  const debounce = openDebounce({
    store,
    clock,
    ids,
    log,
    definitionOf: functions.definitionAt,
    newRun,
    onQueued,
    onCreated: runFrames.created,
    fireIn: (ms) => deps.wakeLoop("debounce.fire", ms),
    knowsTime: deps.knowsTime,
  });
  const { bus } = deps;
  const controls = openControls({ clock, send: (payload) => bus.hint("runs.control", payload) });
  bus.onHint("runs.control", (payload) => controls.receive(new TextDecoder().decode(payload)));
  controls.onControl(({ kind, workerId, ...message }) => {
    if (kind === "cancel" && workerId !== null) workers.cancelled({ ...message, workerId });
  });
  const promises = openOutboxPart(deps);
  const steering = openSteering({
    store: storeOfSteps,
    clock,
    log,
    controls,
    enqueue: promises.control,
    runs,
    onPatched: stepFrames.patched,
    onResumed: runFrames.resumed,
    onMoved: runFrames.moved,
    definitionOf: functions.definitionAt,
    onQueued,
  });
  const feeds = openFeeds({
    reads: eventReads(store),
    log,
    hasOthers: () => bus.kind === "nats" && bus.present().length > 1,
    publishHint: (hint) => bus.hint(`log.${hint.environmentId}`, JSON.stringify(hint)),
    listen: (environmentId, heard) =>
      bus.onHint(`log.${environmentId}`, (payload) => heard(JSON.parse(new TextDecoder().decode(payload)))),
  });
  const events = openEvents({
    store,
    clock,
    ids,
    definitions,
    dispatcher,
    onQueued,
    onArmed: debounce.armed,
    onCreated: runFrames.created,
    feeds,
    matcher: runs.matcher,
    watch,
  });
  const eventLog = openEventLog(store);
  const tellCron = cronFrames(deps.frames);
  const schedules = openSchedules({
    store,
    clock,
    log,
    definitions,
    events,
    self: ids.uuid(),
    onFrame(frame) {
      log.info(`cron.${frame.leaf}`, { ...frame });
      tellCron(frame);
    },
  });
  const starts = openStarts({
    events,
    ends,
    cancelRun: async (environmentId, runId) =>
      void (await steering.cancel(environmentId, runId, "the caller of a synchronous start went away")),
  });
  const { nodeId, isDraining } = deps;
  const askNodes = openAskNodes({ bus, log, nodeId, isDraining, facts: dispatcher.facts });
  const capacity = openCapacity({ store, askNodes });

  const { floorGuards, checks } = promises;
  const upkeep = openUpkeep({
    ...{ config, store, clock, log, watch, functions, runs, onQueued, floorGuards, checks },
    callTrail: deps.callTrail,
  });

  return {
    functions,
    runs,
    secrets,
    workers,
    events,
    feeds,
    operations: [
      ...eventsOperations(events, eventLog),
      ...startsOperations(starts),
      ...debounceOperations(debounce),
      ...functionsOperations(functions),
      ...runsOperations(runs),
      ...steeringOperations(steering),
      ...secretsOperations(secrets),
      ...breakersOperations(breakers),
      ...workersOperations(workers),
      ...capacityOperations(capacity),
      ...upkeep.operations,
      ...promises.operations,
    ],
    loops: [
      {
        name: "runs.wake",
        about:
          "Moves runs whose lease, sleep, retry or timeout is due; woken early for what this node planned.",
        everyMs: 1_000,
        tick: runs.wakeOnce,
      },
      {
        name: "debounce.fire",
        about:
          "Starts the runs of debounced functions whose quiet time is over; woken early for what this node armed.",
        everyMs: 1_000,
        tick: debounce.fireOnce,
      },
      {
        name: "runs.ends",
        about: "Looks in one query for the ends of all runs that callers at this node wait for.",
        everyMs: 250,
        tick: ends.lookOnce,
      },
      {
        name: "runs.matcher",
        about:
          "Reads the log of every environment to its head and wakes runs that wait for its events; woken by what is logged here.",
        everyMs: 1_000,
        tick: runs.matcher.matchOnce,
      },
      {
        name: "runs.children",
        about:
          "Starts child runs and tells parent runs how their children ended; woken by what is settled here.",
        everyMs: 1_000,
        tick: runs.childrenOnce,
      },
      {
        name: "push.look",
        about: "Finds the functions in push mode and takes jobs for each of them.",
        everyMs: 1_000,
        tick: push.lookOnce,
      },
      {
        name: "breakers.look",
        about: "Reads which push endpoints other nodes found in trouble, and when each may be tried again.",
        everyMs: 1_000,
        tick: async () => void (await breakers.lookOnce()),
      },
      {
        name: "workers.dispatch",
        about: "Looks for work in every queue that a worker here waits for, in case a hint was lost.",
        everyMs: 1_000,
        tick: dispatcher.lookOnce,
      },
      {
        name: "log.feeds",
        about:
          "Compares how far readers here have read with the heads of the event logs, in case a hint was lost.",
        everyMs: 1_000,
        tick: feeds.compareOnce,
      },
      {
        name: "workers.streams",
        about:
          "Looks at worker streams: acks that did not come, leases that ended, workers that fell silent.",
        everyMs: 1_000,
        tick: workers.lookOnce,
      },
      {
        name: "workers.signs",
        about: "Writes the heartbeats of workers that this node has heard from.",
        everyMs: 5_000,
        tick: workers.flushHeartbeats,
      },
      ...upkeep.loops,
    ],
    duties: [
      {
        duty: "cron",
        name: "schedules.tick",
        about: "Takes up changed cron triggers and fires the slots that are due.",
        everyMs: 1_000,
        tick: schedules.tickOnce,
      },
      {
        duty: "retention",
        name: "workers.forget",
        about: "Deletes the records of workers that have long been silent.",
        everyMs: 60_000,
        tick: workers.forgetOnce,
      },
      {
        duty: "retention",
        name: "breakers.forget",
        about: "Deletes breakers of push endpoints that nobody has called for a day.",
        everyMs: 10 * 60_000,
        tick: breakers.forgetOnce,
      },
      {
        duty: "retention",
        name: "runs.resumes",
        about: "Deletes the notes of resumed runs after two minutes.",
        everyMs: 60_000,
        tick: steering.forgetOnce,
      },
      {
        duty: "retention",
        name: "runs.lanes",
        about: "Deletes idle queues, and brings runs that are older than a limit under it.",
        everyMs: 30_000,
        tick: runs.tidyLanes,
      },
      {
        duty: "retention",
        name: "events.keys",
        about: "Deletes idempotency keys of events whose time is over.",
        everyMs: 10 * 60_000,
        tick: events.purgeOnce,
      },
      ...upkeep.duties,
      ...promises.duties,
    ],
    queuedElsewhere: dispatcher.queued,
    letGo(environmentId) {
      definitions.forget(environmentId);
      workers.forgetEnvironment(environmentId);
    },
    async drain() {
      ends.drain();
      await Promise.all([push.drain(), workers.drain(), dispatcher.drain()]);
      await Promise.all(back.underWay);
    },
    warnings: upkeep.warnings,
    async settled() {
      await Promise.all([
        events.drain(),
        runs.drain(),
        workers.drain(),
        dispatcher.drain(),
        promises.settled(),
      ]);
    },
  };
}
