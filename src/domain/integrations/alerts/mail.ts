import type { Clock } from "../../../kit/clock.ts";

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

export type SendMail = ReturnType<typeof openMailer>;
