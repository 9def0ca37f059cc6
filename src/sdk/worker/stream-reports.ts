import { envelope } from "../wire/envelopes.ts";
import { SvcError } from "../wire/errors.ts";
import { pause } from "../wire/retry.ts";
import type { PendingReport, Report } from "../wire/wire.ts";
import type { Sending } from "./courier.ts";
import { errorOfReport } from "./exchange.ts";
import type { StreamSocket } from "./stream-socket.ts";

/** Until a report is sent again that the server could not store. */
const againDelayMs = 200;

/** How often a stream ends for the size of a report before it is not sent again. */
const triesMax = 3;

interface UnansweredReport extends PendingReport {
  /** Streams that ended because it was too large. */
  tooLarge: number;
  /** Written to a stream, this one or one before: the server may have stored it. */
  isSent: boolean;
}

/** The `reported` message of the server. */
export interface ReportedMessage {
  number?: string;
  status?: number;
  error?: string;
  message?: string;
}

/** Reports that the server has not answered, by number. All of them are sent again on the next stream. */
export class StreamReports {
  readonly #unanswered = new Map<number, UnansweredReport>();
  readonly #halt = new AbortController();
  #lastNumber = 0;
  #socket: StreamSocket | undefined;
  #closedBy: SvcError | undefined;

  send({ jobId, text }: Report): Sending {
    const number = ++this.#lastNumber;
    let report: UnansweredReport;
    const done = new Promise<"stored" | "withdrawn">((resolve, reject) => {
      report = { jobId, text, isSent: false, tooLarge: 0, resolve, reject };
      if (this.#closedBy) return reject(this.#closedBy);
      this.#unanswered.set(number, report);
      this.#write(number, report);
    });
    return {
      done,
      withdraw: () => {
        if (report.isSent || !this.#unanswered.delete(number)) return false;
        report.resolve("withdrawn");
        return true;
      },
    };
  }

  /** The jobs of the reports that are not answered. */
  jobIds(): Set<string> {
    return new Set(Array.from(this.#unanswered.values(), ({ jobId }) => jobId));
  }

  /** How many bytes of them are not answered, by their letters. */
  bytes(): number {
    return Array.from(this.#unanswered.values()).reduce((sum, { text }) => sum + text.length, 0);
  }

  /** From here on reports leave on this stream, first those that are not answered. */
  attach(socket: StreamSocket): void {
    this.#socket = socket;
    for (const [number, report] of this.#unanswered) this.#write(number, report);
  }

  detach(): void {
    this.#socket = undefined;
  }

  answered(sent: ReportedMessage): void {
    const number = Number(sent.number);
    const report = this.#unanswered.get(number);
    if (!report) return;
    const { status = 0, error = "", message = error } = sent;
    if (status >= 500 || status === 429) {
      const again = () => this.#unanswered.has(number) && this.#write(number, report);
      void pause(againDelayMs, this.#halt.signal).then(again);
      return;
    }
    this.#unanswered.delete(number);
    if (status === 0) report.resolve("stored");
    else report.reject(errorOfReport(status, error, message));
  }

  /**
   * The server ended the stream. When it did so for the size of a message, that was the largest one: larger
   * than the server says it may be, or sent so often in vain, it is refused, so that the others get through.
   */
  ended({ code, message }: SvcError): void {
    if (code !== "resource_exhausted" || !message.includes("larger than")) return;
    const sized = Array.from(this.#unanswered, ([number, report]) => ({
      number,
      report,
      bytes: envelope(JSON.stringify(reportMessage(number, report))).length,
    }));
    const [largest] = sized.toSorted((one, other) => other.bytes - one.bytes);
    const bytesMax = Number(/readMaxBytes (\d+)/.exec(message)?.[1] ?? Number.POSITIVE_INFINITY);
    if (!largest) return;
    if (largest.bytes <= bytesMax && ++largest.report.tooLarge < triesMax) return;
    this.#unanswered.delete(largest.number);
    largest.report.reject(new SvcError("REPORT_TOO_LARGE", message, { status: 413 }));
  }

  /** Rejects what is not answered, and whatever is sent from now on. */
  close(reason: SvcError): void {
    this.#closedBy = reason;
    this.#socket = undefined;
    this.#halt.abort();
    for (const report of this.#unanswered.values()) report.reject(reason);
    this.#unanswered.clear();
  }

  #write(number: number, report: UnansweredReport): void {
    if (!this.#socket) return;
    report.isSent = true;
    this.#socket.send(reportMessage(number, report));
  }
}

const reportMessage = (number: number, { jobId, text }: Report) => ({
  report: { number: String(number), jobId, body: text },
});
