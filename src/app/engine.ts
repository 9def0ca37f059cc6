import { Type } from "@sinclair/typebox";
import type { Keyring } from "../domain/access/keyring/service.ts";
import type { Breakers } from "../domain/engine/breakers/service.ts";
import type { Events } from "../domain/engine/emit/service.ts";
import type { DefinitionsCache } from "../domain/engine/functions/definition.ts";
import type { DefinitionAt } from "../domain/engine/functions/pinned.ts";
import type { Functions } from "../domain/engine/functions/service.ts";
import type { Quotas } from "../domain/engine/quotas/service.ts";
import type { AttributeNames } from "../domain/engine/runs/attributes/attribute-names.ts";
import type { RunObserver } from "../domain/engine/runs/observer.ts";
import type { Runs } from "../domain/engine/runs/service.ts";
import type { QueueHint } from "../domain/engine/runs/wakes/due.ts";
import type { Secrets } from "../domain/engine/secrets/service.ts";
import { openSecretValues } from "../domain/engine/secrets/values.ts";
import type { Steering } from "../domain/engine/steering/service.ts";
import type { Workers } from "../domain/engine/workers/service.ts";
import type { Feeds } from "../domain/log/core/feed.ts";
import type { LogSequences } from "../domain/log/core/sequences.ts";
import type { Upcasts } from "../domain/log/schemas/service.ts";
import type { Flow } from "../domain/record/flow/service.ts";
import type { AddressGuard } from "../kit/addresses.ts";
import type { Store } from "../store/store.ts";
import { openAttributesPart } from "./attributes.ts";
import type { EmitRights } from "./caller-now.ts";
import { openErrorsPart } from "./errors.ts";
import { type LogPart, openLog } from "./log.ts";
import type { OutboxPart } from "./outbox.ts";
import { foldParts, type Host, type Part } from "./part.ts";
import { openRunsPart } from "./runs.ts";
import { openStartsPart } from "./starts.ts";
import { openSteeringPart } from "./steering.ts";
import { openWorkersPart } from "./workers.ts";

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

export interface EnginePart extends Part {
  functions: Functions;
  runs: Runs;
  workers: Workers;
  secrets: Secrets;
  breakers: Breakers;
  quotas: Quotas;
  /** Which addresses we may be told to call. */
  guard: AddressGuard;
  events: Events;
  feeds: Feeds;
  sequences: LogSequences;
  steering: Steering;
  steeringOn: (store: Store) => Steering;
  names: AttributeNames;
  observers: RunObserver;
  requeueDelayed: LogPart["requeueDelayed"];
  definitions: DefinitionsCache;
  definitionAt: DefinitionAt;
  /** The environment was deleted: nothing of it is handed out any more. */
  forgetEnvironment(environmentId: string): void;
  drain(): Promise<void>;
}

export interface EngineNeeds {
  keyring: Pick<Keyring, "seal" | "unseal" | "writeSealed" | "current">;
  outbox: Pick<OutboxPart, "enqueueControl" | "buryDelayed">;
  emitRights: EmitRights;
  schemas: Upcasts;
  flow: Flow;
}

/**
 * What turns events into finished runs: functions and runs, the log, workers, steering and starts, low to
 * high.
 */
export function openEngine(
  host: Host,
  { keyring, outbox, schemas, flow, emitRights }: EngineNeeds,
): EnginePart {
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
  const log = openLog(host, { runsPart, schemas, flow, emitRights, buryDelayed: outbox.buryDelayed });
  const workersPart = openWorkersPart(host, {
    ...{ runsPart, keyring, secretValues, sequences: log.sequences },
  });
  const { workers, secrets, breakers, guard } = workersPart;
  const steeringPart = openSteeringPart(host, { runsPart, workers, outbox });
  const { steering, steeringOn } = steeringPart;
  const { events, feeds, sequences } = log;
  const startsPart = openStartsPart(host, { runsPart, events, steering });

  return {
    ...foldParts([
      ...[runsPart, log, workersPart, steeringPart, startsPart],
      ...[openErrorsPart(host), openAttributesPart(host, definitions)],
    ]),
    ...{ functions, runs, workers, secrets, breakers, quotas, guard, events, feeds, sequences },
    ...{ steering, steeringOn, observers, definitions, definitionAt },
    requeueDelayed: log.requeueDelayed,
    names: runsPart.names,
    forgetEnvironment(environmentId) {
      definitions.forget(environmentId);
      workers.forgetEnvironment(environmentId);
    },
    async drain() {
      ends.drain();
      sequences.drain();
      await Promise.all([workersPart.drain(), dispatcher.drain()]);
      await Promise.all(back.underWay);
    },
  };
}
