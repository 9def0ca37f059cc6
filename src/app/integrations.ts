import type { Keyring } from "../domain/access/keyring/service.ts";
import { endpointsCheck } from "../domain/integrations/deliveries/invariants.ts";
import { deliveriesOperations } from "../domain/integrations/deliveries/operations.ts";
import { openDeliveries } from "../domain/integrations/deliveries/service.ts";
import { agentToolsCheck } from "../domain/integrations/tools/invariants.ts";
import { agentToolsOperations, type MayUse } from "../domain/integrations/tools/operations.ts";
import { openAgentTools } from "../domain/integrations/tools/service.ts";
import { ingestOperations } from "../domain/integrations/webhooks/ingest/operations.ts";
import { deliveriesCheck } from "../domain/integrations/webhooks/invariants.ts";
import { webhooksOperations } from "../domain/integrations/webhooks/operations.ts";
import { openWebhooks } from "../domain/integrations/webhooks/service.ts";
import { openPast } from "../domain/log/core/past.ts";
import { deliveriesOf } from "../domain/realtime/pubsub/delivery.ts";
import { endpointFrames, sourceFrames } from "../domain/realtime/pubsub/moved-frames.ts";
import { Waker } from "../kit/loop.ts";
import { openOutwardCaller } from "../kit/outward-call.ts";
import type { Session } from "../store/store.ts";
import type { EnginePart } from "./engine.ts";
import type { Host, PartShape } from "./part.ts";

const hour = 60 * 60 * 1000;

export type IntegrationsPart = ReturnType<typeof openIntegrationsPart>;

export interface IntegrationsNeeds {
  keyring: Pick<Keyring, "seal" | "unseal" | "writeSealed">;
  engine: Pick<EnginePart, "events" | "breakers" | "guard">;
  may: MayUse;
}

/** What providers send us, and what we send to others and ask of them. */
export function openIntegrationsPart(host: Host, { keyring, engine, may }: IntegrationsNeeds) {
  const { config, store, clock, ids, log, nodeId, shareEnvironment, knowsTime } = host;
  const { metrics } = host.watch;
  const told = { clock, frames: host.frames };
  const shared = {
    ...{ store, clock, ids, log, metrics, keyring, shareEnvironment },
    graceMsDefault: config.webhookSecretGraceHours * hour,
  };
  const looker = new Waker();
  const call = openOutwardCaller({ clock, guard: engine.guard });
  const webhooks = openWebhooks({
    ...shared,
    events: engine.events,
    announce: sourceFrames(told),
    keptMs: config.webhookDeliveryDays * 24 * hour,
    perSecond: config.webhookRateLimit,
  });
  const deliveries = openDeliveries({
    ...shared,
    tracer: host.watch.tracer,
    ...{ nodeId, knowsTime, deliveriesOf, breakers: engine.breakers, past: openPast(store) },
    lookIn: looker.wakeIn,
    announce: endpointFrames(told),
    call,
    timeoutMs: config.webhookTimeoutMs,
    retryMs: config.webhookRetryMs,
    triedMsMax: config.webhookRetryHours * hour,
  });
  const agentTools = openAgentTools({ ...shared, breakers: engine.breakers, call });
  return {
    operations: [
      ...webhooksOperations(webhooks),
      ...ingestOperations(webhooks),
      ...deliveriesOperations(deliveries),
      ...agentToolsOperations(agentTools, may),
    ],
    loops: [
      {
        name: "webhooks.deliver",
        about: "Takes endpoints of outbound webhooks that have something to be sent, and sends it in order.",
        everyMs: 500,
        waker: looker,
        tick: deliveries.deliverOnce,
      },
    ],
    duties: [
      {
        duty: "retention",
        name: "webhooks.forget",
        about: "Deletes old deliveries, dead letters and secrets whose grace is over.",
        everyMs: 10 * 60_000,
        async tick(write) {
          await webhooks.forgetOnce(write);
          await deliveries.forgetOnce(write);
        },
      },
    ],
    checks: [deliveriesCheck(store), endpointsCheck(store), agentToolsCheck(store)],
    floorGuards: [deliveries.leastUndelivered],
    /** Seals all secrets of webhooks and agents again, in the transaction that rotates the master key. */
    async reseal(session: Session, again: (place: string, sealed: string) => string) {
      await webhooks.reseal(session, again);
      await deliveries.endpoints.reseal(session, again);
      await agentTools.reseal(session, again);
    },
    drain: deliveries.drain,
  } satisfies PartShape;
}
