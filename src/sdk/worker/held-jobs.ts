/**
 * When a worker tells the server which jobs it holds. A request that failed may have brought some: the server
 * then gives to others what it leased to this process and this process does not hold.
 */
export class HeldJobs {
  readonly #jobIds: () => readonly string[];
  readonly #now: () => number;
  /** A request failed; from this instant on one statement suffices, undefined until a request succeeds. */
  #trouble: { enoughAt: number | undefined } | undefined;

  constructor(jobIds: () => readonly string[], now: () => number = () => performance.now()) {
    this.#jobIds = jobIds;
    this.#now = now;
  }

  /** A request that may have brought jobs has failed. */
  lost(): void {
    this.#trouble = { enoughAt: undefined };
  }

  /**
   * Fields of a request while which no other one may bring jobs; empty when there is nothing to say. Such a
   * request is held for short, because it is said once more what was leased just before the failure.
   */
  said(): string {
    if (!this.#trouble) return "";
    const jobIds = this.#jobIds();
    return jobIds.length > heldJobsMax ? "" : `,"hold_ms":${heldMs},"held":${JSON.stringify(jobIds)}`;
  }

  /** The request that was sent at `sentAt` succeeded. */
  answered(sentAt: number): void {
    if (!this.#trouble) return;
    const { enoughAt } = this.#trouble;
    if (enoughAt === undefined) this.#trouble = { enoughAt: this.#now() + youngMs };
    else if (sentAt >= enoughAt) this.#trouble = undefined;
  }
}

/** Of one statement. */
const heldJobsMax = 2_000;
const heldMs = 1_000;
/** The server does not count a job as lost that it leased within the last second. */
const youngMs = 1_200;
