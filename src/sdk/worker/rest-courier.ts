import type { SvcError } from "../wire/errors.ts";
import { pause } from "../wire/retry.ts";
import {
  type Assignment,
  exchangeReportsMax,
  type Outcome,
  type PendingReport,
  type Report,
} from "../wire/wire.ts";
import type { Courier, CourierOptions, Sending } from "./courier.ts";
import { exchangeWire, singleWire, type Wire } from "./exchange.ts";
import { type Stamp, stamp } from "./lease.ts";
import { ReportQueue } from "./report-queue.ts";
import { RequestRecovery, recoveryDelayMsMax } from "./request-recovery.ts";

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

export interface RestCourierOptions extends CourierOptions {
  /** `/api/v1/workers/{id}` */
  workerPath: string;
  /** Runs wait for their reports: these do not wait for each other. */
  isStrict: boolean;
  /** Jobs at a time. */
  jobsMax: number;
  /** Makes this worker known to the server again. */
  register: () => Promise<void>;
  /** A held poll has broken: the server may take this worker for dead. */
  onReopened: () => void;
}

/** A server that answers a poll without jobs faster than this did not hold it; the next waits a second. */
const heldMsMin = 250;
const unheldPollMs = 1_000;

/** Most exchanges of a strict worker that are under way. */
const strictExchangesMax = 4;
/** The same of any other worker. */
const exchangesMax = 2;
/** Reports that a second exchange of such a worker carries at least: fewer wait for the first, saving one. */
const besideMin = 50;

/** A strict worker with so much of its room free polls beside its exchanges. */
const roomyShare = 0.25;

/** What a request brought. */
interface Brought {
  jobs: Assignment[];
  askedAt: Stamp;
}

const nothing: Brought = { jobs: [], askedAt: { monotonicMs: 0, wallMs: 0 } };

/**
 * Carries reports and jobs in requests. Reports made during an exchange leave together in the next one, which
 * also asks for as many jobs as there is room for, so that a busy worker makes few large requests. While
 * there is nothing to report the server holds one poll, so that a lone job arrives, and is reported, at once.
 *
 * A full worker reports its jobs in two halves, by two exchanges at a time. With one for all jobs the worker
 * would stand still while the server works, and the server while the worker works.
 *
 * A strict worker has several exchanges under way, so that a run does not wait until steps of others are
 * stored. While it has much room it also polls beside them, so that no job waits for others' reports either.
 */
export class RestCourier implements Courier {
  readonly #options: RestCourierOptions;
  readonly #queue = new ReportQueue();
  readonly #recovery: RequestRecovery;
  readonly #held: HeldJobs;
  readonly #exchangesMax: number;
  readonly #besideMin: number;
  readonly #batchMax: number;
  readonly #halt = new AbortController();
  #wire: Wire;
  #isStarted = false;
  #isDraining = false;
  #stopped: SvcError | undefined;
  /** An exchange begins at the end of this turn of the event loop. */
  #isLeaving = false;
  #exchangesCount = 0;
  /** How many jobs the exchanges under way have asked for. */
  #askedCount = 0;
  #polling: AbortController | undefined;
  /** How many jobs the held poll has asked for. */
  #polledCount = 0;
  /** Jobs that came and are about to start. */
  #arrivedCount = 0;

