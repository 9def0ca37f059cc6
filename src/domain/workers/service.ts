import { type Clock, rfc3339 } from "../../kit/clock.ts";
import { Fault, invalid } from "../../kit/fault.ts";
import { exchangeReportsMax, pollJobsMax, workerSilenceMsMax } from "../../kit/limits.ts";
import type { Log } from "../../kit/log.ts";
import type { Metrics } from "../../kit/metrics.ts";
import { type Store, StoreError } from "../../store/store.ts";
import type { Runs } from "../runs/service.ts";
import type { Dispatcher } from "./dispatcher.ts";
import { knowsFailedSteps, stepsFor } from "./generations.ts";
import { type GiveBackDeps, openGiveBack } from "./give-back.ts";
import { type HandedJob, type Job, runOfJob } from "./job.ts";
import type { Asking } from "./lanes.ts";
import { type RegisterWorkerInput, readRegistration } from "./registration.ts";
import { type Report, readFence, readReport } from "./report.ts";
import * as rows from "./rows.ts";
import { openWorkerSigns, type WorkerFrame } from "./signs.ts";
import { openStreams, type Streams } from "./streams.ts";
import { watchWorkers } from "./watch.ts";

export interface AckInput {
  job_id: string;
  run_id?: string;
  execution_seq?: number;
  lease_token?: string;
}

/** What one report or ack of an exchange came to. */
export type ExchangeResult = { jobId: string; fault: Fault | undefined };

export interface ExchangeAnswer {
  results: ExchangeResult[];
  acked: ExchangeResult[];
  jobs: HandedJob[];
}

export interface Workers {
  /** Pull workers over one stream in both directions. */
  connect: Streams["connect"];
  cancelled: Streams["cancelled"];
  /** The environment is gone: polls end, streams end, its workers are strangers. */
  letGo(environmentId: string): void;
  /** What an endpoint answered, or why it could not, taken as a worker's report. */
  reportOf(job: Pick<Job, "environmentId" | "jobId">, report: Report): Promise<void>;
  /** The tick of loop `workers.streams`. */
  lookOnce: Streams["lookOnce"];
  /** Tells workers on streams that this server goes; resolves once their unstarted jobs are given back. */
  drain(): Promise<void>;
  register(environmentId: string, input: RegisterWorkerInput): Promise<void>;
  heartbeat(
    environmentId: string,
    workerId: string,
    input: { activeJobs?: number; jobIds: readonly string[] },
  ): Promise<void>;
  list(environmentId: string): Promise<rows.WorkerRecord[]>;
  /** Waits up to the hold time for a first job. */
  poll(
    environmentId: string,
    workerId: string,
    available: number | undefined,
    signal: AbortSignal,
  ): Promise<HandedJob[]>;
  ack(environmentId: string, workerId: string, input: AckInput): Promise<void>;
  report(environmentId: string, workerId: string, jobId: string, report: Report): Promise<void>;
  exchange(
    environmentId: string,
    workerId: string,
    input: {
      reports: readonly (Report & { job_id: string })[];
      acks: readonly AckInput[];
      available: number;
      holdMs?: number;
    },
    signal: AbortSignal,
  ): Promise<ExchangeAnswer>;
  /** The tick of loop `workers.signs`: writes signs of life. */
  signOnce(): Promise<void>;
  /** The tick of loop `workers.forget`: workers that were silent for long. */
  forgetOnce(write: Store["write"]): Promise<void>;
}

export interface WorkersDeps {
  store: Store;
  clock: Clock;
  dispatcher: Dispatcher;
  runs: Runs;
  log: Log;
  leaseMs: number;
  /** How long workers on streams are given to finish when the server goes. */
  drainMs: number;
  /** Which of these are functions of the environment; answers the others. */
  unknownFunctions: (environmentId: string, ids: readonly string[]) => Promise<string[]>;
  onQueued: GiveBackDeps["onQueued"];
  /** How long a poll without work is held; 0 answers at once. */
  holdMs: number;
  /** `SVC_CAPACITY_ADMISSION`: without it there is no `progress`. */
  admission: boolean;
  metrics: Metrics;
  /** Told after the commit; a hint that may be lost. */
  announce?: (frame: WorkerFrame) => void;
}

/** Endpoints understand failed steps (contract.md 3.1). */
const endpointGeneration = "1.0.0";
/** A worker that polls is alive; that is written at most this often. */
const signEveryMs = 10_000;
/** Another node may have heard of a worker anew: a known one is read again after this. */
const knownMs = 5_000;

