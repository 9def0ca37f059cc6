import type { Clock } from "../../../kit/clock.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { exchangeReportsMax, pollJobsMax, workerSilenceMsMax } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import type { Metrics } from "../../../kit/metrics.ts";
import type { Session, Store } from "../../../store/store.ts";
import type { Dispatcher } from "../dispatch/dispatcher.ts";
import type { GiveBack } from "../dispatch/give-back.ts";
import type { PollRequest } from "../dispatch/queues.ts";
import type { DefinitionsCache } from "../functions/definition.ts";
import { type AssignedJob, type Job, runOfJob } from "../jobs/rules.ts";
import type { Runs } from "../runs/service.ts";
import { openWorkerFrames, type WorkerFrame } from "./frames.ts";
import type { AckInput, ExchangeResult, Workers } from "./port.ts";
import { lastRefused, sendable, unlessLost } from "./refused-report.ts";
import { type RegisterWorkerInput, readRegistration } from "./registration.ts";
import { checkReport, type ReportBody, readFence, readReport } from "./report-body.ts";
import { type Rights, requireServing } from "./rights.ts";
import * as rows from "./rows.ts";
import { knowsFailedSteps, stepsFor } from "./sdk-versions.ts";
import { openWorkerStreams } from "./stream/connections.ts";
import { watchWorkers } from "./watch.ts";

export type { ExchangeAnswer, ExchangeResult, Workers } from "./port.ts";

export interface WorkersDeps {
  store: Store;
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  clock: Clock;
  dispatcher: Dispatcher;
  definitions: Pick<DefinitionsCache, "known" | "current">;
  runs: Runs;
  log: Log;
  leaseMs: number;
  /** How long workers on streams are given to finish when the server goes. */
  drainMs: number;
  /** Which of these are functions of the environment; answers the others. */
  unknownFunctions: (environmentId: string, ids: readonly string[]) => Promise<string[]>;
  back: GiveBack;
  /** How long a poll without work is held; 0 answers at once. */
  holdMs: number;
  /** `SVC_CAPACITY_ADMISSION`: without it there is no `progress`. */
  admission: boolean;
  metrics: Metrics;
  /** Told after the commit; a hint that may be lost. */
  announce?: (frame: WorkerFrame) => void;
}

/** Endpoints understand failed steps (proto/README.md 'Push requests'). */
const endpointSdkVersion = "1.0.0";
/** A worker that polls is alive; that is written at most this often. */
const heartbeatEveryMs = 10_000;
/** Another node may have heard of a worker anew: a known one is read again after this. */
const knownMs = 5_000;

