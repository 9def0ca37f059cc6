import { Type } from "@sinclair/typebox";
import { batchesOperations } from "../domain/engine/batches/operations.ts";
import { leastPosition as leastBatched } from "../domain/engine/batches/rows.ts";
import { type BatchStarts, batchesCheck, openBatchStarts } from "../domain/engine/batches/service.ts";
import { debounceOperations } from "../domain/engine/debounce/operations.ts";
import { leastPosition } from "../domain/engine/debounce/rows.ts";
import { type Debounce, debounceCheck, openDebounce } from "../domain/engine/debounce/service.ts";
import { type Dispatcher, openDispatcher, openGiveBack } from "../domain/engine/dispatch/dispatcher.ts";
import { openUnsent } from "../domain/engine/dispatch/unsent.ts";
import { newRun } from "../domain/engine/emit/new-runs.ts";
import type { DefinitionsCache } from "../domain/engine/functions/definition.ts";
import { openDefinitionAt, openDefinitions } from "../domain/engine/functions/definitions.ts";
import { functionsOperations } from "../domain/engine/functions/operations.ts";
import { raiseDefinitions } from "../domain/engine/functions/register.ts";
import { functionsCheck, openFunctions } from "../domain/engine/functions/service.ts";
import { requireFewFiltered } from "../domain/engine/functions/trigger-patterns.ts";
import { leaseHashOf } from "../domain/engine/jobs/rules.ts";
import { quotasOperations } from "../domain/engine/quotas/operations.ts";
import { openQuotas } from "../domain/engine/quotas/service.ts";
import { openAttributeNames } from "../domain/engine/runs/attributes/attribute-names.ts";
import { openRunEnds, type RunEnds } from "../domain/engine/runs/children/run-ends.ts";
import { runChecks, statesCheck } from "../domain/engine/runs/invariants.ts";
import { openLateStarts } from "../domain/engine/runs/late-start.ts";
import { RunObservers } from "../domain/engine/runs/observer.ts";
import { runsOperations } from "../domain/engine/runs/operations.ts";
import { outputOperations } from "../domain/engine/runs/outputs/operations.ts";
import { pinOperations } from "../domain/engine/runs/pins/operations.ts";
import { knowsPins, openPins, type Pins, type PinsDeps } from "../domain/engine/runs/pins/pins.ts";
import { openRuns, type Runs } from "../domain/engine/runs/service.ts";
import { signalOperations } from "../domain/engine/runs/signals/operations.ts";
import { openRunSpans } from "../domain/engine/runs/spans.ts";
import { publishingSteps } from "../domain/engine/runs/step-moves.ts";
import { leastUnmatched } from "../domain/engine/runs/waits/wait-rows.ts";
import type { QueueHint } from "../domain/engine/runs/wakes/due.ts";
import type { SecretValues } from "../domain/engine/secrets/service.ts";
import { ConnectedWorkers } from "../domain/engine/serving/service.ts";
import { readSchemas } from "../domain/log/schemas/governed.ts";
import { tellingCapacity } from "../domain/realtime/pubsub/changes.ts";
import { functionFrames, unservedFrames, workerFrames } from "../domain/realtime/pubsub/lifecycle-frames.ts";
import { openRunFrames } from "../domain/realtime/pubsub/run-frames.ts";
import { openStepFrames } from "../domain/realtime/pubsub/step-frames.ts";
import type { Flow } from "../domain/record/flow/service.ts";
import { type LoopOptions, Waker } from "../kit/loop.ts";
import { everyNodeSays } from "../nodes/duties.ts";
import { guardOf } from "./outward.ts";
import type { Host, PartShape } from "./part.ts";

export interface RunsNeeds {
  /** Tells the other nodes about queues that have got work. */
  publishQueued: (queues: readonly QueueHint[]) => void;
  flow: Flow;
  /** Values of secrets that exist, by name: no line of a run holds one. */
  secretValues: SecretValues["of"];
}

export type RunsPart = ReturnType<typeof openRunsPart>;

type Wakers = Record<"wake" | "matcher" | "states" | "children" | "debounce" | "batches", Waker>;

/** The node that fires cron triggers takes up changed ones at once. */
const CronChanged = Type.Object({ from: Type.String() });

/** Who reads an output at another node looks at once. */
const OutputWritten = Type.Object({ from: Type.String(), runId: Type.String() });

