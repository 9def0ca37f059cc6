import { type Instant, rfc3339 } from "../../../../kit/clock.ts";
import { Fault, invalid } from "../../../../kit/fault.ts";
import {
  streamAckMs,
  streamDistrustMs,
  streamFullMs,
  streamOutboxMax,
  streamSilenceMsMax,
} from "../../../../kit/limits.ts";
import { type HandedJob, leaseHashOf, runOfJob } from "../../jobs/rules.ts";
import type { HeldLease } from "../../runs/execution/leases.ts";
import { openIntake } from "../intake.ts";
import { openOutbox } from "../outbox.ts";
import { type Report, readFence } from "../report.ts";
import type { WorkerRecord } from "../rows.ts";
import { nameOfStepId } from "../yields.ts";
import { openAsks } from "./stream-asks.ts";
import { type JobReports, openJobReports, type SentStep, withTimeLeft } from "./stream-job.ts";
import type { StreamAnswer, StreamMessage } from "./stream-messages.ts";
import type { StreamDeps, WorkerStream } from "./stream-port.ts";

/** A job this stream's worker has, from its assignment to its last report. */
interface Held {
  job: HandedJob | undefined;
  fence: { execution_seq: number; lease_token: string };
  acked: boolean;
  /** Of `clock.elapsed()`. */
  sentAt: number;
  leaseUntil: Instant;
  reports: JobReports;
  started: Map<string, { name: string; type: SentStep["type"]; at: Instant }>;
}