export function openWorkers(deps: WorkersDeps): Workers {
  const { store, clock, dispatcher, runs, leaseMs, holdMs } = deps;
  const disconnects = watchWorkers(deps);
  const told = openWorkerSigns(deps.announce);
  const known = new Map<string, { record: rows.WorkerRecord; readAt: number }>();
  const signs = new Map<
    string,
    { environmentId: string; id: string; at: number; activeJobs: number | null }
  >();
  const keyOf = (environmentId: string, workerId: string) => `${environmentId}\n${workerId}`;

  async function registered(environmentId: string, workerId: string): Promise<rows.WorkerRecord> {
    const key = keyOf(environmentId, workerId);
    const now = clock.now();
    let entry = known.get(key);
    if (!entry || now - entry.readAt > knownMs) {
      const record = await rows.getWorker(store, environmentId, workerId);
      if (!record) {
        known.delete(key);
        throw new Fault("not_found", `worker ${workerId.slice(0, 100)} is not registered`);
      }
      entry = { record, readAt: now };
      known.set(key, entry);
    }
    const last = signs.get(key)?.at ?? entry.record.lastHeartbeatAt;
    if (now - last >= signEveryMs) signs.set(key, { environmentId, id: workerId, at: now, activeJobs: null });
    return entry.record;
  }

  async function report(worker: rows.WorkerRecord, jobId: string, body: Report): Promise<void> {
    if (body.status === "progress" && !deps.admission)
      throw new Fault("not_found", "progress reports need capacity admission, which is off");
    await submit(worker, jobId, body);
  }

  async function submit(
    worker: Pick<rows.WorkerRecord, "environmentId" | "sdk">,
    jobId: string,
    body: Report,
  ): Promise<void> {
    const { environmentId } = worker;
    const report = readReport(body, { environmentId, jobId, now: clock.now(), leaseMs });
    await sendable(runs.report({ ...report, failuresTold: knowsFailedSteps(worker.sdk) }));
  }

  const ack = (environmentId: string, sent: AckInput) =>
    sendable(runs.ack({ ...readFence(sent.job_id, sent), environmentId }, leaseMs));

  const take = (
    worker: rows.WorkerRecord,
    available: number,
    hold: number,
    reports: boolean,
    signal: AbortSignal,
  ) => {
    const asking: Asking = {
      environmentId: worker.environmentId,
      workerId: worker.id,
      functionIds: worker.functionIds,
      available: Math.min(available, pollJobsMax),
      holdMs: hold,
      reports,
      signal,
    };
    return dispatcher.take(asking);
  };

  /** A lease that ended on the way here has no worker to go to: its run goes back by itself. */
  const handed = ({ sdk }: rows.WorkerRecord, jobs: readonly Job[]): HandedJob[] => {
    const now = clock.now();
    return jobs.flatMap((job) => {
      const left = job.leaseExpiresAt - now;
      if (left <= 0) return [];
      return { ...job, leaseMs: left, completedSteps: stepsFor(sdk, job.completedSteps) };
    });
  };

  async function register(
    environmentId: string,
    input: RegisterWorkerInput,
    transport: rows.WorkerRecord["transport"],
  ): Promise<rows.WorkerRecord> {
    const now = clock.now();
    const registration = readRegistration(input, transport);
    if (transport === "stream") await requireFunctions(environmentId, registration.functionIds);
    const record = { ...registration, environmentId, registeredAt: now, lastHeartbeatAt: now };
    await store.write((session) => rows.upsertWorker(session, record));
    known.set(keyOf(environmentId, record.id), { record, readAt: now });
    told.connected({ environmentId, workerId: record.id });
    return record;
  }

  async function requireFunctions(environmentId: string, ids: readonly string[]): Promise<void> {
    const [unknown] = await deps.unknownFunctions(environmentId, ids);
    if (unknown !== undefined)
      throw new Fault("failed_precondition", `function_ids: function ${unknown} is not registered`, {
        field: "function_ids",
      });
  }

  /** One transaction: leases of those jobs, and the sign of life. */
  async function beat(
    { environmentId, id: workerId }: Pick<rows.WorkerRecord, "environmentId" | "id">,
    activeJobs: number,
    jobs: readonly { runId: string; executionSeq: number }[],
  ): Promise<void> {
    const now = clock.now();
    await store.write(async (session) => {
      if (jobs.length > 0)
        await runs.renew(session, { environmentId, workerId, leaseUntil: now + leaseMs, jobs });
      await rows.touchWorkers(session, [{ environmentId, id: workerId, at: now, activeJobs }]);
    });
    signs.delete(keyOf(environmentId, workerId));
    told.beat({ environmentId, workerId });
    const entry = known.get(keyOf(environmentId, workerId));
    if (entry) entry.record.lastHeartbeatAt = now;
  }

  const { giveBack, underWay } = openGiveBack(deps);
  const streams = openStreams({
    clock,
    log: deps.log,
    leaseMs,
    drainMs: deps.drainMs,
    dispatcher,
    disconnects,
    handed,
    giveBack,
    register: (environmentId, { worker_id, function_ids, max_concurrent_jobs, ...rest }) =>
      register(
        environmentId,
        { ...rest, workerId: worker_id, functionIds: function_ids, maxConcurrentJobs: max_concurrent_jobs },
        "stream",
      ),
    onDraining: told.draining,
    async forget(worker) {
      const gone = await store.write((session) => rows.forgetWorker(session, worker));
      known.delete(keyOf(worker.environmentId, worker.id));
      if (gone > 0) told.disconnected({ environmentId: worker.environmentId, workerId: worker.id });
    },
    submit: (worker, jobId, body) => submit(worker, jobId, body),
    async beat(worker, activeJobs, leases) {
      await beat(worker, activeJobs, leases);
      return runs.leaseStates({ environmentId: worker.environmentId, workerId: worker.id, leases });
    },
  });

  const outcome = async (jobId: string, work: Promise<void>): Promise<ExchangeResult> => {
    try {
      await work;
      return { jobId, fault: undefined };
    } catch (error) {
      if (error instanceof Fault) return { jobId, fault: error };
      throw error;
    }
  };

  return {
    connect: streams.connect,
    cancelled: streams.cancelled,
    reportOf: ({ environmentId, jobId }, body) =>
      submit({ environmentId, sdk: endpointGeneration }, jobId, body),
    lookOnce: streams.lookOnce,
    letGo(environmentId) {
      for (const [key, { record }] of known) if (record.environmentId === environmentId) known.delete(key);
      dispatcher.letGo(environmentId);
      streams.letGo(environmentId);
    },
    async drain() {
      streams.shutdown("the server is shutting down");
      while (underWay.size > 0) await Promise.all(underWay);
      await streams.settled();
    },

    async register(environmentId, input) {
      await register(environmentId, input, "rest");
    },

    async heartbeat(environmentId, workerId, input) {
      await registered(environmentId, workerId);
      const jobs = input.jobIds.flatMap((id) => runOfJob(id) ?? []);
      await beat({ environmentId, id: workerId }, input.activeJobs ?? jobs.length, jobs);
    },

    async list(environmentId) {
      const alive = clock.now() - workerSilenceMsMax;
      return (await rows.listWorkers(store, environmentId)).filter(
        (worker) => worker.lastHeartbeatAt >= alive,
      );
    },

    async poll(environmentId, workerId, available, signal) {
      const worker = await registered(environmentId, workerId);
      return handed(worker, await take(worker, available ?? worker.maxConcurrent, holdMs, false, signal));
    },

    async ack(environmentId, workerId, input) {
      await registered(environmentId, workerId);
      await ack(environmentId, input);
    },

    async report(environmentId, workerId, jobId, body) {
      await report(await registered(environmentId, workerId), jobId, body);
    },

    async exchange(environmentId, workerId, input, signal) {
      const worker = await registered(environmentId, workerId);
      if (input.reports.length > exchangeReportsMax)
        throw invalid("reports", `at most ${exchangeReportsMax} in one exchange`);
      if (input.acks.length > exchangeReportsMax)
        throw invalid("acks", `at most ${exchangeReportsMax} in one exchange`);
      const busy = input.reports.length + input.acks.length > 0;
      const hold = busy ? 0 : Math.min(input.holdMs ?? holdMs, holdMs);
      const [results, acked, jobs] = await Promise.all([
        Promise.all(input.reports.map((body) => outcome(body.job_id, report(worker, body.job_id, body)))),
        Promise.all(input.acks.map((sent) => outcome(sent.job_id, ack(environmentId, sent)))),
        take(worker, input.available, hold, busy, signal),
      ]);
      return { results, acked, jobs: handed(worker, jobs) };
    },

    async signOnce() {
      const now = clock.now();
      const batch = [...signs.values()];
      if (batch.length > 0) {
        await store.write((session) => rows.touchWorkers(session, batch));
        for (const sign of batch) {
          const entry = known.get(keyOf(sign.environmentId, sign.id));
          if (entry) entry.record.lastHeartbeatAt = sign.at;
          signs.delete(keyOf(sign.environmentId, sign.id));
          told.beat({ environmentId: sign.environmentId, workerId: sign.id });
        }
      }
      for (const [key, entry] of known) if (now - entry.readAt > workerSilenceMsMax) known.delete(key);
    },

    async forgetOnce(write) {
      const gone = await write((session) => rows.forgetSilent(session, clock.now() - 2 * workerSilenceMsMax));
      disconnects.add(gone.length);
      for (const { environment_id: environmentId, id: workerId } of gone)
        told.disconnected({ environmentId, workerId });
    },
  };
}

/**
 * What the store could not take now is to be sent again. It must not look like a lost fence (409), after which a worker
 * drops the run, nor fail the exchange whose other reports are stored and whose jobs are handed out.
 */
async function sendable(work: Promise<void>): Promise<void> {
  try {
    await work;
  } catch (error) {
    if (!(error instanceof StoreError)) throw error;
    const again = { headers: { "Retry-After": "1" }, cause: error };
    throw new Fault("unavailable", "the database cannot take this now, send it again", again);
  }
}

/** A worker as `GET /workers` shows it (contract.md 1.11). */
export const workerJson = (worker: rows.WorkerRecord) => ({
  id: worker.id,
  hostname: worker.hostname,
  function_ids: worker.functionIds,
  labels: worker.labels,
  version: { sdk: worker.sdk, runtime: worker.runtime },
  transport: worker.transport,
  active_jobs: worker.activeJobs,
  max_concurrent: worker.maxConcurrent,
  registered_at: rfc3339(worker.registeredAt),
  last_heartbeat: rfc3339(worker.lastHeartbeatAt),
});
