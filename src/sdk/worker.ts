import { callForRun } from "./calls.ts";
import { type Client, createClient } from "./client.ts";
import { createCourier } from "./courier.ts";
import { SvcError } from "./errors.ts";
import { registration, type SvcFunction } from "./function.ts";
import { type Job, startJob } from "./job.ts";
import { createLease, type Lease, type Stamp, stamp } from "./lease.ts";
import { consoleLogger } from "./log.ts";
import { delayAfter, pause } from "./retry.ts";
import { handleEndSignals } from "./signals.ts";
import { createStreamCourier } from "./stream-courier.ts";
import type { ConnectionOptions } from "./transport.ts";
import type { EventMap, Logger } from "./types.ts";
import { sdkVersion } from "./version.ts";
import type { Assignment } from "./wire.ts";

export interface WorkerOptions<Events extends EventMap = EventMap> extends ConnectionOptions {
  /** Instead of connection options. */
  client?: Client<Events>;
  functions: readonly SvcFunction[];
  /**
   * How jobs and reports travel: `rest` (default), or `stream`, one HTTP/2 stream in both directions, over which the server
   * also says at once that a run was cancelled. `stream` needs HTTP/2 all the way to the server.
   */
  transport?: "rest" | "stream";
  /** Default 10. */
  maxConcurrentJobs?: number;
  /**
   * How long a finished step may wait to be stored together with others, in milliseconds. Default 20: a crash may repeat
   * the steps of that time. 0 = strict: `step.run` returns once its step is stored.
   */
  checkpointMs?: number;
  /** Longest time between two heartbeats, in milliseconds. Default 30,000; a shorter lease shortens it. */
  heartbeatMs?: number;
  /** Default: a new one each time. */
  workerId?: string;
  labels?: Record<string, string>;
  /** Whether SIGTERM and SIGINT drain the worker and then end the process. Default true. */
  handleSignals?: boolean;
  /** Longest drain after a signal, in milliseconds. Default 30,000. */
  drainTimeoutMs?: number;
  log?: Logger;
}

export interface Worker {
  readonly id: string;
  readonly activeJobs: number;
  /**
   * Registers the functions and the worker and begins to take jobs. While the server does not answer it keeps trying;
   * SvcError when it refuses (401, 403, an illegal function).
   */
  start(): Promise<void>;
  /**
   * Takes no further jobs and resolves once the active ones have reported: true, or false when `timeoutMs` (default: no
   * limit) was over first. The worker is stopped either way; what it left goes to others when its lease ends.
   */
  drain(options?: { timeoutMs?: number }): Promise<boolean>;
  /** Stops at once: handlers see their signal raised, nothing more is reported. */
  stop(): void;
  /** Resolves when the worker has stopped; rejects with SvcError when the server no longer accepts its key. */
  readonly closed: Promise<void>;
}

const heartbeatMsMin = 200;
/** Longest wait for the answer to a heartbeat on a stream. */
const heartbeatMsMax = 10_000;
const startDelayFirstMs = 200;
const startDelayMsMax = 5_000;

function runtimeName(): string {
  const versions: Record<string, string | undefined> = globalThis.process?.versions ?? {};
  return versions.bun ? `bun-v${versions.bun}` : `node-v${versions.node ?? "unknown"}`;
}

function newWorkerId(): string {
  const letters = Array.from(crypto.getRandomValues(new Uint8Array(6)), (byte) => (byte % 36).toString(36));
  return `worker-${Date.now().toString(36)}-${letters.join("")}`;
}