/** Functions, their runs, and the queues that runs wait in. */
export function openRunsPart(host: Host, { publishQueued, flow, secretValues }: RunsNeeds) {
  const { config, store, clock, ids, log, watch, frames, bus, knowsTime, changes } = host;
  const wakers = newWakers();
  /** Tells of what other parts do to runs. */
  const observers = new RunObservers();
  const onQueued = observers.queued;
  const definitionAt = openDefinitionAt(store);
  const ends = openRunEnds({ store, clock, bus, self: ids.uuid() });
  const runFrames = tellingCapacity(openRunFrames({ store, clock, log, frames }), () =>
    changes.ofPlatform("capacity"),
  );
  const stepFrames = openStepFrames({ store, clock, log, frames });
  const spans = openRunSpans({ store, log, tracer: watch.tracer });
  observers.add({
    ...{ created: runFrames.created, claimed: runFrames.claimed, moved: runFrames.moved },
    ended(over) {
      const runIds = over.map(({ runId }) => runId);
      for (const one of [ends, runFrames, spans]) one.ended(runIds);
    },
  });
  observers.add({ created: flow.started, ended: flow.ended, awaited: flow.awaited });
  const names = openAttributeNames({ store, clock, shareEnvironment: host.shareEnvironment });
  const written = bus.channel("runs.outputs", OutputWritten);
  const runs = openRuns({
    ...{ store: publishingSteps(store, stepFrames), clock, log, watch, names },
    ...{ observers, wakers, secretValues, steps: stepFrames, definitionOf: definitionAt },
    outputNews: {
      tell(runId) {
        if (bus.kind === "nats") written.publish({ from: host.nodeId, runId });
      },
      // Nodes on one PostgreSQL database without NATS do not hear of each other.
      hearsAll: () => bus.connected() && (bus.kind === "nats" || !store.isShared),
      watchEnd: ends.watch,
    },
  });
  written.listen(({ from, runId }) => {
    if (from !== host.nodeId) runs.outputs.wake(runId);
  });
  bus.onConnection(runs.outputs.wakeEvery);
  const back = openGiveBack({ runs, log, onQueued });
  const onUnsent = openUnsent({ runs, log, underWay: back.underWay });
  const dispatcher = openDispatcher({
    ...{ runs, clock, ids, log, back, onUnsent, tracer: watch.tracer },
    ...{ leaseMs: config.leaseMs, mayClaim: knowsTime },
  });
  const publishWorker = workerFrames(frames, clock);
  observers.add({
    queued(hints) {
      for (const { inMs } of hints) if (inMs !== undefined) wakers.wake.wakeIn(inMs);
      const queues = hints.filter(({ inMs }) => inMs === undefined);
      if (queues.length === 0) return;
      dispatcher.queued(queues);
      publishQueued(queues);
      changes.ofPlatform("capacity");
    },
    silent(worker) {
      dispatcher.distrust(worker);
      publishWorker({ ...worker, change: "health", healthy: false, draining: false });
    },
  });
  const starts = openLateStarts({ store, clock, ids, log, newRun, definitionOf: definitionAt });
  const quotas = openQuotas({ store, clock, raiseDefinitions });
  const later = { store, clock, log, starts, quotas, onQueued, onCreated: observers.created, knowsTime };
  const debounce = openDebounce({ ...later, fireIn: wakers.debounce.wakeIn });
  const batches = openBatchStarts({ ...later, wake: wakers.batches.wake });
  const serving = servingOf(host);
  const definitions = openDefinitions(store, async (environmentId, before) => {
    const [schemas] = await Promise.all([
      readSchemas(store, environmentId, before),
      serving.warm(environmentId),
    ]);
    return schemas;
  });
  const cron = cronHints(host);
  const pins = pinsOf(host, { definitions, onQueued, onMoved: runFrames.moved });
  const functions = openFunctions({
    ...{ store, clock, ids, log, guard: guardOf(config) },
    activated: (target) => onQueued([target]),
    cancelQueued: runs.cancelQueued,
    cancelled: runs.cancelled,
    async onDelete(session, target) {
      await debounce.dropFunction(session, target);
      await batches.dropFunction(session, target);
    },
    ...{ announce: cron.heard(functionFrames(frames)), declareAttributes: names.declare },
    async requireRoomFor(environmentId, definition) {
      if (definition.triggers.some(({ expression }) => expression !== undefined))
        requireFewFiltered(await definitions.of(environmentId), definition);
    },
    async limitChanged(target, before) {
      if (before === undefined) await runs.adopt(target);
      onQueued([target]);
    },
  });

  return {
    ...{ runs, functions, definitions, definitionAt, dispatcher, back, onUnsent, observers },
    ...{ debounce, batches, quotas, ends, names, runFrames, stepFrames, publishWorker, serving },
    /** Asks the loop that starts child runs for a tick. */
    ...{ childWaker: wakers.children, cronWaker: cron.waker },
    operations: [
      ...debounceOperations(debounce),
      ...batchesOperations(batches),
      ...functionsOperations(functions, serving),
      ...runsOperations(runs, serving),
      ...signalOperations(runs.signals),
      ...outputOperations(runs.outputs, leaseHashOf),
      ...pinOperations(pins),
      ...quotasOperations(quotas),
    ],
    loops: loopsOf({ runs, debounce, batches, ends, dispatcher }, wakers),
    ...upkeepOf(host, runs, definitions, pins),
    async settled() {
      await Promise.all([runs.drain(), dispatcher.drain()]);
      await spans.drain();
    },
  } satisfies PartShape;
}

