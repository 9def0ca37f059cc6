import type { Keyring } from "../domain/access/keyring/service.ts";
import {
  alertMailersMax,
  alertMailsAtOnceMax,
  alertMailsHourMax,
} from "../domain/integrations/alerts/limits.ts";
import { openLooks } from "../domain/integrations/alerts/looks.ts";
import { alertsOperations } from "../domain/integrations/alerts/operations.ts";
import { openSendAlerts } from "../domain/integrations/alerts/sender.ts";
import { openAlerts } from "../domain/integrations/alerts/service.ts";
import { openMailer } from "../domain/integrations/alerts/tell.ts";
import { openWatchRules } from "../domain/integrations/alerts/watch.ts";
import { deliveriesOperations } from "../domain/integrations/deliveries/operations.ts";
import { endpointsCheck, openDeliveries } from "../domain/integrations/deliveries/service.ts";
import { agentToolsOperations, type MayUse } from "../domain/integrations/tools/operations.ts";
import { agentToolsCheck, openAgentTools } from "../domain/integrations/tools/service.ts";
import { ingestOperations } from "../domain/integrations/webhooks/ingest/operations.ts";
import { webhooksOperations } from "../domain/integrations/webhooks/operations.ts";
import { deliveriesCheck, openWebhooks } from "../domain/integrations/webhooks/service.ts";
import { openPast } from "../domain/log/core/feed-reader.ts";
import { deliveriesOf } from "../domain/realtime/pubsub/delivery.ts";
import { endpointFrames, sourceFrames } from "../domain/realtime/pubsub/moved-frames.ts";
import { Waker } from "../kit/loop.ts";
import { openOutwardCaller } from "../kit/outward-call.ts";
import { tokenBuckets } from "../kit/token-buckets.ts";
import type { Session } from "../store/store.ts";
import type { EnginePart } from "./engine.ts";
import type { Host, PartShape } from "./part.ts";
import type { RecordPart } from "./record.ts";

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

export interface AlertsNeeds {
  keyring: Pick<Keyring, "seal" | "unseal" | "writeSealed">;
  engine: Pick<EnginePart, "guard" | "quotas" | "secrets" | "serving">;
  record: Pick<RecordPart, "lastLook">;
  environmentName: (environmentId: string) => Promise<string | undefined>;
}

/** Tells people when something goes wrong; opened last, because it looks at what all others do. */
export function openAlertsPart(host: Host, { keyring, engine, record, environmentName }: AlertsNeeds) {
  const { config, store, clock, ids, log, knowsTime, shareEnvironment } = host;
  const looker = new Waker();
  const sender = new Waker();
  const timeoutMs = config.webhookTimeoutMs;
  const look = openLooks({
    ...{ serving: engine.serving, lastLook: record.lastLook },
    quotasOf: engine.quotas.usesOf,
  });
  const send = openSendAlerts({
    ...{ store, clock, ids, log, keyring, environmentName, timeoutMs, sendIn: sender.wakeIn },
    call: openOutwardCaller({ clock, guard: engine.guard }),
    mail: openMailer({ clock, timeoutMs, url: config.smtpUrl, from: config.smtpFrom }),
    mailPace: tokenBuckets({
      ...{ clock, perSecond: alertMailsHourMax / 3_600, burst: alertMailsAtOnceMax },
      holdersMax: alertMailersMax,
    }),
    secretValues: engine.secrets.valuesOf,
    ...{ retryMs: config.webhookRetryMs, attemptsMax: config.alertAttempts },
  });
  const alerts = openAlerts({
    ...{ store, clock, keyring, shareEnvironment, look, send },
    ...{ sendIn: sender.wakeIn, lookIn: looker.wakeIn },
  });
  const rules = openWatchRules({
    ...{ store, clock, ids, log, look, knowsTime, sendIn: sender.wakeIn, everyMs: config.alertLookMs },
    changed: (environmentId) => host.changes.ofEnvironment(environmentId, "alerts"),
  });
  return {
    operations: alertsOperations(alerts),
    duties: [
      {
        duty: "alerts",
        name: "alerts.look",
        about: "Looks at alert rules, each once a minute, and opens and ends alerts.",
        everyMs: Math.min(1_000, config.alertLookMs),
        waker: looker,
        tick: rules.lookOnce,
      },
      {
        duty: "alerts",
        name: "alerts.deliver",
        about: "Sends messages of alerts that are due; what fails is tried again with growing pauses.",
        everyMs: 1_000,
        waker: sender,
        tick: send.deliverOnce,
      },
      {
        duty: "retention",
        name: "alerts.forget",
        about: "Deletes alerts that ended 30 days ago.",
        everyMs: 10 * 60_000,
        tick: rules.forgetOnce,
      },
    ],
    reseal: alerts.reseal,
    drain: send.drain,
  } satisfies PartShape;
}
