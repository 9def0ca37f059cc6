import { type Clock, rfc3339 } from "../../kit/clock.ts";
import { Fault, invalid } from "../../kit/fault.ts";
import { lately } from "../../kit/lately.ts";
import {
  exchangeReportsMax,
  gaugeCountMax,
  gaugeKeptMs,
  gaugeWaitMsMax,
  pollJobsMax,
  workerFunctionsMax,
  workerJobsMax,
  workerLabelsMax,
  workerSilenceMsMax,
} from "../../kit/limits.ts";
import type { Counter, Metrics } from "../../kit/metrics.ts";
import { type Store, StoreError } from "../../store/store.ts";
import { tellsFailures } from "../runs/rules.ts";
import type { Runs } from "../runs/service.ts";
import type { Dispatcher } from "./dispatcher.ts";
import { type HandedJob, type Job, runOfJob } from "./job.ts";
import type { Asking } from "./lanes.ts";
import { type Report, readFence, readReport } from "./report.ts";
import * as rows from "./rows.ts";
import { workerToken } from "./rules.ts";

export interface RegisterWorkerInput {
  workerId: string;
  hostname?: string;
  functionIds: readonly string[];
  maxConcurrentJobs?: number;
  labels?: Record<string, string>;
  version?: { sdk?: string; runtime?: string };
}

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
  leaseMs: number;
  /** How long a poll without work is held; 0 answers at once. */
  holdMs: number;
  /** `SVC_CAPACITY_ADMISSION`: without it there is no `progress`. */
  admission: boolean;
  metrics: Metrics;
}

/** A worker that polls is alive; that is written at most this often. */
const signEveryMs = 10_000;
/** Another node may have heard of a worker anew: a known one is read again after this. */
const knownMs = 5_000;

export function openWorkers(deps: WorkersDeps): Workers {
  const { store, clock, dispatcher, runs, leaseMs, holdMs } = deps;
  const disconnects = watchWorkers(deps);
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
        throw new Fault("not_found", `worker ${workerId} is not registered`);
      }
      entry = { record, readAt: now };
      known.set(key, entry);
    }
    const last = signs.get(key)?.at ?? entry.record.lastHeartbeatAt;
    if (now - last >= signEveryMs) signs.set(key, { environmentId, id: workerId, at: now, activeJobs: null });
    return entry.record;
  }

  async function report(worker: rows.WorkerRecord, jobId: string, body: Report): Promise<void> {
    const { environmentId } = worker;
    if (body.status === "progress" && !deps.admission)
      throw new Fault("not_found", "progress reports need capacity admission, which is off");
    const report = readReport(body, { environmentId, jobId, now: clock.now(), leaseMs });
    await sendable(runs.report({ ...report, failuresTold: tellsFailures(worker.sdk) }));
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
  const handed = (jobs: readonly Job[]): HandedJob[] => {
    const now = clock.now();
    return jobs.flatMap((job) => {
      const left = job.leaseExpiresAt - now;
      return left > 0 ? { ...job, leaseMs: left } : [];
    });
  };

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
    async register(environmentId, input) {
      const now = clock.now();
      const record: rows.WorkerRecord = {
        ...readRegistration(input),
        environmentId,
        registeredAt: now,
        lastHeartbeatAt: now,
      };
      await store.write((session) => rows.upsertWorker(session, record));
      known.set(keyOf(environmentId, record.id), { record, readAt: now });
    },

    async heartbeat(environmentId, workerId, input) {
      await registered(environmentId, workerId);
      const now = clock.now();
      const jobs = input.jobIds.flatMap((id) => runOfJob(id) ?? []);
      await store.write(async (session) => {
        if (jobs.length > 0)
          await runs.renew(session, { environmentId, workerId, leaseUntil: now + leaseMs, jobs });
        await rows.touchWorkers(session, [
          { environmentId, id: workerId, at: now, activeJobs: input.activeJobs ?? jobs.length },
        ]);
      });
      signs.delete(keyOf(environmentId, workerId));
      known.get(keyOf(environmentId, workerId))!.record.lastHeartbeatAt = now;
    },

    async list(environmentId) {
      const alive = clock.now() - workerSilenceMsMax;
      return (await rows.listWorkers(store, environmentId)).filter(
        (worker) => worker.lastHeartbeatAt >= alive,
      );
    },

    async poll(environmentId, workerId, available, signal) {
      const worker = await registered(environmentId, workerId);
      return handed(await take(worker, available ?? worker.maxConcurrent, holdMs, false, signal));
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
      return { results, acked, jobs: handed(jobs) };
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
        }
      }
      for (const [key, entry] of known) if (now - entry.readAt > workerSilenceMsMax) known.delete(key);
    },

    async forgetOnce(write) {
      disconnects.add(
        await write((session) => rows.forgetSilent(session, clock.now() - 2 * workerSilenceMsMax)),
      );
    },
  };
}

/** Answers the count of workers that are gone: a row is forgotten once, by one node. */
function watchWorkers({ store, clock, metrics }: WorkersDeps): Counter {
  const connected = metrics.gauge({
    name: "svc_workers_connected",
    help: "Workers of the whole installation that were heard of in the last five minutes.",
  })();
  const countAlive = lately({
    clock,
    keptMs: gaugeKeptMs,
    waitMsMax: gaugeWaitMsMax,
    ask: () => rows.countAlive(store, clock.now() - workerSilenceMsMax, gaugeCountMax),
  });
  metrics.beforeReading(async () => connected.set(await countAlive()));
  return metrics.counter({
    name: "svc_worker_disconnects_total",
    help: "Workers forgotten after ten minutes without a sign of life; counted by the node that forgot them.",
  })();
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

function readRegistration(
  input: RegisterWorkerInput,
): Omit<rows.WorkerRecord, "environmentId" | "registeredAt" | "lastHeartbeatAt"> {
  if (input.functionIds.length === 0) throw invalid("function_ids", "at least one function");
  if (input.functionIds.length > workerFunctionsMax)
    throw invalid("function_ids", `at most ${workerFunctionsMax}`);
  for (const [at, id] of input.functionIds.entries()) workerToken(`function_ids[${at}]`, id);
  const labels = Object.entries(input.labels ?? {});
  if (labels.length > workerLabelsMax) throw invalid("labels", `at most ${workerLabelsMax}`);
  const maxConcurrent = input.maxConcurrentJobs ?? 10;
  if (maxConcurrent < 1 || maxConcurrent > workerJobsMax)
    throw invalid("max_concurrent_jobs", `must be from 1 to ${workerJobsMax}`);
  return {
    id: workerToken("worker_id", input.workerId),
    hostname: input.hostname ?? "",
    functionIds: [...new Set(input.functionIds)],
    labels: Object.fromEntries(labels),
    sdk: input.version?.sdk ?? "",
    runtime: input.version?.runtime ?? "",
    transport: "rest",
    maxConcurrent,
    activeJobs: 0,
  };
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
