import { Type } from "@sinclair/typebox";
import type { Keyring } from "../domain/access/keyring/service.ts";
import { attributesOperations } from "../domain/engine/attributes/operations.ts";
import { openAttributes } from "../domain/engine/attributes/service.ts";
import { capacityOperations } from "../domain/engine/capacity/operations.ts";
import { openAskNodes, openCapacity } from "../domain/engine/capacity/service.ts";
import type { Events } from "../domain/engine/emit/service.ts";
import { errorsOperations } from "../domain/engine/errors/operations.ts";
import { errorChecks, openErrorGroups } from "../domain/engine/errors/service.ts";
import type { DefinitionsCache } from "../domain/engine/functions/definition.ts";
import { definitionsVersion } from "../domain/engine/functions/rows.ts";
import { publishingSteps } from "../domain/engine/runs/step-moves.ts";
import type { QueueHint } from "../domain/engine/runs/wakes/due.ts";
import { schedulesOperations } from "../domain/engine/schedules/operations.ts";
import { openSchedules, scheduleChecks } from "../domain/engine/schedules/service.ts";
import { openSecretValues } from "../domain/engine/secrets/service.ts";
import { startsOperations } from "../domain/engine/starts/operations.ts";
import { openStarts } from "../domain/engine/starts/service.ts";
import { controlChannel, openControls } from "../domain/engine/steering/controls.ts";
import { steeringOperations } from "../domain/engine/steering/operations.ts";
import { openSteering, type Steering } from "../domain/engine/steering/service.ts";
import type { Workers } from "../domain/engine/workers/service.ts";
import type { Upcasts } from "../domain/log/schemas/service.ts";
import { cronFrames } from "../domain/realtime/pubsub/lifecycle-frames.ts";
import type { Flow } from "../domain/record/flow/service.ts";
import type { Usage } from "../domain/record/usage/service.ts";
import type { Store } from "../store/store.ts";
import type { EmitRights } from "./caller-now.ts";
import { openLog } from "./log.ts";
import type { OutboxPart } from "./outbox.ts";
import { foldParts, type Host, type Part, type PartShape } from "./part.ts";
import type { AppRights } from "./rights.ts";
import { openRunsPart, type RunsPart } from "./runs.ts";
import { openWorkersPart } from "./workers.ts";

export interface StartsNeeds {
  runsPart: RunsPart;
  events: Events;
  steering: Pick<Steering, "cancel">;
  may: AppRights["may"];
}

/**
 * What starts runs besides events: cron triggers, parent runs, and callers who wait for the end; and whether
 * there is room for more.
 */
function openStartsPart(host: Host, { runsPart, events, steering, may }: StartsNeeds): Part {
  const { store, clock, ids, log, bus, frames, nodeId, isDraining, watch } = host;
  const { definitions, dispatcher, ends, serving, runs, childWaker, cronWaker } = runsPart;
  const publishCron = cronFrames(frames);
  const schedules = openSchedules({
    ...{ store, clock, log, definitions, events },
    ...{ self: ids.uuid(), tracer: watch.tracer },
    onFrame(frame) {
      log.info(`cron.${frame.leaf}`, { ...frame });
      publishCron(frame);
    },
  });
  const starts = openStarts({
    events,
    ends,
    cancelRun: async (environmentId, runId) =>
      void (await steering.cancel(environmentId, runId, "the caller of a synchronous start went away")),
  });
  const askNodes = openAskNodes({ bus, log, nodeId, isDraining, facts: dispatcher.facts });
  const capacity = openCapacity({ store, askNodes, serving });
  return {
    operations: [
      ...startsOperations(starts),
      ...schedulesOperations(schedules, may),
      ...capacityOperations(capacity),
    ],
    loops: [
      {
        name: "runs.children",
        about:
          "Starts child runs and tells parent runs how their children ended; woken by what is settled here.",
        everyMs: 1_000,
        waker: childWaker,
        tick: runs.openChildren(events.invoke).moveOnce,
      },
    ],
    duties: [
      {
        duty: "cron",
        name: "schedules.tick",
        about:
          "Takes up changed cron triggers and fires the slots that are due; woken by changes at any node.",
        everyMs: 1_000,
        waker: cronWaker,
        tick: schedules.tickOnce,
      },
    ],
    checks: scheduleChecks(store, clock),
  };
}

export interface SteeringNeeds {
  runsPart: RunsPart;
  workers: Pick<Workers, "cancelled">;
  outbox: Pick<OutboxPart, "enqueueControl">;
}

/**
 * What people do to runs: cancel, pause, resume, and patch steps. The node whose worker holds the run hears
 * of it over the bus.
 */
