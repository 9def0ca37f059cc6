import { Type } from "@sinclair/typebox";
import { hasOthers } from "../bus/bus.ts";
import type { Keyring } from "../domain/access/keyring/service.ts";
import { eventsOfRun } from "../domain/engine/batches/rows.ts";
import { breakersOperations } from "../domain/engine/breakers/operations.ts";
import { openBreakers } from "../domain/engine/breakers/service.ts";
import { openAssignments } from "../domain/engine/dispatch/assignments.ts";
import { definitionUnread } from "../domain/engine/dispatch/unsent.ts";
import { unknownFunctions } from "../domain/engine/functions/rows.ts";
import { openEndpointCaller } from "../domain/engine/push/job-calls.ts";
import { openPush } from "../domain/engine/push/service.ts";
import { knowsOpenWaits } from "../domain/engine/runs/execution/yield-waits.ts";
import { secretsOperations } from "../domain/engine/secrets/operations.ts";
import { openSecrets, type SecretValues } from "../domain/engine/secrets/service.ts";
import { workersOperations } from "../domain/engine/workers/operations.ts";
import { openWorkers } from "../domain/engine/workers/service.ts";
import { mendErrors } from "../domain/engine/workers/texts.ts";
import { sendersMax } from "../domain/integrations/deliveries/limits.ts";
import { toolCallsOfAllMax } from "../domain/integrations/tools/limits.ts";
import type { LogSequences } from "../domain/log/core/sequences.ts";
import { secretFrames } from "../domain/realtime/pubsub/lifecycle-frames.ts";
import { reportBytesMax } from "../kit/limits.ts";
import { everyNodeSays } from "../nodes/duties.ts";
import { guardOf } from "./outward.ts";
import type { Host, PartShape } from "./part.ts";
import type { RunsPart } from "./runs.ts";

/** What a node tells the others: a worker of this environment registered. */
const WorkerRegistered = Type.Object({ environmentId: Type.String() });

export interface WorkersNeeds {
  runsPart: RunsPart;
  keyring: Pick<Keyring, "seal" | "unseal" | "writeSealed" | "current">;
  secretValues: SecretValues;
  sequences: LogSequences;
}

/**
 * Who does the work of runs: workers that poll or stream, and endpoints that are called; with the secrets
 * they are given.
 */
export function openWorkersPart(host: Host, { runsPart, keyring, secretValues, sequences }: WorkersNeeds) {
  const { config, store, clock, ids, log, nodeId, frames, shareEnvironment } = host;
  const { metrics } = host.watch;
  const { leaseMs } = config;
  const { runs, definitions, definitionAt, dispatcher, back, onUnsent, serving } = runsPart;
  const registered = host.bus.channel("worker.registered", WorkerRegistered);
  registered.listen(({ environmentId }) => serving.changed(environmentId));

  const secrets = openSecrets({
    ...{ store, clock, ids, keyring, definitions, shareEnvironment, values: secretValues },
    announce: secretFrames(frames),
  });
  const assignments = openAssignments({
    ...{ dispatcher, definitions, definitionAt, secrets, sequences, onUnsent, log },
    eventsOfRun: (runId) => eventsOfRun(store, runId),
    keepsSpans: host.watch.tracer.on,
  });
  const takesWaits = everyNodeSays(knowsOpenWaits, host);
  const workers = openWorkers({
    ...{ store, shareEnvironment, clock, definitions, runs, log, leaseMs, back, metrics },
    dispatcher: { ...dispatcher, poll: assignments.toWorker },
    drainMs: config.drainMs,
    unknownFunctions: (environmentId, functionIds) => unknownFunctions(store, environmentId, functionIds),
    holdMs: config.pollHoldMs,
    admission: config.capacityAdmission,
    takesWaits,
    serving,
    publishRegistered(environmentId) {
      if (hasOthers(host.bus)) registered.publish({ environmentId });
    },
    announce: runsPart.publishWorker,
  });
  const breakers = openBreakers({ store, clock, log });
  const guard = guardOf(config);
  const push = openPush({
    ...{ store, clock, log, metrics, nodeId, assignments, breakers, definitionAt },
    call: openEndpointCaller({ clock, guard, answerBytesMax: reportBytesMax, mend: mendErrors }),
    signingKey: () => keyring.current("signing_key").secret,
    giveBack: back.giveBack,
    onDefinitionUnread: (job, error) => onUnsent(job, definitionUnread(job, error)),
    report: (job, report) => workers.reportOf(job, report),
    takesWaits,
    callsMax: config.outwardCallsMax - sendersMax - toolCallsOfAllMax,
    // The lease must not end while somebody still waits for the answer.
    timeoutMs: Math.min(config.pushTimeoutMs, Math.floor(leaseMs * 0.8)),
  });

  return {
    ...{ workers, secrets, breakers, guard },
    operations: [
      ...secretsOperations(secrets),
      ...breakersOperations(breakers),
      ...workersOperations(workers),
    ],
    loops: [
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
        name: "workers.streams",
        about:
          "Looks at worker streams: acks that did not come, leases that ended, workers that fell silent.",
        everyMs: 1_000,
        tick: workers.lookOnce,
      },
      {
        name: "workers.heartbeats",
        about: "Writes the heartbeats of workers that this node has heard from.",
        everyMs: 5_000,
        tick: workers.flushHeartbeats,
      },
      {
        name: "workers.serving",
        about:
          "Reads which functions connected workers serve, in the environments that were asked about lately.",
        everyMs: 2_000,
        tick: () => serving.refreshOnce(),
      },
    ],
    duties: [
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
        about: "Deletes the breakers of push endpoints that were not called for a day.",
        everyMs: 10 * 60_000,
        tick: breakers.forgetOnce,
      },
    ],
    async drain() {
      await Promise.all([push.drain(), workers.drain()]);
    },
    settled: workers.drain,
  } satisfies PartShape;
}