const newWakers = (): Wakers => ({
  ...{ wake: new Waker(), matcher: new Waker(), states: new Waker() },
  ...{ children: new Waker(), debounce: new Waker(), batches: new Waker() },
});

function cronHints({ bus, nodeId }: Host) {
  const waker = new Waker();
  const changed = bus.channel("schedules.changed", CronChanged);
  changed.listen(({ from }) => {
    if (from !== nodeId) waker.wake();
  });
  type Announce = ReturnType<typeof functionFrames>;
  return {
    waker,
    heard:
      (announce: Announce): Announce =>
      (told) => {
        announce(told);
        if (!told.record.definition.triggers.some(({ cron }) => cron !== undefined)) return;
        waker.wake();
        if (bus.kind === "nats") changed.publish({ from: nodeId });
      },
  };
}

const pinsOf = (host: Host, more: Pick<PinsDeps, "definitions" | "onQueued" | "onMoved">) => {
  const { store, clock } = host;
  return openPins({ store, clock, ...more, everyNodeKnows: everyNodeSays(knowsPins, host) });
};

const servingOf = ({ store, clock, log, watch, frames }: Host) =>
  new ConnectedWorkers({
    ...{ store, clock, log, metrics: watch.metrics },
    announce: unservedFrames(frames, clock),
  });

function upkeepOf(
  { store, clock }: Host,
  runs: Runs,
  definitions: DefinitionsCache,
  pins: Pins,
): Pick<PartShape, "duties" | "checks" | "floorGuards"> {
  return {
    duties: [
      {
        duty: "retention",
        name: "runs.lanes",
        about: "Deletes idle queues, and brings runs that are older than a limit under it.",
        everyMs: 30_000,
        tick: runs.tidyLanes,
      },
      {
        duty: "retention",
        name: "runs.pins",
        about:
          "Holds runs whose deployment has no worker any more, and queues them again when one comes; they move when their time is over.",
        everyMs: 1_000,
        tick: pins.lookOnce,
      },
    ],
    checks: [
      ...runChecks(store, clock),
      statesCheck(store, clock),
      debounceCheck(store, clock),
      batchesCheck(store, clock),
      functionsCheck(store, definitions),
    ],
    floorGuards: [
      (environmentId) => leastPosition(store, environmentId),
      (environmentId) => leastBatched(store, environmentId),
      (environmentId) => leastUnmatched(store, environmentId),
    ],
  };
}

interface Looked {
  runs: Runs;
  debounce: Debounce;
  batches: BatchStarts;
  ends: RunEnds;
  dispatcher: Dispatcher;
}

function loopsOf({ runs, debounce, batches, ends, dispatcher }: Looked, wakers: Wakers): LoopOptions[] {
  return [
    {
      name: "runs.wake",
      about:
        "Moves runs whose lease, sleep, retry or timeout is due; woken early for what this node planned.",
      everyMs: 1_000,
      waker: wakers.wake,
      tick: runs.wakeOnce,
    },
    {
      name: "debounce.fire",
      about:
        "Starts the runs of debounced functions whose quiet time is over; woken early for what this node armed.",
      everyMs: 1_000,
      waker: wakers.debounce,
      tick: debounce.fireOnce,
    },
    {
      name: "batches.close",
      about:
        "Starts the runs of batches that are full or whose time is over; woken early for what joined here.",
      everyMs: 500,
      waker: wakers.batches,
      tick: batches.closeOnce,
    },
    {
      name: "runs.deadlines",
      about: "Cancels runs that have not begun in time, and those whose singleton has a newer run.",
      everyMs: 500,
      tick: runs.deadlinesOnce,
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
      waker: wakers.matcher,
      tick: runs.matcher.matchOnce,
    },
    {
      name: "runs.states",
      about:
        "Wakes runs that wait for versions of entities, changes of keys and ends of children; woken by what is written here.",
      everyMs: 1_000,
      waker: wakers.states,
      tick: runs.states.lookOnce,
    },
    {
      name: "workers.dispatch",
      about: "Looks for work in every queue that a worker here waits for, in case a hint was lost.",
      everyMs: 1_000,
      tick: dispatcher.lookOnce,
    },
  ];
}
