import { type Client, createClient } from "../client/client.ts";
import { WorkerProjections } from "../projections/projection-runner.ts";
import type { SvcProjection } from "../projections/projection-types.ts";
import { registration } from "../steps/function.ts";
import { repeatedId, type SvcFunction } from "../steps/svc-function.ts";
import { type Deferred, deferred } from "../wire/deferred.ts";
import { type Duration, requireMs, type TimeoutOption, timeoutNames, withUnits } from "../wire/duration.ts";
import { SvcError } from "../wire/errors.ts";
import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import { consoleLogger, ownLogger } from "../wire/log.ts";
import { delayAfter, pause } from "../wire/retry.ts";
import { type ConnectionOptions, callForRun, connectionOf, knownConnection } from "../wire/transport.ts";
import type { EventMap, Logger } from "../wire/types.ts";
import { runtimeName, sdkVersion } from "../wire/version.ts";
import type { Assignment } from "../wire/wire.ts";
import { deploymentOf, newWorkerId } from "./deployment.ts";
import { Heartbeats } from "./heartbeats.ts";
import { askFor, loopSilenceMs, newLeaseAsking, renewalMs, type Stamp, stamp } from "./lease.ts";
import { startLeaseThread } from "./lease-thread.ts";
import { rehearsedWorker } from "./rehearsal.ts";
import { handleEndSignals } from "./signals.ts";
import { WorkerJobs } from "./worker-jobs.ts";
import { restLink, streamLink, type WorkerLink } from "./worker-link.ts";

export interface WorkerOptions<Events extends EventMap = EventMap> extends ConnectionOptions {
  /** Instead of connection options. */
  client?: Client<Events>;
  functions?: readonly SvcFunction[];
  projections?: readonly SvcProjection[];
  /**
   * How jobs and reports travel: `rest` (default), or `stream`, one HTTP/2 stream in both directions, by
   * which the server also reports a cancelled run at once. `stream` needs HTTP/2 all the way to the server.
   */
  transport?: "rest" | "stream";
  /** Default 10. */
  maxConcurrentJobs?: number;
  /**
   * How long a finished step may wait to be stored together with others: `"20ms"`, or milliseconds. Default
   * 20 ms: a crash may repeat the steps of that time. 0 = strict: `step.run` returns once its step is stored.
   */
  checkpoint?: Duration;
  /** @deprecated Write `checkpoint`. */
  checkpointMs?: number;
  /** Longest time between two heartbeats. Default 30 s; a shorter lease shortens it. */
  heartbeat?: Duration;
  /** @deprecated Write `heartbeat`. */
  heartbeatMs?: number;
  /** Default: SVC_WORKER_ID, numbered for further workers of the process; otherwise a new one each time. */
  workerId?: string;
  labels?: Record<string, string>;
  /**
   * Which build of the program this is: 1 to 128 letters, digits and `._:/@+-`, the first a letter or digit.
   * Default: SVC_DEPLOYMENT; else 16 hex digits of a hash of the program's own module and the code of its
   * functions, so that all processes of a build have one.
   */
  deployment?: string;
  /** Whether SIGTERM and SIGINT drain the worker and then end the process. Default true. */
  handleSignals?: boolean;
  /** Longest drain after a signal. Default 30 s. */
  drainTimeout?: Duration;
  /** @deprecated Write `drainTimeout`. */
  drainTimeoutMs?: number;
  /** Whether what handlers write to `console` is kept with their runs, like their `log`. Default false. */
  captureConsole?: boolean;
  log?: Logger;
}

export interface Worker {
  readonly id: string;
  readonly activeJobs: number;
  /**
   * Registers the functions, the projections and the worker and begins to take jobs and events. While the
   * server does not answer it keeps trying; SvcError when it refuses (401, 403, an illegal function).
   */
  start(): Promise<void>;
  /**
   * Takes no more jobs and events, and resolves once the active jobs have reported and folded events are
   * saved: true, or false when `timeout` (default: no limit) was over first. The worker stops either way;
   * what it left goes to others when its lease ends.
   */
  drain(options?: TimeoutOption): Promise<boolean>;
  /** Stops at once: handlers see their signal raised, nothing more is reported. */
  stop(): void;
  /** Resolves when the worker has stopped; rejects with SvcError when the server refuses its key. */
  readonly closed: Promise<void>;
}

