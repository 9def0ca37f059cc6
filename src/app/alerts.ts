import type { Keyring } from "../domain/access/keyring/service.ts";
import {
  alertMailersMax,
  alertMailsAtOnceMax,
  alertMailsHourMax,
} from "../domain/integrations/alerts/limits.ts";
import { openLooks } from "../domain/integrations/alerts/looks.ts";
import { openMailer } from "../domain/integrations/alerts/mail.ts";
import { alertsOperations } from "../domain/integrations/alerts/operations.ts";
import { openSendAlerts } from "../domain/integrations/alerts/sender.ts";
import { openAlerts } from "../domain/integrations/alerts/service.ts";
import { openWatchRules } from "../domain/integrations/alerts/watch.ts";
import { Waker } from "../kit/loop.ts";
import { openOutwardCaller } from "../kit/outward-call.ts";
import { tokenBuckets } from "../kit/token-buckets.ts";
import type { EnginePart } from "./engine.ts";
import type { Host, PartShape } from "./part.ts";
import type { RecordPart } from "./record.ts";

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
