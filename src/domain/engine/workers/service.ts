import type { Instant } from "../../../kit/clock.ts";
import { invalid } from "../../../kit/fault.ts";
import {
  gaugeCountMax,
  gaugeKeptMs,
  gaugeWaitMsMax,
  pollJobsMax,
  workerSilenceMsMax,
} from "../../../kit/limits.ts";
import type { Counter } from "../../../kit/metrics.ts";
import { cachedQuery } from "../../../kit/ttl-cache.ts";
import type { Basics, Session } from "../../../store/store.ts";
import type { Dispatcher, GiveBack } from "../dispatch/dispatcher.ts";
import type { PollRequest } from "../dispatch/queues.ts";
import type { DefinitionsCache } from "../functions/definition.ts";
import { type AssignedJob, type Job, runOfJob } from "../jobs/rules.ts";
import type { Runs } from "../runs/service.ts";
import type { ConnectedWorkers } from "../serving/service.ts";
import { Absences } from "./absences.ts";
import { exchangeReportsMax } from "./limits.ts";
import type { Workers } from "./port.ts";
import { leaseTermsOf, registrationOf } from "./registration.ts";
import { openWorkerFrames, type WorkerFrame, WorkerRegistry } from "./registry.ts";
import { WorkerReports } from "./reports.ts";
import { type Rights, requireServing } from "./rights.ts";
import type { WorkerRecord } from "./rows.ts";
import * as rows from "./rows.ts";
import { stepsFor } from "./rules.ts";
import { openWorkerStreams } from "./stream/connections.ts";

/**
 * Metrics of workers. Answers the counter of disconnects: only the node that deletes a worker's row counts
 * it.
 */
function watchWorkers({ store, clock, metrics }: Basics<"store" | "clock" | "metrics">): Counter {
  const connected = metrics.gauge({
    name: "svc_workers_connected",
    help: "Workers of the whole installation that were heard of in the last 90 seconds.",
  })();
  const countAlive = cachedQuery({
    clock,
    keptMs: gaugeKeptMs,
    waitMsMax: gaugeWaitMsMax,
    query: () => rows.countAlive(store, clock.now() - workerSilenceMsMax, gaugeCountMax),
  });
  metrics.beforeReading(async () => connected.set(await countAlive()));
  return metrics.counter({
    name: "svc_worker_disconnects_total",
    help: "Streams of workers that ended, and workers forgotten after 90 seconds without a heartbeat; counted by the node that saw it.",
  })();
}

export type { ExchangeAnswer, ExchangeResult, Workers } from "./port.ts";

export interface WorkersDeps extends Basics<"store" | "clock" | "log" | "metrics"> {
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  dispatcher: Dispatcher;
  definitions: Pick<DefinitionsCache, "known" | "current">;
  runs: Runs;
  leaseMs: number;
  /** How long workers on streams have to finish their jobs when the server stops. */
  drainMs: number;
  /** Answers those of the ids that no function of the environment has. */
  unknownFunctions: (environmentId: string, ids: readonly string[]) => Promise<string[]>;
  back: GiveBack;
  /** How long a poll without work is held; 0 answers at once. */
  holdMs: number;
  /** `SVC_CAPACITY_ADMISSION`: without it there is no report with status `progress`. */
  admission: boolean;
  /** All living nodes know runs that wait for several things: others would lose what they wait for. */
  takesWaits: () => Promise<boolean>;
  serving: ConnectedWorkers;
  /** Tells the other nodes that a worker of the environment registered; a hint that may be lost. */
  publishRegistered: (environmentId: string) => void;
  /** Called after the commit; a hint that may be lost. */
  announce?: (frame: WorkerFrame) => void;
}

/** The SDK version of endpoints of functions in push mode: they understand failed steps. */
const endpointSdkVersion = "1.0.0";

const pollRequest = (
  { environmentId, id: workerId, functionIds, compensates, holder, deployment }: WorkerRecord,
  options: Pick<PollRequest, "available" | "holdMs" | "reports" | "signal" | "leaseMs" | "holder">,
  rights: Rights | undefined,
): PollRequest => ({
  environmentId,
  workerId,
  functionIds,
  ...options,
  available: Math.min(options.available, pollJobsMax),
  rights,
  compensates,
  // The process that registered last under this name may be another one than this.
  ...((options.holder ?? null) === holder && { deployment: deployment ?? undefined }),
});

function requireFew(field: string, list: readonly unknown[]): void {
  if (list.length > exchangeReportsMax) throw invalid(field, `at most ${exchangeReportsMax} in one exchange`);
}

/** Drops jobs whose lease has ended meanwhile: their runs return to the queue by themselves. */
const assignedJobs = ({ sdk }: WorkerRecord, jobs: readonly Job[], now: Instant): AssignedJob[] =>
  jobs.flatMap((job) => {
    const left = job.leaseExpiresAt - now;
    if (left <= 0) return [];
    return { ...job, leaseMs: left, completedSteps: stepsFor(sdk, job.completedSteps) };
  });

async function cancelledAmong(
  runs: Pick<Runs, "cancelledOf">,
  environmentId: string,
  jobIds: readonly string[],
): Promise<string[]> {
  const runOf = (jobId: string) => runOfJob(jobId)?.runId ?? "";
  const cancelled = await runs.cancelledOf({ environmentId, runIds: jobIds.map(runOf) });
  return jobIds.filter((jobId) => cancelled.has(runOf(jobId)));
}