export const knownOfWorker: KnownOptions<WorkerOptions> = {
  ...knownConnection,
  client: true,
  functions: true,
  projections: true,
  transport: true,
  maxConcurrentJobs: true,
  ...{ checkpoint: true, checkpointMs: "checkpoint" },
  ...{ heartbeat: true, heartbeatMs: "heartbeat" },
  workerId: true,
  labels: true,
  deployment: true,
  handleSignals: true,
  ...{ drainTimeout: true, drainTimeoutMs: "drainTimeout" },
  captureConsole: true,
  log: true,
};

/** As on the server. */
const concurrentJobsMax = 1_000;
const startDelayFirstMs = 200;
const startDelayMsMax = 5_000;

/**
 * A process that executes functions and folds projections. One per process is enough; `maxConcurrentJobs`
 * decides how much it does at a time. Throws TypeError on an unknown option, and for what is no duration.
 */
export function createWorker<Events extends EventMap = EventMap>(options: WorkerOptions<Events>): Worker {
  const rehearsed = rehearsedWorker(options.functions ?? []);
  if (rehearsed) return rehearsed;
  const running = new RunningWorker(options);
  // Callers may pass `worker.stop` on without its worker (U2).
  return {
    id: running.id,
    get activeJobs() {
      return running.jobs.count;
    },
    closed: running.closed.promise,
    start: () => running.start(),
    drain: async (given = {}) =>
      running.drain(withUnits("drain", given, timeoutNames, { endless: true }).timeoutMs),
    stop: () => running.end(),
  };
}

/** The life of a worker, from its registration to the end of its last job. */
class RunningWorker<Events extends EventMap> {
  readonly id: string;
  readonly jobs: WorkerJobs;
  readonly closed: Deferred = deferred();
  readonly #options: WorkerOptions<Events>;
  readonly #client: Client<Events>;
  readonly #functions: ReadonlyMap<string, SvcFunction>;
  /** Undefined for a worker without functions: the server knows nothing of it. */
  readonly #link: WorkerLink | undefined;
  readonly #projections: WorkerProjections;
  /** Functions whose registration the server answered with `compensateOn`: older servers leave it out. */
  readonly #undoneLater = new Set<string>();
  /** By function, what tells the definition that this worker serves from others. */
  readonly #definitionHashes: Record<string, string> = {};
  readonly #deployment: () => Promise<string>;
  readonly #log: Logger;
  readonly #heartbeats: Heartbeats;
  readonly #asking = newLeaseAsking();
  readonly #halt = new AbortController();
  #state: "new" | "running" | "draining" | "stopped" = "new";
  #releaseSignals: (() => void) | undefined;

