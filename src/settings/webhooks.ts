import { boolean, integer, matching, oneUrl, setting } from "../kit/setting.ts";

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

/** What leaves over the message bus for good, and what happens to what it does not take. */
export const outboxSettings = {
  natsMirror: setting({
    env: "SVC_NATS_MIRROR",
    parse: boolean,
    fallback: false,
    about:
      "Mirror every event into the JetStream stream svc_mirror, subjects svc.mirror.{environment}.…, for readers outside.",
  }),
  busPayloadMax: setting({
    env: "SVC_BUS_PAYLOAD_MAX",
    parse: integer(1_024, 64 * 1024 * 1024, "bytes"),
    fallback: 1024 * 1024,
    about: "Largest message that the outbox hands to the message bus.",
  }),
  outboxAttempts: setting({
    env: "SVC_OUTBOX_ATTEMPTS",
    parse: integer(1, 1_000, "attempts"),
    fallback: 10,
    about: "How often a message that the bus refuses is tried before it is a dead letter.",
  }),
};

/** Alerts, and the mail server that they are sent by. */
export const alertSettings = {
  smtpUrl: setting({
    env: "SVC_SMTP_URL",
    parse: oneUrl("smtp", "smtps"),
    fallback: undefined,
    secret: true,
    about: "Mail server that alerts are sent by; without it none goes by mail. May hold user:password.",
  }),
  smtpFrom: setting({
    env: "SVC_SMTP_FROM",
    parse: matching(
      /^[^\r\n\0]{1,200}@[^\r\n\0]{1,200}$/,
      "an e-mail address, with a name or without",
      "ADDRESS",
    ),
    fallback: undefined,
    about: "Sender of alerts that go by mail, such as `svc <svc@example.com>`.",
  }),
  alertLookMs: setting({
    env: "SVC_ALERT_LOOK_MS",
    parse: integer(50, 60 * 60 * 1000, "milliseconds"),
    fallback: 60_000,
    about: "How often each alert rule is looked at.",
  }),
  alertAttempts: setting({
    env: "SVC_ALERT_ATTEMPTS",
    parse: integer(1, 100),
    fallback: 20,
    about:
      "How often a message of an alert is tried, by the pauses of `SVC_WEBHOOK_RETRY_MS`, before it is given up.",
  }),
};
