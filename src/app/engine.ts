import { Type } from "@sinclair/typebox";
import type { Keyring } from "../domain/access/keyring/service.ts";
import { attributesOperations } from "../domain/engine/attributes/operations.ts";
import { openAttributes } from "../domain/engine/attributes/service.ts";
import { errorChecks } from "../domain/engine/errors/invariants.ts";
import { errorsOperations } from "../domain/engine/errors/operations.ts";
import { openErrorGroups } from "../domain/engine/errors/service.ts";
import type { DefinitionsCache } from "../domain/engine/functions/definition.ts";
import { definitionsVersion } from "../domain/engine/functions/rows.ts";
import type { QueueHint } from "../domain/engine/runs/wakes/due.ts";
import { openSecretValues } from "../domain/engine/secrets/values.ts";
import type { Upcasts } from "../domain/log/schemas/service.ts";
import type { Flow } from "../domain/record/flow/service.ts";
import type { Usage } from "../domain/record/usage/service.ts";
import type { EmitRights } from "./caller-now.ts";
import { openLog } from "./log.ts";
import type { OutboxPart } from "./outbox.ts";
import { foldParts, type Host, type Part, type PartShape } from "./part.ts";
import type { AppRights } from "./rights.ts";
import { openRunsPart } from "./runs.ts";
import { openStartsPart } from "./starts.ts";
import { openSteeringPart } from "./steering.ts";
import { openWorkersPart } from "./workers.ts";

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