  constructor(given: WorkerOptions<Events>) {
    requireKnown("createWorker", given, knownOfWorker);
    const options = withUnits("createWorker", given, knownOfWorker, { endless: true });
    const {
      functions = [],
      projections = [],
      maxConcurrentJobs = 10,
      checkpointMs = 20,
      heartbeatMs = 30_000,
      captureConsole: keepsConsole = false,
    } = options;
    this.#options = options;
    if (
      !Number.isInteger(maxConcurrentJobs) ||
      maxConcurrentJobs < 1 ||
      maxConcurrentJobs > concurrentJobsMax
    )
      throw new TypeError(`maxConcurrentJobs must be a whole number from 1 to ${concurrentJobsMax}`);
    requireMs("checkpointMs", checkpointMs);
    requireMs("heartbeatMs", heartbeatMs);
    this.#deployment = deploymentOf(options.deployment, functions);
    this.#client = options.client ?? createClient<Events>(connectionOf(options));
    this.#log = ownLogger(options.log ?? consoleLogger());
    this.id = options.workerId ?? newWorkerId();
    this.#functions = new Map(functions.map((one) => [one.id, one]));
    if (functions.length + projections.length === 0)
      throw new TypeError("a worker needs functions or projections");
    if (this.#functions.size < functions.length)
      throw new TypeError(`two functions of a worker have the same id ${repeatedId(functions)}`);
    // A rejection without a handler would end the process; the reason stands in the log.
    this.closed.promise.catch(() => {});
    this.jobs = new WorkerJobs({
      functions: this.#functions,
      concurrentMax: maxConcurrentJobs,
      undoneLater: this.#undoneLater,
      call: callForRun(this.#client.transport),
      last: this.#client.transport.last,
      ...{ checkpointMs, keepsConsole, log: this.#log },
    });
    this.#heartbeats = new Heartbeats(heartbeatMs, (everyMs) => this.#heartbeat(everyMs));
    this.#link = functions.length > 0 ? this.#openLink(maxConcurrentJobs, checkpointMs === 0) : undefined;
    this.#projections = new WorkerProjections({
      ...{ transport: this.#client.transport, projections, workerId: this.id, log: this.#log },
      onAllFailed: (error) => {
        if (!this.#link) this.end(error);
      },
    });
  }

  #openLink(maxConcurrentJobs: number, isStrict: boolean): WorkerLink {
    const { transport, labels = {} } = this.#options;
    const openLink = transport === "stream" ? streamLink : restLink;
    const link: WorkerLink = openLink({
      transport: this.#client.transport,
      identity: {
        id: this.id,
        hostname: globalThis.process?.env?.HOSTNAME,
        functionIds: [...this.#functions.keys()],
        maxConcurrentJobs,
        labels,
        version: { sdk: sdkVersion, runtime: runtimeName() },
        definitionHashes: this.#definitionHashes,
        deployment: this.#deployment,
      },
      asking: this.#asking,
      held: () => this.jobs.ids(),
      onLease: (leaseMs) => this.#mindLeases(leaseMs),
      onTakesWaits: (takes) => {
        this.jobs.takesWaits = takes;
      },
      onUnknown: (functionIds) => this.#registerFunctions(functionIds),
      onReopened: () => this.#heartbeats.hurry(),
      onBroken: () => this.jobs.doubt(),
      isStrict,
      room: () => this.jobs.room,
      onJobs: (jobs, askedAt) => this.#take(link, jobs, askedAt),
      onDenied: (error) => {
        this.#log.error("the server does not accept this worker's key; stopping", { reason: error.message });
        this.end(error);
      },
      onCancel: (jobId, reason) => this.jobs.end(jobId, reason),
      insist: (work) => this.#insist(work),
      log: this.#log,
    });
    return link;
  }

  async start(): Promise<void> {
    if (this.#state !== "new") throw new TypeError("a worker starts once");
    this.#state = "running";
    const { handleSignals = true, drainTimeoutMs = 30_000 } = this.#options;
    if (handleSignals) this.#releaseSignals = handleEndSignals(() => this.drain(drainTimeoutMs));
    try {
      await this.#insist(() => this.#registerFunctions());
      await this.#insist(() => this.#projections.join());
      if (this.#link && this.#isRunning()) await this.#startThread();
      await this.#insist(async () => this.#link?.register());
    } catch (error) {
      this.end();
      throw error;
    }
    if (!this.#isRunning()) {
      this.#stopThread();
      await this.#link?.leave();
      return;
    }
    if (this.#link) this.#heartbeats.start();
    this.#link?.courier.start();
    this.#projections.start();
    this.#log.debug("worker started", { id: this.id, functions: [...this.#functions.keys()] });
  }

  /** The state as it is after a wait, in which `stop` or `drain` may have changed it. */
  #isRunning(): boolean {
    return this.#state === "running";
  }

  async drain(timeoutMs: number | undefined): Promise<boolean> {
    if (timeoutMs !== undefined) requireMs("timeoutMs", timeoutMs);
    if (this.#state === "stopped") return this.jobs.count === 0;
    this.#state = "draining";
    this.#link?.courier.drain();
    const over = new AbortController();
    const finished = Promise.all([this.jobs.finished(), this.#projections.drain()]).then(() => true);
    const expired = timeoutMs === undefined ? undefined : pause(timeoutMs, over.signal).then(() => false);
    const isComplete = await (expired ? Promise.race([finished, expired]) : finished);
    over.abort();
    this.#heartbeats.stop();
    this.#stopThread();
    await this.#link?.leave();
    this.end();
    return isComplete;
  }

  end(error?: SvcError): void {
    if (this.#state === "stopped") return;
    this.#state = "stopped";
    const reason = error ?? new SvcError("worker_stopped", "the worker was stopped");
    this.#halt.abort();
    this.#heartbeats.stop();
    this.#stopThread();
    this.#link?.courier.stop(reason);
    this.#projections.stop();
    this.jobs.abandonAll(reason);
    this.#releaseSignals?.();
    if (error) this.closed.reject(error);
    else this.closed.resolve();
  }

  #take(link: WorkerLink, assignments: Assignment[], askedAt: Stamp): void {
    const { courier } = link;
    for (const assignment of assignments) {
      if (this.#state === "stopped" || this.jobs.has(assignment.job_id)) continue;
      const confirm = () => this.#insist(() => link.confirm(assignment));
      this.jobs.start(assignment, askedAt, courier, confirm);
      this.#heartbeats.mindLease(assignment.lease_expires_at);
    }
  }

  async #startThread(): Promise<void> {
    askFor(this.#asking, { hasThread: true });
    const headers = await this.#client.transport.headers().catch(() => ({}));
    this.jobs.thread = await startLeaseThread({
      ...{ url: this.#heartbeatUrl(), headers },
      body: { worker_id: this.id, ...this.#asking },
      jobsMax: this.jobs.room,
      onFailed: (reason) => {
        this.#log.warn("the thread that renews leases has ended; the main thread renews them", { reason });
        this.#stopThread();
      },
    });
    if (!this.jobs.thread) askFor(this.#asking, { hasThread: false });
  }

  #heartbeatUrl(): string {
    return `${this.#client.transport.url}/api/v1/workers/${encodeURIComponent(this.id)}/heartbeat`;
  }

  #stopThread(): void {
    this.jobs.thread?.stop();
    this.jobs.thread = undefined;
    askFor(this.#asking, { hasThread: false });
  }

  /** Older servers send no time: leases last as long as ever then. */
  #mindLeases(leaseMs: number | undefined): void {
    if (leaseMs === undefined) {
      this.#stopThread();
      return;
    }
    this.#heartbeats.renewEvery(renewalMs(leaseMs));
    this.jobs.leaseMs = leaseMs;
    this.jobs.thread?.mind(loopSilenceMs(leaseMs));
  }

  /** Whether the server took it. */
  async #heartbeat(everyMs: number): Promise<boolean> {
    const link = this.#link;
    if (!link) return true;
    const jobs = this.jobs.list();
    const askedAt = stamp();
    try {
      const lost = await link.heartbeat(jobs, Math.max(1_000, everyMs));
      this.jobs.renew(jobs, lost, askedAt);
      this.jobs.thread?.beaten(this.#heartbeatUrl());
      return true;
    } catch (error) {
      const { status, message } = error as SvcError;
      if (status === 404 && !this.#heartbeats.isStopped) await link.register().catch(() => {});
      else if (status !== 401 && status !== 403) this.#log.debug("heartbeat failed", { reason: message });
      return status > 0 && status < 500;
    }
  }

  async #registerFunctions(ids: Iterable<string> = this.#functions.keys()): Promise<void> {
    for (const id of ids) {
      const one = this.#functions.get(id);
      if (!one) continue;
      const { function: registered, definitionHash } = await this.#client.registerFunction(
        await registration(one),
      );
      if (registered.compensateOn?.length) this.#undoneLater.add(one.id);
      if (definitionHash !== undefined) this.#definitionHashes[one.id] = definitionHash;
    }
  }

  /** Repeats `work` until it succeeds, the server refuses it, or the worker ends. Throws SvcError then. */
  async #insist(work: () => Promise<void>): Promise<void> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof SvcError) || !error.retryable || this.#halt.signal.aborted) throw error;
        if (attempt === 1) this.#log.warn("registration failed; trying again", { reason: error.message });
        await pause(delayAfter(attempt, startDelayFirstMs, startDelayMsMax), this.#halt.signal);
      }
    }
  }
}
