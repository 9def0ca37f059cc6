import { setting } from "../kit/setting.ts";
import { integer } from "../kit/setting-kinds.ts";

const hour = 60 * 60 * 1000;

/** Inbound and outbound webhooks. */
export const webhookSettings = {
  webhookSecretGraceHours: setting({
    env: "SVC_WEBHOOK_SECRET_GRACE_HOURS_DEFAULT",
    parse: integer(0, 168, "hours"),
    fallback: 24,
    about: "How long a rotated webhook secret stays good when its rotation does not say.",
  }),
  webhookDeliveryDays: setting({
    env: "SVC_WEBHOOK_DELIVERY_DAYS",
    parse: integer(3, 3_650, "days"),
    fallback: 7,
    about: "Deliveries of inbound webhooks are deleted after this many days.",
  }),
  webhookRateLimit: setting({
    env: "SVC_WEBHOOK_RATE_LIMIT",
    parse: integer(0, 1_000_000, "requests a second"),
    fallback: 100,
    about: "Requests that one webhook source takes at a node; 0 means any number.",
  }),
  webhookRetryMs: setting({
    env: "SVC_WEBHOOK_RETRY_MS",
    parse: integer(10, hour, "milliseconds"),
    fallback: 5_000,
    about: "The pause before an outbound webhook is tried again; it doubles with each try, up to an hour.",
  }),
  webhookRetryHours: setting({
    env: "SVC_WEBHOOK_RETRY_HOURS",
    parse: integer(1, 720, "hours"),
    fallback: 24,
    about: "How long an event is tried at an endpoint before it becomes a dead letter.",
  }),
  webhookTimeoutMs: setting({
    env: "SVC_WEBHOOK_TIMEOUT_MS",
    parse: integer(100, 30_000, "milliseconds"),
    fallback: 15_000,
    about: "How long a call of an outbound webhook may take.",
  }),
};