function openSteeringPart(host: Host, needs: SteeringNeeds) {
  const { store, clock, log, bus } = host;
  const { runs, definitionAt, quotas, observers, runFrames, stepFrames } = needs.runsPart;
  const control = controlChannel(bus);
  const controls = openControls({ clock, send: control.publish });
  control.listen(controls.receive);
  controls.onControl(({ kind, workerId, ...message }) => {
    if (kind === "cancel" && workerId !== null) needs.workers.cancelled({ ...message, workerId });
  });
  /** The same through another store, for who adds to its transactions. */
  const steeringOn = (through: Store) =>
    openSteering({
      ...{ store: publishingSteps(through, stepFrames), clock, log, controls, runs },
      onQueued: observers.queued,
      enqueue: needs.outbox.enqueueControl,
      onPatched: stepFrames.patched,
      onResumed: runFrames.resumed,
      onMoved: runFrames.moved,
      definitionOf: definitionAt,
      noteRevived: quotas.noteRevived,
    });
  const steering = steeringOn(store);
  return {
    ...{ steering, steeringOn },
    operations: steeringOperations(steering),
    duties: [
      {
        duty: "retention",
        name: "runs.resumes",
        about: "Deletes the notes of resumed runs after two minutes.",
        everyMs: 60_000,
        tick: steering.forgetOnce,
      },
    ],
  } satisfies PartShape;
}

/** Groups of failures, which the flushes that end runs count. */
const openErrorsPart = ({ store }: Host): Part => ({
  operations: errorsOperations(openErrorGroups(store)),
  checks: errorChecks(store),
});

/** Names of attributes, listed and deleted. */
function openAttributesPart({ store, clock }: Host, definitions: DefinitionsCache): Part {
  const attributes = openAttributes({ store, clock, definitions, definitionsVersion });
  return {
    operations: attributesOperations(attributes),
    duties: [
      {
        duty: "retention",
        name: "attributes.purge",
        about:
          "Deletes the values of attributes whose names were deleted, a slice of each environment in turn.",
        everyMs: 1_000,
        tick: attributes.purgeOnce,
      },
    ],
  };
}

/** What a node tells the others: these queues have got work. */
const QueuedElsewhere = Type.Object({
  from: Type.String(),
  lanes: Type.Unsafe<readonly QueueHint[]>(
    Type.Array(
      Type.Object({
        environmentId: Type.String(),
        functionId: Type.String(),
        laneId: Type.Optional(Type.String()),
        freed: Type.Optional(Type.Boolean()),
        queued: Type.Optional(Type.Boolean()),
      }),
    ),
  ),
});

export type EnginePart = ReturnType<typeof openEngine>;

export interface EngineNeeds {
  keyring: Pick<Keyring, "seal" | "unseal" | "writeSealed" | "current">;
  outbox: Pick<OutboxPart, "enqueueControl" | "buryDelayed">;
  emitRights: EmitRights;
  may: AppRights["may"];
  schemas: Upcasts;
  flow: Flow;
  usage: Usage;
}

/**
 * What turns events into finished runs: functions and runs, the log, workers, steering and starts, low to
 * high.
 */
export function openEngine(host: Host, needs: EngineNeeds) {
  const { keyring, outbox, schemas, flow, usage, emitRights } = needs;
  const { bus, nodeId } = host;
  const queued = bus.channel("dispatch", QueuedElsewhere);
  const secretValues = openSecretValues({ store: host.store, clock: host.clock, keyring });
  const runsPart = openRunsPart(host, {
    secretValues: secretValues.of,
    publishQueued(queues) {
      if (bus.kind === "nats") queued.publish({ from: nodeId, lanes: queues });
    },
    flow,
  });
  const { runs, functions, definitions, definitionAt, dispatcher, quotas, back, ends, observers } = runsPart;
  queued.listen(({ from, lanes }) => {
    if (from !== nodeId) dispatcher.queued(lanes);
  });
  observers.add({ created: usage.started, reported: usage.reported, ended: usage.ended });
  const log = openLog(host, {
    ...{ runsPart, schemas, flow, usage, emitRights, secretValues: secretValues.of },
    buryDelayed: outbox.buryDelayed,
  });
  const workersPart = openWorkersPart(host, {
    ...{ runsPart, keyring, secretValues, sequences: log.sequences },
  });
  const { workers, secrets, breakers, guard } = workersPart;
  const { serving } = runsPart;
  const steeringPart = openSteeringPart(host, { runsPart, workers, outbox });
  const { steering, steeringOn } = steeringPart;
  const { events, feeds, sequences } = log;
  const startsPart = openStartsPart(host, { runsPart, events, steering, may: needs.may });

  return {
    ...foldParts([
      ...[runsPart, log, workersPart, steeringPart, startsPart],
      ...[openErrorsPart(host), openAttributesPart(host, definitions)],
    ]),
    ...{ functions, runs, workers, secrets, breakers, quotas, guard, serving, events, feeds, sequences },
    ...{ steering, steeringOn, observers, definitions, definitionAt },
    requeueDelayed: log.requeueDelayed,
    names: runsPart.names,
    /** The environment was deleted: nothing of it is handed out any more. */
    forgetEnvironment(environmentId: string) {
      definitions.forget(environmentId);
      workers.forgetEnvironment(environmentId);
    },
    async drain() {
      ends.drain();
      sequences.drain();
      await Promise.all([workersPart.drain(), dispatcher.drain()]);
      await Promise.all(back.underWay);
    },
  } satisfies PartShape;
}
