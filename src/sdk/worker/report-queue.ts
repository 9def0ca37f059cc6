import type { SvcError } from "../wire/errors.ts";
import { exchangeCharactersMax, type PendingReport, type Report } from "../wire/wire.ts";
import type { Sending } from "./courier.ts";

/** Reports that wait for the next request, in order. Two requests at a time never have one job's reports. */
export class ReportQueue {
  #waiting: PendingReport[] = [];
  readonly #jobsUnderWay = new Set<string>();
  #closedBy: SvcError | undefined;

  get size(): number {
    return this.#waiting.length;
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

  /** Whether a report may leave: its job has none under way. */
  hasNext(): boolean {
    for (const { jobId } of this.#waiting) if (!this.#jobsUnderWay.has(jobId)) return true;
    return false;
  }

  /** Removes the first reports that may leave, up to `most` and a request's size; a large one goes alone. */
  takeBatch(most: number): PendingReport[] {
    const batch: PendingReport[] = [];
    const left: PendingReport[] = [];
    let characters = 0;
    let isFull = false;
    for (const pending of this.#waiting) {
      if (!isFull && !this.#jobsUnderWay.has(pending.jobId)) {
        characters += pending.text.length;
        isFull = batch.length === most || (batch.length > 0 && characters > exchangeCharactersMax);
        if (!isFull) {
          batch.push(pending);
          continue;
        }
      }
      left.push(pending);
    }
    this.#waiting = left;
    for (const { jobId } of batch) this.#jobsUnderWay.add(jobId);
    return batch;
  }

  /** The request of these has been answered. */
  answered(batch: readonly PendingReport[]): void {
    for (const { jobId } of batch) this.#jobsUnderWay.delete(jobId);
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
