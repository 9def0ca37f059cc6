import { type Instant, rfc3339 } from "../../../../kit/clock.ts";
import { Fault, invalid } from "../../../../kit/fault.ts";
import {
  streamAckMs,
  streamDistrustMs,
  streamFullMs,
  streamOutboxMax,
  streamSilenceMsMax,
} from "../../../../kit/limits.ts";
import { type AssignedJob, leaseHashOf, runOfJob } from "../../jobs/rules.ts";
import type { HeldLease } from "../../runs/execution/leases.ts";
import { type ReportBody, readFence } from "../report-body.ts";
import type { WorkerRecord } from "../rows.ts";
import { nameOfStepId } from "../yields.ts";
import { openIntake } from "./intake.ts";
import { type JobReports, openJobReports, type SentStep, withTimeLeft } from "./job-reports.ts";
import type { StreamAnswer, StreamMessage } from "./messages.ts";
import { openStreamPoller } from "./poller.ts";
import type { StreamDeps, WorkerStream } from "./port.ts";
import { openWriteBuffer } from "./write-buffer.ts";

/** A job this stream's worker has, from its assignment to its last report. */
interface StreamJob {
  job: AssignedJob | undefined;
  fence: { execution_seq: number; lease_token: string };
  acked: boolean;
  /** Of `clock.elapsed()`. */
  sentAt: number;
  leaseUntil: Instant;
  reports: JobReports;
  started: Map<string, { name: string; type: SentStep["type"]; at: Instant }>;
}