export function openStream(deps: StreamDeps, worker: WorkerRecord, onClosed: () => void): WorkerStream {
  const { clock, log } = deps;
  const { environmentId, id: workerId } = worker;
  const outbox = openOutbox<StreamAnswer>(streamOutboxMax);
  const held = new Map<string, Held>();
  /** Jobs that the worker brought along from an earlier stream: they take up its slots. */
  const earlier = new Set<string>();
  const over = new AbortController();
  let closed = false;
  let leaving = false;
  let heardAt = clock.elapsed();
  const intake = openIntake();
  /** Set once the server goes. */
  let stopping: Fault | undefined;
  const settling = new Set<Promise<void>>();
  let beating: Promise<void> = Promise.resolve();

  function close(fault?: unknown): void {
    if (closed) return;
    closed = true;
    const unstarted = [...held.values()].flatMap(({ acked, job }) => (acked || !job ? [] : job));
    held.clear();
    over.abort();
    if (unstarted.length > 0) deps.giveBack(unstarted);
    // A worker that does not read is not waited for.
    outbox.end(fault, outbox.room() === 0 ? "now" : undefined);
    intake.close();
    onClosed();
  }

  function tell(answer: StreamAnswer): void {
    if (closed || outbox.push(answer)) return;
    log.warn("worker.stream_slow", { environmentId, workerId });
    close(new Fault("resource_exhausted", `more than ${streamOutboxMax} messages wait to be read`));
  }

  const ignored = (what: string, jobId: string, reason: string) =>
    log.info("worker.message_ignored", { environmentId, workerId, what, jobId, reason });

  const submitOf = (jobId: string) => (sent: Report) => {
    const counts = deps.rights?.reported(sent) ?? sent;
    if (!(counts instanceof Promise)) return deps.submit(worker, jobId, counts);
    return counts.then((report) => deps.submit(worker, jobId, report));
  };

  const openHeld = (jobId: string, fence: Held["fence"], job: HandedJob | undefined): Held => {
    const one: Held = {
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
          if (outbox.room() > streamOutboxMax / 2) tell({ kind: "step_ack", stepId, fault });
        },
        onLost(fault) {
          if (!(fault instanceof Fault)) log.error("worker.report_failed", { workerId, jobId, error: fault });
          else ignored("report", jobId, fault.code ?? fault.message);
          if (drop(jobId)) tell({ kind: "cancel", jobId, reason: "the job is no longer this worker's" });
          ask();
        },
        onLess: intake.less,
      }),
    };
    held.set(jobId, one);
    return one;
  };

  const asks = openAsks({
    clock,
    log,
    dispatcher: deps.dispatcher,
    mayHave: deps.rights?.mayHave,
    worker,
    signal: over.signal,
    free: () =>
      closed || leaving ? 0 : Math.min(worker.maxConcurrent - held.size - earlier.size, outbox.room() - 1),
    onJobs(jobs) {
      if (closed || leaving) return deps.giveBack(jobs);
      for (const job of deps.handed(worker, jobs)) {
        const fence = { execution_seq: job.executionSeq, lease_token: job.leaseToken };
        const one = openHeld(job.jobId, fence, job);
        try {
          tell({ kind: "job", job, message: deps.written(job) });
        } catch (error) {
          failUnwritten(one, job, error);
        }
      }
    },
  });
  const { ask } = asks;

  /** What cannot be written now cannot be the next time either: its run ends, and the stream's other jobs go on. */
  function failUnwritten(one: Held, { jobId, runId }: HandedJob, error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    log.warn("worker.job_unwritten", { environmentId, workerId, runId, error });
    const why = { message: `the job cannot be sent: ${reason}`, code: "JOB_NOT_SENDABLE", retryable: false };
    const last: Report = { ...one.fence, status: "failed", error: why };
    intake.add(last);
    one.reports.end(last);
    ended(jobId);
  }

  type SentFence = { execution_seq?: unknown; lease_token?: unknown };

  /** The job that a message speaks of when its fence is this stream's; undefined is for the log. Throws for no fence at all. */
  function spokenOf(what: string, jobId: string, sent: SentFence): Held | undefined {
    readFence(jobId, sent);
    const one = held.get(jobId);
    const isSame =
      one?.fence.lease_token === sent.lease_token && one?.fence.execution_seq === sent.execution_seq;
    if (isSame) return one;
    ignored(what, jobId, one ? "stale fence" : "no such job");
    return undefined;
  }

  /** As `spokenOf`; a job that an earlier stream of this worker was handed is known by its fence alone. */
  function ownOrEarlier(what: string, jobId: string, sent: SentFence): Held | undefined {
    const { executionSeq } = readFence(jobId, sent);
    const fence = { execution_seq: executionSeq, lease_token: sent.lease_token as string };
    if (held.has(jobId) || held.size >= 2 * worker.maxConcurrent) return spokenOf(what, jobId, sent);
    earlier.delete(jobId);
    return openHeld(jobId, fence, undefined);
  }

  /** It takes up no slot any more; what it has reported is still stored. */
  function drop(jobId: string): boolean {
    const one = held.get(jobId);
    if (!one) return false;
    held.delete(jobId);
    const settled = one.reports.settled().then(() => {
      settling.delete(settled);
      stopIfEmpty();
    });
    settling.add(settled);
    return true;
  }

  const stopIfEmpty = () => {
    if (stopping && held.size + settling.size === 0) close(stopping);
  };

  function release(one: Held, jobId: string, pauseMs: number): void {
    drop(jobId);
    asks.pause(pauseMs);
    if (one.job) deps.giveBack([one.job]);
  }

  function ended(jobId: string): void {
    earlier.delete(jobId);
    drop(jobId);
    ask();
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
      beating = beating
        .then(async () => {
          const states = await deps.beat(worker, active_jobs, leases);
          const leaseUntil = clock.now() + deps.leaseMs;
          for (const [jobId, one] of held) {
            const at = jobs.findIndex((job) => job.job_id === jobId);
            if (at < 0) continue;
            if (states[at] === "refreshed") one.leaseUntil = leaseUntil;
            else drop(jobId);
          }
          earlier.clear();
          for (const [at, { job_id }] of jobs.entries())
            if (states[at] === "refreshed" && !held.has(job_id)) earlier.add(job_id);
          tell({ kind: "leases", segments: leases.map((lease, at) => ({ ...lease, state: states[at]! })) });
          ask();
        })
        .catch((error) => log.warn("worker.heartbeat_failed", { workerId, error: String(error) }))
        .finally(() => intake.less([jobs]));
    },

    started(sent) {
      const one = spokenOf("step_started", sent.job_id, sent);
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
      if (number !== undefined) return answered(job_id, number, report as Report);
      const one = ownOrEarlier("report", job_id, report);
      if (!one) return;
      if (one.reports.over) return ignored("report", job_id, "the job has been reported");
      const told = withTimeLeft(report as Report, clock.now());
      intake.add(told);
      one.reports.end(told);
      ended(job_id);
    },

    refused: ({ number, message }) =>
      tell({ kind: "reported", number, fault: new Fault("invalid_argument", message) }),

    ack(sent) {
      const one = spokenOf("job_ack", sent.job_id, sent);
      if (one) one.acked = true;
      else tell({ kind: "cancel", jobId: sent.job_id, reason: "the job is no longer this worker's" });
    },

    nack({ reason, ...sent }) {
      const one = spokenOf("job_nack", sent.job_id, sent);
      if (!one) return;
      if (reason === "draining" && !leaving) {
        leaving = true;
        deps.onDraining({ environmentId, workerId });
      }
      release(one, sent.job_id, streamFullMs);
    },
  };

  /** Reports of workers that want to know: told what the REST route would have answered. */
  function answered(jobId: string, number: number, report: Report): void {
    readFence(jobId, report);
    intake.add(report);
    const last = report.status !== "progress";
    if (last) ended(jobId);
    const answering = submitOf(jobId)(report)
      .then(
        () => tell({ kind: "reported", number, fault: undefined }),
        (error: unknown) => {
          if (!(error instanceof Fault)) {
            log.error("worker.report_failed", { workerId, jobId, error });
            error = new Fault("internal", "internal error");
          }
          tell({ kind: "reported", number, fault: error as Fault });
        },
      )
      .finally(() => {
        intake.less([report]);
        settling.delete(answering);
        stopIfEmpty();
      });
    settling.add(answering);
  }

  ask();
  return {
    worker,
    get closed() {
      return closed;
    },
    answers: outbox.read,

    take(message) {
      for (const [kind, sent] of Object.entries(message)) {
        if (sent === undefined) continue;
        if (kind === "heartbeat") heardAt = clock.elapsed();
        (handlers[kind as keyof StreamMessage] as (sent: unknown) => void)(sent);
      }
    },

    ready: intake.ready,

    look() {
      if (closed) return;
      const elapsed = clock.elapsed();
      if (elapsed - heardAt > streamSilenceMsMax)
        return close(new Fault("deadline_exceeded", `no heartbeat for ${streamSilenceMsMax} ms`));
      const now = clock.now();
      for (const [jobId, one] of held) {
        if (!one.acked && elapsed - one.sentAt >= streamAckMs) {
          log.info("worker.job_unacked", { environmentId, workerId, jobId });
          release(one, jobId, streamDistrustMs);
        } else if (one.leaseUntil <= now) drop(jobId);
      }
      ask();
      stopIfEmpty();
    },

    cancel(runId, executionSeq, reason) {
      for (const jobId of held.keys()) {
        const named = runOfJob(jobId);
        if (named?.runId !== runId || named.executionSeq !== executionSeq) continue;
        tell({ kind: "cancel", jobId, reason });
        ended(jobId);
      }
    },

    shutdown(reason, drainTimeoutMs) {
      leaving = true;
      stopping = new Fault("unavailable", reason);
      tell({ kind: "shutdown", reason, drainTimeoutMs });
      stopIfEmpty();
    },

    async leave() {
      leaving = true;
      for (const [jobId, one] of held) if (one.acked) drop(jobId);
      await Promise.all([beating, ...settling]);
      close();
    },

    close,
  };
}
