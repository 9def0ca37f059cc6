import { type Clock, rfc3339 } from "../../../kit/clock.ts";
import { type CallOutward, TransportFailure } from "../../../kit/outward-call.ts";
import type { Basics } from "../../../store/store.ts";
import type { SecretValues } from "../../engine/secrets/service.ts";
import { headersOf, outcomeOf } from "../deliveries/rules.ts";
import { alertMailsHourMax } from "./limits.ts";
import { type AlertFacts, type MessageKind, type RuleTarget, slackText, wordsOf } from "./rules.ts";

export interface Mail {
  to: readonly string[];
  subject: string;
  text: string;
}

export interface MailerDeps {
  clock: Pick<Clock, "after">;
  /** `smtp://user:password@host:587`, `smtps://…`; undefined where the installation sends none. */
  url: string | undefined;
  from: string | undefined;
  timeoutMs: number;
}

/** What an error says to a tenant: nothing of the server or its address. */
function reasonOf(error: unknown): string {
  const { code, responseCode } = error as { code?: unknown; responseCode?: unknown };
  if (typeof responseCode === "number") return `the mail server answered ${responseCode}`;
  return `the mail server cannot be reached${typeof code === "string" ? ` (${code})` : ""}`;
}

/** Sends mail by the installation's server, each over a connection of its own that ends with the time. */
export function openMailer({ clock, url, from, timeoutMs }: MailerDeps) {
  /** Answers why the server did not take it; undefined when it did. */
  return async ({ to, subject, text }: Mail): Promise<string | undefined> => {
    if (url === undefined || from === undefined)
      return "this installation sends no mail: its operator sets SVC_SMTP_URL and SVC_SMTP_FROM";
    // Loaded by the first mail: most installations send none.
    const { createTransport } = await import("nodemailer");
    const transport = createTransport(url);
    const over = new AbortController();
    const cancel = clock.after(timeoutMs, () => over.abort());
    try {
      // A text of ours names no file and no URL that is read into a mail.
      const ours = { disableFileAccess: true, disableUrlAccess: true };
      await transport.sendMail({ ...ours, from, to: [...to], subject, text, signal: over.signal });
      return undefined;
    } catch (error) {
      if (over.signal.aborted) return `no answer of the mail server within ${timeoutMs} ms`;
      return reasonOf(error);
    } finally {
      cancel();
      transport.close();
    }
  };
}

type SendMail = ReturnType<typeof openMailer>;

export interface TellDeps extends Basics<"clock" | "log"> {
  call: CallOutward;
  mail: SendMail;
  secretValues: SecretValues["of"];
  timeoutMs: number;
  /** Takes one of the mails that the environment may send now; answers the seconds until there is one. */
  mailPace: (environmentId: string) => number;
}

export interface AlertMessage {
  /** The same whenever the message is tried. */
  id: string;
  kind: MessageKind;
  alert: AlertFacts;
  environment: { id: string; name: string };
}

/** What one try came to: undefined when the message was taken. */
export type UntakenMessage =
  | { error: string; isFinal?: boolean; retryAfterMs?: number | undefined }
  | undefined;

/** As other webhooks of the house: `type`, `timestamp`, `data`. */
function bodyOf({ kind, alert, environment }: AlertMessage, at: number): string {
  const { id, rule, condition, subject, detail, count, opened_at, resolved_at } = alert;
  return JSON.stringify({
    type: `alert.${kind}`,
    timestamp: rfc3339(at),
    data: {
      ...{ id, rule, condition, subject, detail, count, environment },
      state: resolved_at === null ? "open" : "resolved",
      opened_at: rfc3339(opened_at),
      ...(resolved_at !== null && { resolved_at: rfc3339(resolved_at) }),
    },
  });
}

/** Tells one target one message, once; `stopped` is raised when this node gives it up. */
export function openTell(
  { clock, log, call, mail, secretValues, timeoutMs, mailPace }: TellDeps,
  stopped: AbortSignal,
) {
  async function post(url: string, body: string, headers: Record<string, string>): Promise<UntakenMessage> {
    try {
      return await call({ url, body, headers, timeoutMs, signal: stopped }, async (response) => {
        // What is answered is not read: it may be endless.
        await response.body?.cancel();
        const outcome = outcomeOf(response, clock.now());
        if (outcome.kind === "gone") return { error: "the endpoint answered 410", isFinal: true };
        return outcome.kind === "failed" ? outcome : undefined;
      });
    } catch (error) {
      if (!(error instanceof TransportFailure)) throw error;
      return { error: error.message };
    }
  }

  async function postSigned(
    url: string,
    secret: string | undefined,
    message: AlertMessage,
  ): Promise<UntakenMessage> {
    const body = bodyOf(message, clock.now());
    if (secret === undefined) return post(url, body, { "webhook-id": message.id });
    const values = await secretValues(message.environment.id, [secret]);
    const value = Object.hasOwn(values, secret) ? values[secret] : undefined;
    if (value === undefined) return { error: `the environment has no secret ${secret}` };
    return post(url, body, headersOf(message.id, body, [value], clock.now()));
  }

  async function send(
    { type, url = "", secret, to = [] }: RuleTarget,
    message: AlertMessage,
  ): Promise<UntakenMessage> {
    const words = wordsOf(message.kind, message.alert, message.environment.name);
    if (type === "webhook") return postSigned(url, secret, message);
    if (type === "slack") return post(url, JSON.stringify({ text: slackText(words.text) }), {});
    const waitSeconds = mailPace(message.environment.id);
    if (waitSeconds > 0)
      return {
        error: `the environment sends at most ${alertMailsHourMax} mails an hour`,
        retryAfterMs: waitSeconds * 1_000,
      };
    const error = await mail({ to, ...words });
    return error === undefined ? undefined : { error };
  }

  /** A try that fails in another way than by its target's doing is one that failed, too. */
  return async (target: RuleTarget, message: AlertMessage): Promise<UntakenMessage> => {
    try {
      return await send(target, message);
    } catch (error) {
      log.warn("alerts.send_failed", { environmentId: message.environment.id, id: message.id, error });
      return { error: "the message could not be made" };
    }
  };
}