  constructor(options: RestCourierOptions) {
    const { transport, workerPath, isStrict, jobsMax, register, onDenied, log } = options;
    this.#options = options;
    this.#held = new HeldJobs(options.held);
    this.#wire = exchangeWire(transport, workerPath, options.asking);
    this.#exchangesMax = isStrict ? strictExchangesMax : exchangesMax;
    this.#besideMin = isStrict ? 1 : besideMin;
    const half = Math.max(besideMin, Math.ceil(jobsMax / 2));
    this.#batchMax = isStrict ? exchangeReportsMax : Math.min(exchangeReportsMax, half);
    const onMissingRoute = () => {
      log.info("this server has no exchange route; reports go one by one");
      this.#wire = singleWire(transport, workerPath);
    };
    this.#recovery = new RequestRecovery({
      register,
      onMissingRoute,
      onDenied,
      halt: this.#halt.signal,
      log,
    });
  }

  send(report: Report): Sending {
    const sending = this.#queue.add(report);
    this.#leave();
    return sending;
  }

  start(): void {
    this.#isStarted = true;
    void this.#poll();
  }

  nudge(): void {
    void this.#poll();
  }

  drain(): void {
    this.#isDraining = true;
    this.#polling?.abort();
  }

  stop(reason: SvcError): void {
    this.#stopped = reason;
    this.#halt.abort();
    this.#polling?.abort();
    this.#queue.close(reason);
  }

  #leave(): void {
    if (this.#isLeaving || !this.#mayExchange(this.#exchangesCount)) return;
    this.#isLeaving = true;
    // What ends in the same turn of the event loop leaves together.
    setImmediate(() => void this.#exchange());
  }

  /** While the server is in trouble one exchange at a time asks whether it still is. */
  #mayExchange(others: number): boolean {
    if (this.#stopped) return false;
    if (others === 0) return true;
    return !this.#recovery.isTroubled && others < this.#exchangesMax && this.#queue.size >= this.#besideMin;
  }

  async #exchange(): Promise<void> {
    this.#isLeaving = false;
    if (!this.#mayExchange(this.#exchangesCount)) return;
    this.#exchangesCount++;
    try {
      let brought = nothing;
      while (this.#queue.hasNext() && this.#mayExchange(this.#exchangesCount - 1)) {
        this.#arrivedCount = brought.jobs.length;
        const batch = this.#queue.takeBatch(this.#batchSize());
        const round = this.#exchangeOnce(batch);
        if (this.#queue.hasNext()) this.#leave();
        // The next request is on its way before the jobs of the last one start to work.
        this.#arrivedCount = 0;
        this.#bring(brought);
        brought = await round;
        this.#queue.answered(batch);
      }
      this.#bring(brought);
    } finally {
      this.#exchangesCount--;
    }
    if (this.#queue.hasNext()) this.#leave();
    else void this.#poll();
  }

  /** What would be too little for an exchange of its own leaves with the rest. */
  #batchSize(): number {
    const isDivided = this.#queue.size >= this.#batchMax + this.#besideMin;
    return isDivided ? this.#batchMax : exchangeReportsMax;
  }

  #bring({ jobs, askedAt }: Brought): void {
    this.#options.onJobs(jobs, askedAt);
  }

  async #exchangeOnce(batch: PendingReport[]): Promise<Brought> {
    const askedAt = stamp();
    const askedCount = this.#countToAsk();
    this.#askedCount += askedCount;
    const { registrations } = this.#recovery;
    try {
      const { outcomes, jobs } = await this.#wire.exchange(batch, askedCount);
      const trouble = this.#settle(batch, outcomes);
      if (!trouble) {
        this.#recovery.succeeded();
        return { jobs, askedAt };
      }
      // Their leases are not renewed before they are known here: they do not wait for the pause.
      this.#bring({ jobs, askedAt });
      await this.#recovery.recover(trouble, registrations);
      return nothing;
    } catch (thrown) {
      await this.#exchangeFailed(batch, thrown as SvcError, registrations);
      return nothing;
    } finally {
      this.#askedCount -= askedCount;
    }
  }

  /** Exchanges that may be under way beside each other share the room. */
  #countToAsk(): number {
    if (this.#isDraining || this.#pollsBeside()) return 0;
    const room = this.#options.room() - this.#polledCount - this.#askedCount - this.#arrivedCount;
    const mayFollow = this.#options.isStrict || this.#queue.size >= this.#besideMin;
    const others = mayFollow ? this.#exchangesMax - this.#exchangesCount : 0;
    return Math.max(0, Math.ceil(room / (1 + others)));
  }

  /** With little room a poll would bring jobs one by one in requests of their own: then exchanges do. */
  #pollsBeside(): boolean {
    const { isStrict, jobsMax, room } = this.#options;
    return isStrict && room() >= jobsMax * roomyShare;
  }

  /** Tells each sender what became of its report. What may succeed later is queued again; answers why. */
  #settle(batch: PendingReport[], outcomes: Outcome[]): SvcError | undefined {
    const again: PendingReport[] = [];
    let trouble: SvcError | undefined;
    for (const [at, report] of batch.entries()) {
      const error = outcomes[at];
      if (error === undefined) report.resolve("stored");
      else if (error.retryable || error.status === 401) {
        again.push(report);
        trouble = error;
      } else report.reject(error);
    }
    if (trouble) this.#queue.putBack(again);
    return trouble;
  }

  async #exchangeFailed(batch: PendingReport[], error: SvcError, registrations: number): Promise<void> {
    this.#held.lost();
    if (await this.#recovery.recover(error, registrations)) {
      this.#queue.putBack(batch);
    } else if (batch.length > 1 && !this.#stopped && error.status >= 400) {
      // One of them is at fault; alone each gets its own answer.
      for (const report of batch) this.#bring(await this.#exchangeOnce([report]));
    } else {
      for (const report of batch) report.reject(this.#stopped ?? error);
    }
  }

  #mayPoll(): boolean {
    if (this.#polling || !this.#isStarted || this.#isDraining || this.#stopped) return false;
    return (this.#exchangesCount === 0 && this.#queue.size === 0) || this.#pollsBeside();
  }

  async #poll(): Promise<void> {
    while (this.#mayPoll()) {
      const room = this.#options.room() - this.#askedCount;
      if (room <= 0) return;
      this.#polledCount = room;
      const current = new AbortController();
      this.#polling = current;
      try {
        await this.#pollOnce(room, current.signal);
      } finally {
        this.#polledCount = 0;
        this.#polling = undefined;
      }
    }
  }

  async #pollOnce(room: number, signal: AbortSignal): Promise<void> {
    const askedAt = stamp();
    const { registrations } = this.#recovery;
    // An exchange under way may bring jobs that this worker does not know of yet.
    const saysHeld = this.#exchangesCount === 0;
    try {
      const jobs = await this.#wire.poll(room, signal, saysHeld ? this.#held.said() : "");
      if (saysHeld) this.#held.answered(askedAt.monotonicMs);
      this.#recovery.succeeded();
      this.#polledCount = 0;
      if (jobs.length > 0) this.#options.onJobs(jobs, askedAt);
      else if (performance.now() - askedAt.monotonicMs < heldMsMin) await pause(unheldPollMs, signal);
    } catch (thrown) {
      this.#options.onBroken();
      this.#options.onReopened();
      this.#held.lost();
      this.#polledCount = 0;
      const error = thrown as SvcError;
      if ((await this.#recovery.recover(error, registrations)) || this.#isDraining || this.#stopped) return;
      this.#options.log.error("a poll was refused", { code: error.code, reason: error.message });
      await pause(recoveryDelayMsMax, signal);
    }
  }
}