export function openWorkerStream(deps: StreamDeps, worker: WorkerRecord, onClosed: () => void): WorkerStream {
  const { clock, log } = deps;
  const { environmentId, id: workerId } = worker;
  const buffer = openWriteBuffer<StreamAnswer>(streamOutboxMax);
  const streamJobs = new Map<string, StreamJob>();
  /** Jobs that the worker brought along from an earlier stream: they take up its slots. */
  const earlier = new Set<string>();
  const over = new AbortController();
  let closed = false;
  let leaving = false;
  let lastHeartbeatAt = clock.elapsed();
  const intake = openIntake();
  /** Set once the server goes. */
  let stopping: Fault | undefined;
  const finishing = new Set<Promise<void>>();
  let heartbeats: Promise<void> = Promise.resolve();

  function close(fault?: unknown): void {
    if (closed) return;
    closed = true;
    const unstarted = [...streamJobs.values()].flatMap(({ acked, job }) => (acked || !job ? [] : job));
    streamJobs.clear();
    over.abort();
    if (unstarted.length > 0) deps.giveBack(unstarted);
    // A worker that does not read is not waited for.
    buffer.end(fault, buffer.room() === 0 ? "now" : undefined);
    intake.close();
    onClosed();
  }

  function send(answer: StreamAnswer): void {
    if (closed || buffer.push(answer)) return;
    log.warn("worker.stream_slow", { environmentId, workerId });
    close(new Fault("resource_exhausted", `more than ${streamOutboxMax} messages wait to be read`));
  }

  const ignored = (what: string, jobId: string, reason: string) =>
    log.info("worker.message_ignored", { environmentId, workerId, what, jobId, reason });

  const submitOf = (jobId: string) => (sent: ReportBody) => {
    const counts = deps.rights?.reported(sent) ?? sent;
    if (!(counts instanceof Promise)) return deps.submit(worker, jobId, counts);
    return counts.then((report) => deps.submit(worker, jobId, report));
  };

  const openStreamJob = (
    jobId: string,
    fence: StreamJob["fence"],
    job: AssignedJob | undefined,
  ): StreamJob => {
    const one: StreamJob = {
      job,
      fence,
      acked: job === undefined,
      sentAt: clock.elapsed(),
      leaseUntil: job?.leaseExpiresAt ?? clock.now() + deps.leaseMs,
      started: new Map(),
      reports: openJobReports({
        jobId,
        fence,
        stepBase: job?.stepSequenceBase,
        clock,
        log,
        submit: submitOf(jobId),
        signal: over.signal,
        // For the log of a worker: not worth a stream that reads slowly.
        onStored(stepId, fault) {
          if (buffer.room() > streamOutboxMax / 2) send({ kind: "step_ack", stepId, fault });
        },
        onLost(fault) {
          if (!(fault instanceof Fault)) log.error("worker.report_failed", { workerId, jobId, error: fault });
          else ignored("report", jobId, fault.code ?? fault.message);
          if (drop(jobId)) send({ kind: "cancel", jobId, reason: "the job is no longer this worker's" });
          poll();
        },
        onRemoved: intake.remove,
      }),
    };
    streamJobs.set(jobId, one);
    return one;
  };

  const poller = openStreamPoller({
    clock,
    log,
    dispatcher: deps.dispatcher,
    mayHave: deps.rights?.mayHave,
    worker,
    signal: over.signal,
    free: () =>
      closed || leaving
        ? 0
        : Math.min(worker.maxConcurrent - streamJobs.size - earlier.size, buffer.room() - 1),
    onJobs(jobs) {
      if (closed || leaving) return deps.giveBack(jobs);
      for (const job of deps.assigned(worker, jobs)) {
        const fence = { execution_seq: job.executionSeq, lease_token: job.leaseToken };
        const one = openStreamJob(job.jobId, fence, job);
        try {
          send({ kind: "job", job, message: deps.written(job) });
        } catch (error) {
          failUnwritten(one, job, error);
        }
      }
    },
  });
  const { poll } = poller;

  /** What cannot be written now cannot be the next time either: its run ends, and the stream's other jobs go on. */
  function failUnwritten(one: StreamJob, { jobId, runId }: AssignedJob, error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    log.warn("worker.job_unwritten", { environmentId, workerId, runId, error });
    const why = { message: `the job cannot be sent: ${reason}`, code: "JOB_NOT_SENDABLE", retryable: false };
    const last: ReportBody = { ...one.fence, status: "failed", error: why };
    intake.add(last);
    one.reports.end(last);
    ended(jobId);
  }

  type SentFence = { execution_seq?: unknown; lease_token?: unknown };

  /** The job that a message speaks of when its fence is this stream's; undefined is for the log. Throws for no fence at all. */
  function jobNamedBy(what: string, jobId: string, sent: SentFence): StreamJob | undefined {
    readFence(jobId, sent);
    const one = streamJobs.get(jobId);
    const isSame =
      one?.fence.lease_token === sent.lease_token && one?.fence.execution_seq === sent.execution_seq;
    if (isSame) return one;
    ignored(what, jobId, one ? "stale fence" : "no such job");
    return undefined;
  }

  /** As `spokenOf`; a job that an earlier stream of this worker was handed is known by its fence alone. */
  function ownOrEarlier(what: string, jobId: string, sent: SentFence): StreamJob | undefined {
    const { executionSeq } = readFence(jobId, sent);
    const fence = { execution_seq: executionSeq, lease_token: sent.lease_token as string };
    if (streamJobs.has(jobId) || streamJobs.size >= 2 * worker.maxConcurrent)
      return jobNamedBy(what, jobId, sent);
    earlier.delete(jobId);
    return openStreamJob(jobId, fence, undefined);
  }

  /** It takes up no slot any more; what it has reported is still stored. */
  function drop(jobId: string): boolean {
    const one = streamJobs.get(jobId);
    if (!one) return false;
    streamJobs.delete(jobId);
    const settled = one.reports.settled().then(() => {
      finishing.delete(settled);
      stopIfEmpty();
    });
    finishing.add(settled);
    return true;
  }

  const stopIfEmpty = () => {
    if (stopping && streamJobs.size + finishing.size === 0) close(stopping);
  };

  function release(one: StreamJob, jobId: string, pauseMs: number): void {
    drop(jobId);
    poller.pause(pauseMs);
    if (one.job) deps.giveBack([one.job]);
  }

  function ended(jobId: string): void {
    earlier.delete(jobId);
    drop(jobId);
    poll();
  }

  const handlers: { [Kind in keyof StreamMessage]-?: (sent: NonNullable<StreamMessage[Kind]>) => void } = {
    register() {
      throw invalid("register", "only as the first message");
    },

    heartbeat({ active_jobs, jobs }) {
      const leases = jobs.map(({ job_id, execution_seq, lease_token }): HeldLease => {
        const named = runOfJob(job_id);
        return {
          runId: named?.runId ?? job_id,
          executionSeq: execution_seq || (named?.executionSeq ?? 0),
          leaseHash: lease_token === "" ? undefined : leaseHashOf(lease_token),
        };
      });
      intake.add(jobs);
      heartbeats = heartbeats
        .then(async () => {
          const states = await deps.heartbeat(worker, active_jobs, leases);
          const leaseUntil = clock.now() + deps.leaseMs;
          for (const [jobId, one] of streamJobs) {
            const at = jobs.findIndex((job) => job.job_id === jobId);
            if (at < 0) continue;
            if (states[at] === "refreshed") one.leaseUntil = leaseUntil;
            else drop(jobId);
          }
          earlier.clear();
          for (const [at, { job_id }] of jobs.entries())
            if (states[at] === "refreshed" && !streamJobs.has(job_id)) earlier.add(job_id);
          send({ kind: "leases", segments: leases.map((lease, at) => ({ ...lease, state: states[at]! })) });
          poll();
        })
        .catch((error) => log.warn("worker.heartbeat_failed", { workerId, error: String(error) }))
        .finally(() => intake.remove([jobs]));
    },

    started(sent) {
      const one = jobNamedBy("step_started", sent.job_id, sent);
      one?.started.set(sent.id, { name: sent.name, type: sent.type, at: clock.now() });
    },

    step({ job_id, execution_seq, lease_token, duration_ms, ...sent }) {
      const one = ownOrEarlier("step", job_id, { execution_seq, lease_token });
      if (!one) return;
      const now = clock.now();
      const begun = one.started.get(sent.id);
      one.started.delete(sent.id);
      const step = {
        ...sent,
        name: begun?.name || nameOfStepId(sent.id),
        type: begun?.type ?? "invoke",
        started_at: rfc3339(begun?.at ?? now - Math.max(0, duration_ms ?? 0)),
        ended_at: rfc3339(now),
        ...(duration_ms !== undefined && { duration_ms }),
      };
      intake.add(step);
      one.reports.add(step);
    },

    report({ job_id, number, ...report }) {
      if (number !== undefined) return answered(job_id, number, report as ReportBody);
      const one = ownOrEarlier("report", job_id, report);
      if (!one) return;
      if (one.reports.over) return ignored("report", job_id, "the job has been reported");
      const timed = withTimeLeft(report as ReportBody, clock.now());
      intake.add(timed);
      one.reports.end(timed);
      ended(job_id);
    },

    refused: ({ number, message }) =>
      send({ kind: "reported", number, fault: new Fault("invalid_argument", message) }),

    ack(sent) {
      const one = jobNamedBy("job_ack", sent.job_id, sent);
      if (one) one.acked = true;
      else send({ kind: "cancel", jobId: sent.job_id, reason: "the job is no longer this worker's" });
    },

    nack({ reason, ...sent }) {
      const one = jobNamedBy("job_nack", sent.job_id, sent);
      if (!one) return;
      if (reason === "draining" && !leaving) {
        leaving = true;
        deps.onDraining({ environmentId, workerId });
      }
      release(one, sent.job_id, streamFullMs);
    },
  };

  /** Reports of workers that want to know: told what the REST route would have answered. */
  function answered(jobId: string, number: number, report: ReportBody): void {
    readFence(jobId, report);
    intake.add(report);
    const last = report.status !== "progress";
    if (last) ended(jobId);
    const answering = submitOf(jobId)(report)
      .then(
        () => send({ kind: "reported", number, fault: undefined }),
        (error: unknown) => {
          if (!(error instanceof Fault)) {
            log.error("worker.report_failed", { workerId, jobId, error });
            error = new Fault("internal", "internal error");
          }
          send({ kind: "reported", number, fault: error as Fault });
        },
      )
      .finally(() => {
        intake.remove([report]);
        finishing.delete(answering);
        stopIfEmpty();
      });
    finishing.add(answering);
  }

  poll();
  return {
    worker,
    get closed() {
      return closed;
    },
    answers: buffer.read,

    receive(message) {
      for (const [kind, sent] of Object.entries(message)) {
        if (sent === undefined) continue;
        if (kind === "heartbeat") lastHeartbeatAt = clock.elapsed();
        (handlers[kind as keyof StreamMessage] as (sent: unknown) => void)(sent);
      }
    },

    ready: intake.ready,

    look() {
      if (closed) return;
      const elapsed = clock.elapsed();
      if (elapsed - lastHeartbeatAt > streamSilenceMsMax)
        return close(new Fault("deadline_exceeded", `no heartbeat for ${streamSilenceMsMax} ms`));
      const now = clock.now();
      for (const [jobId, one] of streamJobs) {
        if (!one.acked && elapsed - one.sentAt >= streamAckMs) {
          log.info("worker.job_unacked", { environmentId, workerId, jobId });
          release(one, jobId, streamDistrustMs);
        } else if (one.leaseUntil <= now) drop(jobId);
      }
      poll();
      stopIfEmpty();
    },

    cancel(runId, executionSeq, reason) {
      for (const jobId of streamJobs.keys()) {
        const named = runOfJob(jobId);
        if (named?.runId !== runId || named.executionSeq !== executionSeq) continue;
        send({ kind: "cancel", jobId, reason });
        ended(jobId);
      }
    },

    shutdown(reason, drainTimeoutMs) {
      leaving = true;
      stopping = new Fault("unavailable", reason);
      send({ kind: "shutdown", reason, drainTimeoutMs });
      stopIfEmpty();
    },

    async leave() {
      leaving = true;
      for (const [jobId, one] of streamJobs) if (one.acked) drop(jobId);
      await Promise.all([heartbeats, ...finishing]);
      close();
    },

    close,
  };
}
