import type { Courier, CourierOptions, Sending } from "./courier.ts";
import { SvcError } from "./errors.ts";
import { type Stamp, stamp } from "./lease.ts";
import { createReopening } from "./reopening.ts";
import { pause } from "./retry.ts";
import { openStreamSocket, type StreamSocket } from "./stream-socket.ts";
import { assignmentOf, type JobMessage } from "./stream-wire.ts";
import type { Report } from "./wire.ts";

export interface StreamCourierOptions extends CourierOptions {
  workerId: string;
  /** Fields of the `register` message besides the id. */
  registration: object;
  /** A number in [0, 1), for pauses; Math.random when left out. */
  chance?: () => number;
  /** The server ended a run that this worker works on. */
  onCancel: (jobId: string, reason: SvcError) => void;
}

/** Carries reports out and jobs in over one stream, which is opened anew whenever it breaks; what was not answered goes again. */
export interface StreamCourier extends Courier {
  /** Resolves once the server knows this worker on the stream of now. */
  open(): Promise<void>;
  /** Which of these jobs are this worker's no longer; the leases of the others are renewed. Throws SvcError. */
  heartbeat(jobIds: readonly string[], timeoutMs: number): Promise<Set<string>>;
}

interface Unanswered extends Report {
  /** Written to the stream of this number. */
  sentOn: number;
  resolve(outcome: "stored" | "withdrawn"): void;
  reject(error: SvcError): void;
}

interface Beat {
  jobIds: readonly string[];
  askedAt: Stamp;
  resolve(lost: Set<string>): void;
  reject(error: SvcError): void;
}

const path = "/svc.v1.WorkerService/Connect";
/** Until a report is sent again that the server could not store. */
const againDelayMs = 200;
/** For the answer to `register`. */
const openTimeoutMs = 15_000;

const cutError = () => new SvcError("unreachable", "the stream was cut", { retryable: true });

const isDenial = ({ status }: SvcError) => status === 401 || status === 403;

