import type { Sending } from "./courier.ts";
import type { SvcError } from "./errors.ts";
import { exchangeCharactersMax, exchangeReportsMax, type PendingReport, type Report } from "./wire.ts";

/** Reports that wait for the next request, in their order. */
export class ReportQueue {
  #waiting: PendingReport[] = [];
  #closedBy: SvcError | undefined;

  isEmpty(): boolean {
    return this.#waiting.length === 0;
  }

  add({ jobId, text }: Report): Sending {
    let pending: PendingReport;
    const done = new Promise<"stored" | "withdrawn">((resolve, reject) => {
      pending = { jobId, text, resolve, reject };
      if (this.#closedBy) reject(this.#closedBy);
      else this.#waiting.push(pending);
    });
    return {
      done,
      withdraw: () => {
        const at = this.#waiting.indexOf(pending);
        if (at < 0) return false;
        this.#waiting.splice(at, 1);
        pending.resolve("withdrawn");
        return true;
      },
    };
  }

  /** Removes the first reports, as many as fit one request; a large one goes alone. */
  takeBatch(): PendingReport[] {
    let characters = 0;
    let count = 0;
    for (const { text } of this.#waiting) {
      characters += text.length;
      if (count === exchangeReportsMax || (count > 0 && characters > exchangeCharactersMax)) break;
      count++;
    }
    return this.#waiting.splice(0, count);
  }

  /** These go first in the next request. */
  putBack(batch: PendingReport[]): void {
    if (this.#closedBy) for (const pending of batch) pending.reject(this.#closedBy);
    else this.#waiting = batch.concat(this.#waiting);
  }

  /** Rejects what waits, and whatever is added from now on. */
  close(reason: SvcError): void {
    this.#closedBy = reason;
    for (const pending of this.#waiting.splice(0)) pending.reject(reason);
  }
}