/** Pull workers: registration, heartbeats, polls and reports, over REST and over streams. */
export function openWorkers(deps: WorkersDeps): Workers {
  const { clock, dispatcher, runs, holdMs, takesWaits } = deps;
  const { giveBack, underWay } = deps.back;
  const disconnects = watchWorkers(deps);
  const frames = openWorkerFrames(deps.announce);
  const registry = new WorkerRegistry({ ...deps, frames, disconnects });
  const reports = new WorkerReports(deps);
  const absences = new Absences({ ...deps, giveBackLeases: deps.back.giveBackLeases });
  const assigned = (worker: WorkerRecord, jobs: readonly Job[]) => assignedJobs(worker, jobs, clock.now());

  const streams = openWorkerStreams({
    ...{ clock, dispatcher, absences, disconnects, assigned, giveBack, takesWaits },
    ...{ log: deps.log, leaseMs: deps.leaseMs, drainMs: deps.drainMs, definitions: deps.definitions },
    register: (environmentId, sent) =>
      registry.register(environmentId, registrationOf(sent.worker_id, sent), "stream"),
    conflictsOf: (worker) => deps.serving.conflictsOf(worker),
    onDraining: frames.draining,
    forget: (worker) => registry.forget(worker),
    submit: (worker, jobId, body, leaseMs) => reports.submit(worker, jobId, body, { leaseMs }),
    async heartbeat(worker, activeJobs, leases, leaseMs) {
      await registry.recordHeartbeat(worker, { activeJobs, jobs: leases, leaseMs });
      return runs.leaseStates({ environmentId: worker.environmentId, workerId: worker.id, leases });
    },
  });

  return {
    connect: streams.connect,
    cancelled: streams.cancelled,
    lookOnce: streams.lookOnce,

    reportOf: ({ environmentId, jobId }, body) =>
      reports.submit({ environmentId, sdk: endpointSdkVersion }, jobId, body, { mayCorrect: false }),

    forgetEnvironment(environmentId) {
      registry.forgetEnvironment(environmentId);
      dispatcher.forgetEnvironment(environmentId);
      streams.forgetEnvironment(environmentId);
    },

    async drain() {
      absences.drain();
      streams.shutdown("the server is shutting down");
      while (underWay.size > 0) await Promise.all(underWay);
      await streams.settled();
    },

    leaseTerms: (asked) => leaseTermsOf(asked, deps.leaseMs),
    takesWaits,

    async register(environmentId, input, terms) {
      const worker = await registry.register(environmentId, input, "rest");
      if (terms) absences.came({ environmentId, workerId: worker.id }, terms);
      return worker;
    },

    async heartbeat(environmentId, workerId, input) {
      const worker = await registry.seen(environmentId, workerId);
      const jobs = input.jobIds.flatMap((id) => runOfJob(id) ?? []);
      const { activeJobs = jobs.length, terms: { leaseMs } = deps } = input;
      await registry.recordHeartbeat(worker, { activeJobs, jobs, leaseMs });
      streams.renewed(worker, input.jobIds);
      const conflicts = deps.serving.conflictsOf(worker);
      return { conflicts, cancelledJobs: await cancelledAmong(runs, environmentId, input.jobIds) };
    },

    async leave(environmentId, workerId, terms) {
      const isGone = await registry.leave({ environmentId, id: workerId, holder: terms.holder ?? null });
      if (isGone) absences.parted({ environmentId, workerId }, terms);
    },
    list: (environmentId) => registry.listAlive(environmentId),

    async poll(environmentId, workerId, wanted, signal, rights) {
      const worker = await registry.seen(environmentId, workerId);
      await requireServing(rights, worker, deps.definitions);
      const available = wanted ?? worker.maxConcurrent;
      const request = pollRequest(worker, { available, holdMs, reports: false, signal }, rights);
      return assigned(worker, await dispatcher.poll(request));
    },

    async ack(environmentId, workerId, input) {
      await registry.seen(environmentId, workerId);
      await reports.ack(environmentId, input);
    },

    async report(environmentId, workerId, jobId, body, rights) {
      await reports.report(await registry.seen(environmentId, workerId), jobId, body, rights);
    },

    reportUnread: (environmentId, report, fault) => reports.endUnread(environmentId, report, fault),

    async exchange(environmentId, workerId, input, signal, rights) {
      const worker = await registry.seen(environmentId, workerId);
      if (input.available > 0) await requireServing(rights, worker, deps.definitions);
      requireFew("reports", input.reports);
      requireFew("acks", input.acks);
      // Results are not held back while the poll waits for a job.
      const busy = input.reports.length + input.acks.length > 0;
      const hold = busy ? 0 : Math.min(input.holdMs ?? holdMs, holdMs);
      if (input.held) await absences.holds({ environmentId, workerId }, input.terms, input.held);
      const { leaseMs, holder } = input.terms;
      const options = { available: input.available, holdMs: hold, reports: busy, signal, leaseMs, holder };
      const [results, acked, jobs] = await Promise.all([
        Promise.all(
          input.reports.map((body) =>
            reports.resultOf(body.job_id, reports.report(worker, body.job_id, body, rights, leaseMs)),
          ),
        ),
        Promise.all(
          input.acks.map((sent) => reports.resultOf(sent.job_id, reports.ack(environmentId, sent))),
        ),
        absences.during(worker, input.terms, options, dispatcher.poll(pollRequest(worker, options, rights))),
      ]);
      return { results, acked, jobs: assigned(worker, jobs) };
    },

    flushHeartbeats: () => registry.flushHeartbeats(),
    forgetOnce: (write) => registry.forgetSilent(write),
  };
}