/** A process that executes functions. One per process is enough; `maxConcurrentJobs` decides how much it does at a time. */
export function createWorker<Events extends EventMap = EventMap>(options: WorkerOptions<Events>): Worker {
  const { functions, maxConcurrentJobs = 10, checkpointMs = 20, heartbeatMs = 30_000 } = options;
  const client = options.client ?? createClient<Events>(options);
  const log = options.log ?? consoleLogger();
  const id = options.workerId ?? newWorkerId();
  const workerPath = `/api/v1/workers/${encodeURIComponent(id)}`;
  const byId = new Map(functions.map((one) => [one.id, one]));
  if (byId.size === 0) throw new TypeError("a worker needs functions");
  if (byId.size < functions.length) throw new TypeError("two functions of a worker have the same id");

  const active = new Map<string, Job>();
  const leases = new Map<string, Lease>();
  let busy = 0;
  let state: "new" | "running" | "draining" | "stopped" = "new";
  const halt = new AbortController();
  let heartbeatTimer: ReturnType<typeof setTimeout> | undefined;
  let heartbeatEveryMs = heartbeatMs;
  let heartbeatDueAt = 0;
  let releaseSignals: (() => void) | undefined;

  let close!: () => void;
  let fail!: (error: SvcError) => void;
  const closed = new Promise<void>((resolve, reject) => {
    close = resolve;
    fail = reject;
  });
  // Whoever does not look at `closed` reads it in the log.
  closed.catch(() => {});

  const travel = {
    transport: client.transport,
    room: () => maxConcurrentJobs - busy,
    onJobs: (jobs: Assignment[], askedAt: Stamp) => {
      for (const job of jobs) start(job, askedAt);
    },
    onDenied: (error: SvcError) => {
      log.error("the server does not accept this worker's key; stopping", { reason: error.message });
      end(error);
    },
    log,
  };
  const host = globalThis.process?.env?.HOSTNAME;
  const version = { sdk: sdkVersion, runtime: runtimeName() };
  const stream =
    options.transport === "stream"
      ? createStreamCourier({
          ...travel,
          workerId: id,
          registration: {
            ...(host && { hostname: host }),
            functionIds: [...byId.keys()],
            maxConcurrentJobs,
            labels: options.labels ?? {},
            version,
          },
          onCancel: (jobId, reason) => active.get(jobId)?.abandon(reason),
        })
      : undefined;
  const courier = stream ?? createCourier({ ...travel, workerPath, register: () => insist(register) });

  /** Asks until the server answers whether the job is still this worker's. */
  const confirm = ({ job_id, run_id, execution_seq, lease_token }: Assignment) =>
    insist(async () => {
      if (stream) return abandonLost(await stream.heartbeat([job_id], heartbeatMsMax), job_id);
      const path = `${workerPath}/jobs/${encodeURIComponent(job_id)}/ack`;
      await client.transport.send({ method: "PUT", path, body: { run_id, execution_seq, lease_token } });
    });

  /** Throws when the job it was asked for is among the lost ones. */
  function abandonLost(lost: ReadonlySet<string>, asked?: string): void {
    for (const jobId of lost) {
      const reason = new SvcError("STALE_EXECUTION", "the lease went to another worker", { status: 409 });
      active.get(jobId)?.abandon(reason);
      if (jobId === asked) throw reason;
    }
  }

  function start(assignment: Assignment, askedAt: Stamp): void {
    if (state === "stopped" || active.has(assignment.job_id)) return;
    busy++;
    let hasRoom = false;
    const lease = createLease(askedAt, assignment.lease_ms, () => confirm(assignment));
    leases.set(assignment.job_id, lease);
    const job = startJob({
      assignment,
      target: byId.get(assignment.function_id),
      courier,
      lease,
      call: callForRun(client.transport),
      checkpointMs,
      log,
      onRoom() {
        if (!hasRoom) busy--;
        hasRoom = true;
      },
    });
    active.set(job.jobId, job);
    mindLease(assignment.lease_expires_at);
    void job.done.then(() => {
      active.delete(job.jobId);
      leases.delete(job.jobId);
      courier.nudge();
    });
  }

  /** Heartbeats come three times in a lease, whatever was configured. */
  function mindLease(expiresAt: string | undefined): void {
    if (expiresAt === undefined) return;
    const thirdMs = Math.max(heartbeatMsMin, (Date.parse(expiresAt) - Date.now()) / 3);
    if (!(thirdMs < heartbeatEveryMs)) return;
    heartbeatEveryMs = thirdMs;
    if (heartbeatDueAt > Date.now() + thirdMs) planHeartbeat();
  }

  function planHeartbeat(): void {
    clearTimeout(heartbeatTimer);
    heartbeatDueAt = Date.now() + heartbeatEveryMs;
    heartbeatTimer = setTimeout(() => void heartbeat(), heartbeatEveryMs);
  }

  async function heartbeat(): Promise<void> {
    const jobs = Array.from(active.values(), (job) => ({ job_id: job.jobId, started_at: job.startedAt }));
    const body = { worker_id: id, active_jobs: jobs.length, jobs };
    const askedAt = stamp();
    try {
      const timeoutMs = Math.max(1_000, heartbeatEveryMs);
      if (stream) {
        const lost = await stream.heartbeat([...active.keys()], Math.min(timeoutMs, heartbeatMsMax));
        abandonLost(lost);
        for (const { job_id } of jobs) if (!lost.has(job_id)) leases.get(job_id)?.renewed(askedAt);
      } else
        await client.transport.send({ method: "POST", path: `${workerPath}/heartbeat`, body, timeoutMs });
      if (!stream) for (const { job_id } of jobs) leases.get(job_id)?.renewed(askedAt);
    } catch (error) {
      const { status, message } = error as SvcError;
      if (status === 404) await register().catch(() => {});
      else if (status !== 401 && status !== 403) log.debug("heartbeat failed", { reason: message });
    }
    if (state !== "stopped") planHeartbeat();
  }

  async function register(): Promise<void> {
    if (stream) return stream.open();
    await client.transport.send({
      method: "POST",
      path: `${workerPath}/register`,
      body: {
        worker_id: id,
        ...(host && { hostname: host }),
        function_ids: [...byId.keys()],
        max_concurrent_jobs: maxConcurrentJobs,
        labels: options.labels ?? {},
        version,
      },
    });
  }

  async function registerFunctions(): Promise<void> {
    for (const one of byId.values()) {
      await client.registerFunction(await registration(one));
    }
  }

  /** Until it works, the server refuses it, or the worker ends. */
  async function insist(work: () => Promise<void>): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof SvcError) || !error.retryable || halt.signal.aborted) throw error;
        if (attempt === 1) log.warn("registration failed; trying again", { reason: error.message });
        await pause(delayAfter(attempt, startDelayFirstMs, startDelayMsMax), halt.signal);
      }
    }
  }

  function end(error?: SvcError): void {
    if (state === "stopped") return;
    state = "stopped";
    const reason = error ?? new SvcError("worker_stopped", "the worker was stopped");
    halt.abort();
    clearTimeout(heartbeatTimer);
    courier.stop(reason);
    for (const job of active.values()) job.abandon(reason);
    releaseSignals?.();
    if (error) fail(error);
    else close();
  }

  const worker: Worker = {
    id,
    get activeJobs() {
      return active.size;
    },
    closed,

    async start() {
      if (state !== "new") throw new TypeError("a worker starts once");
      state = "running";
      if (options.handleSignals ?? true) {
        releaseSignals = handleEndSignals(() =>
          worker.drain({ timeoutMs: options.drainTimeoutMs ?? 30_000 }),
        );
      }
      try {
        await insist(registerFunctions);
        await insist(register);
      } catch (error) {
        end();
        throw error;
      }
      if (state !== "running") return;
      planHeartbeat();
      courier.start();
      log.debug("worker started", { id, functions: [...byId.keys()] });
    },

    async drain({ timeoutMs } = {}) {
      if (state === "stopped") return active.size === 0;
      state = "draining";
      courier.drain();
      const over = new AbortController();
      const finished = (async () => {
        // A poll that was answered as it was given up may still bring jobs.
        while (active.size > 0) await Promise.all(Array.from(active.values(), (job) => job.done));
        return true;
      })();
      const expired = timeoutMs === undefined ? undefined : pause(timeoutMs, over.signal).then(() => false);
      const complete = await (expired ? Promise.race([finished, expired]) : finished);
      over.abort();
      end();
      return complete;
    },

    stop: () => end(),
  };
  return worker;
}