export function createStreamCourier(options: StreamCourierOptions): StreamCourier {
  const { transport, workerId, log } = options;
  const unanswered = new Map<number, Unanswered>();
  const halt = new AbortController();
  let lastNumber = 0;
  /** Counts streams; 0 before the first. */
  let streams = 0;
  let socket: StreamSocket | undefined;
  let opening: Promise<void> | undefined;
  let isReopening = false;
  const reopening = createReopening(options.chance);
  let draining = false;
  let stopped: SvcError | undefined;
  /** When something was sent that the server has answered since: what comes now left it later than that. */
  let knownAt: Stamp = stamp();
  const beats: Beat[] = [];

  const write = (number: number, report: Unanswered) => {
    if (!socket) return;
    report.sentOn = streams;
    socket.send({ report: { number: String(number), jobId: report.jobId, body: report.text } });
  };

  function answered(sent: { number?: string; status?: number; error?: string; message?: string }): void {
    const number = Number(sent.number);
    const report = unanswered.get(number);
    if (!report) return;
    const { status = 0, error = "", message = error } = sent;
    const retryable = status >= 500 || status === 429;
    if (retryable) {
      void pause(againDelayMs, halt.signal).then(() => unanswered.has(number) && write(number, report));
      return;
    }
    unanswered.delete(number);
    if (status === 0) report.resolve("stored");
    else report.reject(new SvcError(error, message, { status }));
  }

  function job(message: JobMessage, from: StreamSocket): void {
    const assignment = assignmentOf(message);
    const { job_id: jobId, run_id: runId } = assignment;
    const fence = {
      jobId,
      runId,
      executionSeq: message.executionSeq ?? "0",
      leaseToken: assignment.lease_token,
    };
    if (draining || stopped) from.send({ jobNack: { ...fence, reason: "JOB_NACK_REASON_DRAINING" } });
    else if (options.room() <= 0) from.send({ jobNack: { ...fence, reason: "JOB_NACK_REASON_AT_CAPACITY" } });
    else {
      from.send({ jobAck: fence });
      options.onJobs([assignment], knownAt);
    }
  }

  function refreshed(segments: { state?: string }[]): void {
    const beat = beats.shift();
    if (!beat) return;
    knownAt = beat.askedAt;
    // A job that is over has no lease either; what its last report came to is on its way.
    const reported = new Set(Array.from(unanswered.values(), ({ jobId }) => jobId));
    const isLost = (jobId: string, at: number) =>
      segments[at]?.state !== "LEASE_STATE_REFRESHED" && !reported.has(jobId);
    beat.resolve(new Set(beat.jobIds.filter(isLost)));
  }

  /** Opens a stream; resolves with the answer to `register`. */
  async function connect(): Promise<void> {
    streams++;
    const headers = await transport.headers();
    const askedAt = stamp();
    let own: StreamSocket | undefined;
    await new Promise<void>((resolve, reject) => {
      const late = setTimeout(() => {
        own?.destroy();
        reject(new SvcError("timeout", "the stream was not answered in time", { retryable: true }));
      }, openTimeoutMs);
      const onMessage = (message: Record<string, unknown>) => {
        if (message.registered) {
          clearTimeout(late);
          if (stopped) return own?.destroy();
          knownAt = askedAt;
          reopening.opened();
          socket = own;
          for (const [at, report] of unanswered) write(at, report);
          resolve();
        } else if (message.job) job(message.job as JobMessage, own!);
        else if (message.reported) answered(message.reported);
        else if (message.leaseRefresh)
          refreshed((message.leaseRefresh as { segments?: { state?: string }[] }).segments ?? []);
        else if (message.cancel) {
          const { jobId = "", reason = "" } = message.cancel as { jobId?: string; reason?: string };
          options.onCancel(
            jobId,
            new SvcError("RUN_NOT_RUNNING", reason || "the run was cancelled", { status: 409 }),
          );
        } else if (message.shutdown) leave(own!);
      };
      const onEnd = (error: SvcError | undefined) => {
        clearTimeout(late);
        reject(error ?? cutError());
        if (own && socket === own) lose(error);
      };
      openStreamSocket({ url: transport.url, path, headers, onMessage, onEnd }).then((opened) => {
        own = opened;
        own.send({ register: { workerId, ...options.registration } });
      }, reject);
    });
  }

  /** The server goes: it answers what it was told, and the next stream finds another one. */
  function leave(from: StreamSocket): void {
    log.info("the server is going; opening a stream elsewhere");
    from.hangUp();
    if (socket === from) lose(undefined);
  }

  function lose(error: SvcError | undefined): void {
    socket = undefined;
    for (const beat of beats.splice(0)) beat.reject(error ?? cutError());
    if (stopped) return;
    if (error && isDenial(error)) {
      options.onDenied(error);
      return;
    }
    if (error) log.warn("the stream has ended; opening another", { reason: error.message });
    void reopen();
  }

  async function reopen(): Promise<void> {
    if (isReopening) return;
    isReopening = true;
    try {
      while (!stopped && !socket) {
        const delayMs = reopening.delayMs();
        if (delayMs > 0) await pause(delayMs, halt.signal);
        if (stopped) return;
        await courier.open().catch((error: SvcError) => {
          if (isDenial(error)) options.onDenied(error);
          else log.debug("no stream yet", { reason: error.message });
        });
      }
    } finally {
      isReopening = false;
    }
  }

  const courier: StreamCourier = {
    open() {
      opening ??= connect().finally(() => {
        opening = undefined;
      });
      return opening;
    },

    heartbeat(jobIds, timeoutMs) {
      return new Promise((resolve, reject) => {
        const current = socket;
        if (!current) return reject(stopped ?? cutError());
        const late = setTimeout(() => {
          log.warn("a heartbeat was not answered; cutting the stream");
          current.destroy();
        }, timeoutMs);
        const done = () => clearTimeout(late);
        beats.push({
          jobIds,
          askedAt: stamp(),
          resolve: (lost) => {
            done();
            resolve(lost);
          },
          reject: (error) => {
            done();
            reject(error);
          },
        });
        const jobs = jobIds.map((jobId) => ({ jobId }));
        current.send({ heartbeat: { workerId, activeJobs: jobs.length, jobs } });
      });
    },

    send({ jobId, text }): Sending {
      const number = ++lastNumber;
      let report: Unanswered;
      const done = new Promise<"stored" | "withdrawn">((resolve, reject) => {
        report = { jobId, text, sentOn: 0, resolve, reject };
        if (stopped) return reject(stopped);
        unanswered.set(number, report);
        write(number, report);
      });
      return {
        done,
        withdraw() {
          if (report.sentOn > 0 || !unanswered.delete(number)) return false;
          report.resolve("withdrawn");
          return true;
        },
      };
    },

    start() {},
    nudge() {},
    drain() {
      draining = true;
    },
    stop(reason) {
      stopped = reason;
      halt.abort();
      const last = socket;
      socket = undefined;
      last?.hangUp();
      // For the last words to leave; the server ends the stream when it has heard them.
      const cut = setTimeout(() => last?.destroy(), 1_000);
      (cut as { unref?: () => void }).unref?.();
      for (const report of unanswered.values()) report.reject(reason);
      unanswered.clear();
      for (const beat of beats.splice(0)) beat.reject(reason);
    },
  };
  return courier;
}