export function openWorkers(deps: WorkersDeps): Workers {
  const { store, clock, dispatcher, runs, leaseMs, holdMs } = deps;
  const disconnects = watchWorkers(deps);
  const frames = openWorkerFrames(deps.announce);
  const known = new Map<string, { record: rows.WorkerRecord; readAt: number }>();
  const heartbeats = new Map<
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
    const last = heartbeats.get(key)?.at ?? entry.record.lastHeartbeatAt;
    if (now - last >= heartbeatEveryMs)
      heartbeats.set(key, { environmentId, id: workerId, at: now, activeJobs: null });
    return entry.record;
  }

  async function report(
    worker: rows.WorkerRecord,
    jobId: string,
    sent: ReportBody,
    rights: Rights | undefined,
  ): Promise<void> {
    const counts = rights?.reported(sent) ?? sent;
    const body = counts instanceof Promise ? await counts : counts;
    if (body.status === "progress" && !deps.admission)
      throw new Fault("not_found", "progress reports need capacity admission, which is off");
    await submit(worker, jobId, body);
  }

  /** A report as it was sent, of any form. A last one that can never be stored fails its run: the next attempt would send it again. */
  async function submit(
    worker: Pick<rows.WorkerRecord, "environmentId" | "sdk">,
    jobId: string,
    body: unknown,
    mayCorrect = true,
  ): Promise<void> {
    const { environmentId } = worker;
    try {
      const report = readReport(checkReport(body), { environmentId, jobId, now: clock.now(), leaseMs });
      await sendable(runs.report({ ...report, takesFailedSteps: knowsFailedSteps(worker.sdk) }));
    } catch (error) {
      const refused = error instanceof Fault ? lastRefused(jobId, body, error) : undefined;
      if (refused?.isCorrectable && mayCorrect) {
        const { fence, error } = refused;
        const { leaseHash } = fence;
        await sendable(runs.noteRefusal({ ...fence, environmentId, ...error, holder: { leaseHash } }));
      } else if (refused) {
        const outcome = { kind: "failed" as const, error: refused.error };
        const report = { ...refused.fence, environmentId, outcome, steps: [], stepOffset: undefined };
        await unlessLost(sendable(runs.report(report)));
      }
      throw error;
    }
  }

  const ack = async (environmentId: string, sent: AckInput) =>
    sendable(runs.ack({ ...readFence(sent.job_id, sent), environmentId }, leaseMs));

  const poll = (
    worker: rows.WorkerRecord,
    available: number,
    hold: number,
    reports: boolean,
    { signal, rights }: { signal: AbortSignal; rights: Rights | undefined },
  ) => {
    const request: PollRequest = {
      environmentId: worker.environmentId,
      workerId: worker.id,
      functionIds: worker.functionIds,
      available: Math.min(available, pollJobsMax),
      holdMs: hold,
      reports,
      signal,
      mayHave: rights?.mayHave,
    };
    return dispatcher.poll(request);
  };

  /** A lease that ended on the way here has no worker to go to: its run goes back by itself. */
  const assigned = ({ sdk }: rows.WorkerRecord, jobs: readonly Job[]): AssignedJob[] => {
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
    await store.write(async (session) => {
      await deps.shareEnvironment(session, environmentId);
      await rows.upsertWorker(session, record);
    });
    known.set(keyOf(environmentId, record.id), { record, readAt: now });
    frames.connected({ environmentId, workerId: record.id });
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
  async function recordHeartbeat(
    { environmentId, id: workerId }: Pick<rows.WorkerRecord, "environmentId" | "id">,
    activeJobs: number,
    jobs: readonly { runId: string; executionSeq: number }[],
  ): Promise<void> {
    const now = clock.now();
    await store.write(async (session) => {
      if (jobs.length > 0)
        await runs.renew(session, { environmentId, workerId, leaseUntil: now + leaseMs, jobs });
      await rows.recordHeartbeats(session, [{ environmentId, id: workerId, at: now, activeJobs }]);
    });
    heartbeats.delete(keyOf(environmentId, workerId));
    frames.heartbeat({ environmentId, workerId });
    const entry = known.get(keyOf(environmentId, workerId));
    if (entry) entry.record.lastHeartbeatAt = now;
  }

  const { giveBack, underWay } = deps.back;
  const streams = openWorkerStreams({
    clock,
    log: deps.log,
    leaseMs,
    drainMs: deps.drainMs,
    dispatcher,
    disconnects,
    assigned,
    giveBack,
    definitions: deps.definitions,
    register: (environmentId, { worker_id, function_ids, max_concurrent_jobs, ...rest }) =>
      register(
        environmentId,
        { ...rest, workerId: worker_id, functionIds: function_ids, maxConcurrentJobs: max_concurrent_jobs },
        "stream",
      ),
    onDraining: frames.draining,
    async forget(worker) {
      const gone = await store.write((session) => rows.forgetWorker(session, worker));
      known.delete(keyOf(worker.environmentId, worker.id));
      if (gone > 0) frames.disconnected({ environmentId: worker.environmentId, workerId: worker.id });
    },
    submit: (worker, jobId, body) => submit(worker, jobId, body),
    async heartbeat(worker, activeJobs, leases) {
      await recordHeartbeat(worker, activeJobs, leases);
      return runs.leaseStates({ environmentId: worker.environmentId, workerId: worker.id, leases });
    },
  });

  const outcome = async (jobId: string, work: Promise<void>): Promise<ExchangeResult> => {
    try {
      await work;
      return { jobId, fault: undefined };
    } catch (error) {
      if (error instanceof Fault) return { jobId, fault: error };
      // The other reports are stored, and the jobs of the answer are leased: they must reach the worker.
      deps.log.error("worker.report_failed", { jobId, error });
      return { jobId, fault: new Fault("internal", "internal error") };
    }
  };

  return {
    connect: streams.connect,
    cancelled: streams.cancelled,
    reportOf: ({ environmentId, jobId }, body) =>
      submit({ environmentId, sdk: endpointSdkVersion }, jobId, body, false),
    lookOnce: streams.lookOnce,
    forgetEnvironment(environmentId) {
      for (const [key, { record }] of known) if (record.environmentId === environmentId) known.delete(key);
      dispatcher.forgetEnvironment(environmentId);
      streams.forgetEnvironment(environmentId);
    },
    async drain() {
      streams.shutdown("the server is shutting down");
      while (underWay.size > 0) await Promise.all(underWay);
      await streams.settled();
    },

    register: async (environmentId, input) => void (await register(environmentId, input, "rest")),

    async heartbeat(environmentId, workerId, input) {
      await registered(environmentId, workerId);
      const jobs = input.jobIds.flatMap((id) => runOfJob(id) ?? []);
      await recordHeartbeat({ environmentId, id: workerId }, input.activeJobs ?? jobs.length, jobs);
    },

    async list(environmentId) {
      const alive = clock.now() - workerSilenceMsMax;
      return (await rows.listWorkers(store, environmentId)).filter(
        (worker) => worker.lastHeartbeatAt >= alive,
      );
    },

    async poll(environmentId, workerId, available, signal, rights) {
      const worker = await registered(environmentId, workerId);
      await requireServing(rights, worker, deps.definitions);
      const wanted = available ?? worker.maxConcurrent;
      return assigned(worker, await poll(worker, wanted, holdMs, false, { signal, rights }));
    },

    async ack(environmentId, workerId, input) {
      await registered(environmentId, workerId);
      await ack(environmentId, input);
    },

    async report(environmentId, workerId, jobId, body, rights) {
      await report(await registered(environmentId, workerId), jobId, body, rights);
    },

    async reportUnread(environmentId, workerId, jobId, { message }) {
      const job = runOfJob(jobId);
      if (!job) return;
      await runs.noteRefusal({
        ...{ ...job, environmentId, message, code: "REPORT_TOO_LARGE" },
        holder: { workerId },
      });
    },

    async exchange(environmentId, workerId, input, signal, rights) {
      const worker = await registered(environmentId, workerId);
      if (input.available > 0) await requireServing(rights, worker, deps.definitions);
      if (input.reports.length > exchangeReportsMax)
        throw invalid("reports", `at most ${exchangeReportsMax} in one exchange`);
      if (input.acks.length > exchangeReportsMax)
        throw invalid("acks", `at most ${exchangeReportsMax} in one exchange`);
      const busy = input.reports.length + input.acks.length > 0;
      const hold = busy ? 0 : Math.min(input.holdMs ?? holdMs, holdMs);
      const [results, acked, jobs] = await Promise.all([
        Promise.all(
          input.reports.map((body) => outcome(body.job_id, report(worker, body.job_id, body, rights))),
        ),
        Promise.all(input.acks.map((sent) => outcome(sent.job_id, ack(environmentId, sent)))),
        poll(worker, input.available, hold, busy, { signal, rights }),
      ]);
      return { results, acked, jobs: assigned(worker, jobs) };
    },

    async flushHeartbeats() {
      const now = clock.now();
      const batch = [...heartbeats.values()];
      if (batch.length > 0) {
        await store.write((session) => rows.recordHeartbeats(session, batch));
        for (const heartbeat of batch) {
          const entry = known.get(keyOf(heartbeat.environmentId, heartbeat.id));
          if (entry) entry.record.lastHeartbeatAt = heartbeat.at;
          heartbeats.delete(keyOf(heartbeat.environmentId, heartbeat.id));
          frames.heartbeat({ environmentId: heartbeat.environmentId, workerId: heartbeat.id });
        }
      }
      for (const [key, entry] of known) if (now - entry.readAt > workerSilenceMsMax) known.delete(key);
    },

    async forgetOnce(write) {
      const gone = await write((session) => rows.forgetSilent(session, clock.now() - 2 * workerSilenceMsMax));
      disconnects.add(gone.length);
      for (const { environment_id: environmentId, id: workerId } of gone)
        frames.disconnected({ environmentId, workerId });
    },
  };
}
