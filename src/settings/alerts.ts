import { setting } from "../kit/setting.ts";
import { integer, matching, oneUrl } from "../kit/setting-kinds.ts";

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
