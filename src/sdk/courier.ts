import { SvcError } from "./errors.ts";
import { exchangeWire, singleWire, type Wire } from "./exchange.ts";
import { type Stamp, stamp } from "./lease.ts";
import { delayAfter, pause } from "./retry.ts";
import type { Transport } from "./transport.ts";
import type { Logger } from "./types.ts";
import { type Assignment, exchangeCharactersMax, exchangeReportsMax, type Report } from "./wire.ts";

export interface Sending {
  /** Resolves when the server has stored it, rejects with SvcError when it never will. */
  readonly done: Promise<"stored" | "withdrawn">;
  /** Takes it back, if it has not left yet. */
  withdraw(): boolean;
}

export interface CourierOptions {
  transport: Transport;
  /** `/api/v1/workers/{id}` */
  workerPath: string;
  /** Jobs that could be started now. */
  room: () => number;
  /** With when they were asked for. */
  onJobs: (jobs: Assignment[], askedAt: Stamp) => void;
  /** Makes this worker known to the server (again). */
  register: () => Promise<void>;
  /** The key is not accepted: nothing will go any more. */
  onDenied: (error: SvcError) => void;
  log: Logger;
}

/**
 * Carries reports out and jobs in. One exchange is under way at most, and whatever is reported meanwhile leaves together
 * in the next one, which also asks for as many jobs as there is room for: under load everything travels in few large
 * requests. When nothing is to be said, one held poll waits at the server, so that a lone job arrives and is reported at once.
 */
export interface Courier {
  send(report: Report): Sending;
  start(): void;
  /** There is room again without a report having told so. */
  nudge(): void;
  /** No further jobs are asked for; reports still leave. */
  drain(): void;
  /** Everything ends now; reports that have not left are rejected. */
  stop(reason: SvcError): void;
}

const troubleDelayFirstMs = 200;
const troubleDelayMsMax = 5_000;
/** An empty answer faster than this was not held; the next question waits a second. */
const heldMsMin = 250;
const unheldPollMs = 1_000;

/** Jobs with when they were asked for. */
interface Brought {
  jobs: Assignment[];
  askedAt: Stamp;
}

const nothing: Brought = { jobs: [], askedAt: { monotonicMs: 0, wallMs: 0 } };

interface Waiting extends Report {
  resolve(outcome: "stored" | "withdrawn"): void;
  reject(error: SvcError): void;
}

export function createCourier(options: CourierOptions): Courier {
  const { transport, workerPath, room, onJobs, log } = options;
  let wire: Wire = exchangeWire(transport, workerPath);
  let started = false;
  let draining = false;
  let stopped: SvcError | undefined;

  let queue: Waiting[] = [];
  let leaving = false;
  let exchanging = false;
  let troubles = 0;
  /** Slots that the held poll has asked to fill, and jobs that came and are about to start. */
  let promised = 0;
  let arrived = 0;
  let polling: AbortController | undefined;
  const halt = new AbortController();

  /** Counts registrations; a 404 of a request from before the last one means nothing any more. */
  let epoch = 0;
  /** The epoch that began because of a 404, until a request succeeds in it. */
  let doubted = -1;
  let registering: Promise<void> | undefined;

  /** After a 404: the server forgot this worker or, when registering again does not help, it has no such route. */
  async function makeKnown(sentIn: number): Promise<void> {
    if (sentIn < epoch) return;
    if (doubted === epoch) {
      log.info("this server has no exchange route; reports go one by one");
      wire = singleWire(transport, workerPath);
    }
    registering ??= options
      .register()
      .then(() => {
        doubted = ++epoch;
      })
      .finally(() => {
        registering = undefined;
      });
    await registering;
  }

  /** True when the request may be made again; waits first where that is polite. */
  async function recover(error: SvcError, sentIn: number): Promise<boolean> {
    if (stopped || error.code === "aborted_by_caller") return false;
    if (error.status === 401 || error.status === 403) {
      options.onDenied(error);
      return false;
    }
    if (error.status === 404) {
      try {
        await makeKnown(sentIn);
        return stopped === undefined;
      } catch (refusal) {
        return refusal instanceof SvcError && refusal.status !== 404 ? recover(refusal, sentIn) : false;
      }
    }
    if (!error.retryable && error.code !== "bad_answer") return false;
    if (troubles++ === 0) log.warn("the server cannot be reached; trying again", { reason: error.message });
    await pause(
      Math.max(delayAfter(troubles, troubleDelayFirstMs, troubleDelayMsMax), error.retryAfterMs ?? 0),
      halt.signal,
    );
    return true;
  }

  function answered(): void {
    if (troubles > 0) log.info("the server answers again");
    troubles = 0;
    doubted = -1;
  }

  const bring = ({ jobs, askedAt }: Brought) => onJobs(jobs, askedAt);

  function takeBatch(): Waiting[] {
    let characters = 0;
    let count = 0;
    for (const { text } of queue) {
      characters += text.length;
      if (count === exchangeReportsMax || (count > 0 && characters > exchangeCharactersMax)) break;
      count++;
    }
    return queue.splice(0, count);
  }

  async function exchangeOnce(batch: Waiting[]): Promise<Brought> {
    const askedAt = stamp();
    const asked = draining ? 0 : Math.max(0, room() - promised - arrived);
    const sentIn = epoch;
    try {
      const { outcomes, jobs } = await wire.exchange(batch, asked);
      const again: Waiting[] = [];
      let trouble: SvcError | undefined;
      for (const [at, report] of batch.entries()) {
        const error = outcomes[at];
        if (error === undefined) report.resolve("stored");
        else if (error.retryable || error.status === 401) {
          again.push(report);
          trouble = error;
        } else report.reject(error);
      }
      if (trouble === undefined) answered();
      else {
        queue = again.concat(queue);
        await recover(trouble, sentIn);
      }
      return { jobs, askedAt };
    } catch (thrown) {
      await exchangeFailed(batch, thrown as SvcError, sentIn);
      return nothing;
    }
  }

  async function exchangeFailed(batch: Waiting[], error: SvcError, sentIn: number): Promise<void> {
    if (await recover(error, sentIn)) {
      queue = batch.concat(queue);
    } else if (batch.length > 1 && !stopped && error.status >= 400) {
      // One of them is at fault; alone each gets its own answer.
      for (const report of batch) await exchangeOnce([report]).then(bring);
    } else {
      for (const report of batch) report.reject(stopped ?? error);
    }
  }

  async function exchange(): Promise<void> {
    leaving = false;
    if (exchanging || stopped) return;
    exchanging = true;
    try {
      let brought = nothing;
      while (queue.length > 0 && !stopped) {
        arrived = brought.jobs.length;
        const round = exchangeOnce(takeBatch());
        // The next request is on its way before the jobs of the last one start to work.
        arrived = 0;
        bring(brought);
        brought = await round;
      }
      bring(brought);
    } finally {
      exchanging = false;
    }
    if (queue.length > 0) leave();
    else void poll();
  }

  function leave(): void {
    if (leaving || exchanging || stopped) return;
    leaving = true;
    // What ends in the same turn of the event loop leaves together.
    setImmediate(() => void exchange());
  }

  async function poll(): Promise<void> {
    while (started && !draining && !stopped && !polling && !exchanging && queue.length === 0) {
      promised = room();
      if (promised <= 0) {
        promised = 0;
        return;
      }
      const current = new AbortController();
      polling = current;
      const askedAt = stamp();
      const sentIn = epoch;
      try {
        const jobs = await wire.poll(promised, current.signal);
        answered();
        promised = 0;
        if (jobs.length > 0) onJobs(jobs, askedAt);
        else if (performance.now() - askedAt.monotonicMs < heldMsMin)
          await pause(unheldPollMs, current.signal);
      } catch (thrown) {
        promised = 0;
        const error = thrown as SvcError;
        if (!(await recover(error, sentIn)) && !draining && !stopped) {
          log.error("a poll was refused", { code: error.code, reason: error.message });
          await pause(troubleDelayMsMax, current.signal);
        }
      } finally {
        promised = 0;
        polling = undefined;
      }
    }
  }

  return {
    send({ jobId, text }) {
      let waiting: Waiting;
      const done = new Promise<"stored" | "withdrawn">((resolve, reject) => {
        waiting = { jobId, text, resolve, reject };
        if (stopped) return reject(stopped);
        queue.push(waiting);
        leave();
      });
      return {
        done,
        withdraw() {
          const at = queue.indexOf(waiting);
          if (at < 0) return false;
          queue.splice(at, 1);
          waiting.resolve("withdrawn");
          return true;
        },
      };
    },
    start() {
      started = true;
      void poll();
    },
    nudge: () => void poll(),
    drain() {
      draining = true;
      polling?.abort();
    },
    stop(reason) {
      stopped = reason;
      halt.abort();
      polling?.abort();
      for (const waiting of queue.splice(0)) waiting.reject(reason);
    },
  };
}
