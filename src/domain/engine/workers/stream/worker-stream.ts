import { type Instant, rfc3339 } from "../../../../kit/clock.ts";
import { Fault, invalid } from "../../../../kit/fault.ts";
import { type AssignedJob, type Job, leaseHashOf, runOfJob } from "../../jobs/rules.ts";
import type { HeldLease } from "../../runs/execution/leases.ts";
import { type ReportBody, readFence } from "../report-body.ts";
import type { WorkerRecord } from "../rows.ts";
import { nameOfStepId } from "../yields.ts";
import { openIntake, openWriteBuffer } from "./intake.ts";
import {
  streamAckMs,
  streamDistrustMs,
  streamFullMs,
  streamOutboxMax,
  streamSilenceMsMax,
} from "./limits.ts";
import type { StreamAnswer, StreamMessage } from "./messages.ts";
import { openStreamPoller, type StreamPoller } from "./poller.ts";
import type { StreamDeps, WorkerStream } from "./port.ts";
import {
  type JobFence,
  openJobReports,
  type SentStep,
  type StreamJob,
  StreamJobs,
  withTimeLeft,
} from "./stream-jobs.ts";

type Sent<Kind extends keyof StreamMessage> = NonNullable<StreamMessage[Kind]>;

/** A registered worker on its stream: polls for jobs in its name, and handles its messages. */
export class RegisteredStream implements WorkerStream {
  readonly worker: WorkerRecord;
  readonly #deps: StreamDeps;
  readonly #onClosed: (inOrder: boolean) => void;
  readonly #buffer = openWriteBuffer<StreamAnswer>(streamOutboxMax);
  readonly #intake = openIntake();
  readonly #jobs: StreamJobs;
  readonly #poller: StreamPoller;
  /** Aborted when the stream is closed: nothing is retried for it any more. */
  readonly #over = new AbortController();
  #closed = false;
  /** No further job is assigned. */
  #leaving = false;
  /** Set when the server stops: the stream is closed with it after the last job. */
  #stopping: Fault | undefined;
  /** Of `clock.elapsed()`. */
  #lastHeartbeatAt: number;
  /** Heartbeats are stored one after another, in the order they arrived. */
  #heartbeats: Promise<void> = Promise.resolve();

  /** `onClosed` takes whether the worker, or the server, ended it in order. */
  constructor(deps: StreamDeps, worker: WorkerRecord, onClosed: (inOrder: boolean) => void) {
    this.worker = worker;
    this.#deps = deps;
    this.#onClosed = onClosed;
    this.#lastHeartbeatAt = deps.clock.elapsed();
    this.#jobs = new StreamJobs({
      jobsMax: 2 * worker.maxConcurrent,
      newJob: (jobId, fence, job) => this.#newJob(jobId, fence, job),
      onIgnored: (what, jobId, reason) => this.#logIgnored(what, jobId, reason),
      onSettled: () => this.#closeIfDone(),
    });
    this.#poller = openStreamPoller({
      clock: deps.clock,
      log: deps.log,
      dispatcher: deps.dispatcher,
      rights: deps.rights,
      terms: deps.terms,
      worker,
      signal: this.#over.signal,
      free: () => this.#freeSlots(),
      onJobs: (jobs) => this.#assign(jobs),
    });
    this.#poller.poll();
  }

  get closed(): boolean {
    return this.#closed;
  }

  answers(): AsyncGenerator<StreamAnswer> {
    return this.#buffer.read();
  }

  ready(): Promise<void> {
    return this.#intake.ready();
  }

  /** A message has one of these. Throws what closes the stream: the worker breaks the protocol. */
  receive({ register, heartbeat, started, step, report, refused, ack, nack }: StreamMessage): void {
    if (register) throw invalid("register", "allowed as the first message only");
    if (heartbeat) this.#onHeartbeat(heartbeat);
    if (started) this.#onStarted(started);
    if (step) this.#onStep(step);
    if (report) this.#onReport(report);
    if (refused) this.#onRefused(refused);
    if (ack) this.#onAck(ack);
    if (nack) this.#onNack(nack);
  }

  look(): void {
    if (this.#closed) return;
    const { clock, log } = this.#deps;
    const elapsed = clock.elapsed();
    if (elapsed - this.#lastHeartbeatAt > streamSilenceMsMax) {
      this.close(new Fault("deadline_exceeded", `no heartbeat for ${streamSilenceMsMax} ms`));
      return;
    }
    const now = clock.now();
    for (const [jobId, held] of this.#jobs.entries()) {
      if (!held.acked && elapsed - held.sentAt >= streamAckMs) {
        log.info("worker.job_unacked", { ...this.#names(), jobId });
        this.#release(held, jobId, streamDistrustMs);
      } else if (held.leaseUntil <= now) this.#jobs.drop(jobId);
    }
    this.#poller.poll();
    this.#closeIfDone();
  }

  renewed(jobIds: readonly string[]): void {
    const { clock, terms } = this.#deps;
    this.#lastHeartbeatAt = clock.elapsed();
    this.#jobs.renewed(new Set(jobIds), clock.now() + terms.leaseMs);
  }

  cancel(runId: string, executionSeq: number, reason: string): void {
    for (const [jobId] of this.#jobs.entries()) {
      const named = runOfJob(jobId);
      if (named?.runId !== runId || named.executionSeq !== executionSeq) continue;
      this.#send({ kind: "cancel", jobId, reason });
      this.#end(jobId);
    }
  }

  shutdown(reason: string, drainTimeoutMs: number): void {
    this.#leaving = true;
    this.#stopping = new Fault("unavailable", reason);
    this.#send({ kind: "shutdown", reason, drainTimeoutMs });
    this.#closeIfDone();
  }

  async leave(): Promise<void> {
    this.#leaving = true;
    for (const [jobId, { acked }] of this.#jobs.entries()) if (acked) this.#jobs.drop(jobId);
    await Promise.all([this.#heartbeats, this.#jobs.settled()]);
    this.close();
  }

  close(fault?: unknown): void {
    if (this.#closed) return;
    this.#closed = true;
    const unacked = this.#jobs.clear();
    this.#over.abort();
    if (unacked.length > 0) this.#deps.giveBack(unacked);
    // A full buffer means that the worker does not read: what is in it would keep the stream open without
    // end.
    this.#buffer.end(fault, this.#buffer.room() === 0 ? "now" : undefined);
    this.#intake.close();
    this.#onClosed(this.#leaving);
  }

  #closeIfDone(): void {
    if (this.#stopping && this.#jobs.isIdle) this.close(this.#stopping);
  }

  #send(answer: StreamAnswer): void {
    if (this.#closed || this.#buffer.push(answer)) return;
    this.#deps.log.warn("worker.stream_slow", this.#names());
    this.close(new Fault("resource_exhausted", `more than ${streamOutboxMax} messages wait to be read`));
  }

  #names(): { environmentId: string; workerId: string } {
    return { environmentId: this.worker.environmentId, workerId: this.worker.id };
  }

  #logIgnored(what: string, jobId: string, reason: string): void {
    this.#deps.log.info("worker.message_ignored", { ...this.#names(), what, jobId, reason });
  }

  #freeSlots(): number {
    if (this.#closed || this.#leaving) return 0;
    return Math.min(this.worker.maxConcurrent - this.#jobs.slotsUsed, this.#buffer.room() - 1);
  }

  #assign(jobs: readonly Job[]): void {
    const { assigned, written, giveBack } = this.#deps;
    if (this.#closed || this.#leaving) {
      giveBack(jobs);
      return;
    }
    for (const job of assigned(this.worker, jobs)) {
      const fence = { execution_seq: job.executionSeq, lease_token: job.leaseToken };
      const held = this.#jobs.open(job.jobId, fence, job);
      try {
        this.#send({ kind: "job", job, message: written(job) });
      } catch (error) {
        this.#failUnsendable(held, job, error);
      }
    }
  }

  #newJob(jobId: string, fence: JobFence, job: AssignedJob | undefined): StreamJob {
    const { clock, log, terms } = this.#deps;
    return {
      job,
      fence,
      acked: job === undefined,
      sentAt: clock.elapsed(),
      leaseUntil: job?.leaseExpiresAt ?? clock.now() + terms.leaseMs,
      started: new Map(),
      reports: openJobReports({
        jobId,
        fence,
        stepBase: job?.stepSequenceBase,
        clock,
        log,
        submit: (report) => this.#submit(jobId, report),
        signal: this.#over.signal,
        onStored: (stepId, fault) => {
          // Step acks are for the worker's log only: they must not fill the buffer of a worker that reads
          // slowly.
          if (this.#buffer.room() > streamOutboxMax / 2) this.#send({ kind: "step_ack", stepId, fault });
        },
        onLost: (fault) => this.#onLost(jobId, fault),
        onRemoved: this.#intake.remove,
      }),
    };
  }

  /** A job that cannot be encoded now never can be: its run fails. The stream and its other jobs go on. */
  #failUnsendable(held: StreamJob, { jobId, runId }: AssignedJob, error: unknown): void {
    const reason = error instanceof Error ? error.message : String(error);
    this.#deps.log.warn("worker.job_unwritten", { ...this.#names(), runId, error });
    const why = { message: `the job cannot be sent: ${reason}`, code: "JOB_NOT_SENDABLE", retryable: false };
    const last: ReportBody = { ...held.fence, status: "failed", error: why };
    this.#intake.add(last);
    held.reports.end(last);
    this.#end(jobId);
  }

  #submit(jobId: string, sent: ReportBody): Promise<void> {
    const { rights, submit, terms } = this.#deps;
    const counts = rights?.reported(sent) ?? sent;
    if (!(counts instanceof Promise)) return submit(this.worker, jobId, counts, terms.leaseMs);
    return counts.then((report) => submit(this.worker, jobId, report, terms.leaseMs));
  }

  /** A report of the job cannot be stored any more: the worker is told to stop it. */
  #onLost(jobId: string, fault: unknown): void {
    if (fault instanceof Fault) this.#logIgnored("report", jobId, fault.code ?? fault.message);
    else this.#deps.log.error("worker.report_failed", { workerId: this.worker.id, jobId, error: fault });
    if (this.#jobs.drop(jobId)) this.#sendLost(jobId);
    this.#poller.poll();
  }

  #sendLost(jobId: string): void {
    this.#send({ kind: "cancel", jobId, reason: "the job is no longer this worker's" });
  }

  /** The worker has not started the job: its run returns to the queue, and this stream pauses its polls. */
  #release({ job }: StreamJob, jobId: string, pauseMs: number): void {
    this.#jobs.drop(jobId);
    this.#poller.pause(pauseMs);
    if (job) this.#deps.giveBack([job]);
  }

  #end(jobId: string): void {
    this.#jobs.end(jobId);
    this.#poller.poll();
  }

  #onHeartbeat({ active_jobs, jobs }: Sent<"heartbeat">): void {
    const { clock, log } = this.#deps;
    this.#lastHeartbeatAt = clock.elapsed();
    this.#intake.add(jobs);
    this.#heartbeats = this.#heartbeats
      .then(() => this.#storeHeartbeat(active_jobs, jobs))
      .catch((error) => log.warn("worker.heartbeat_failed", { workerId: this.worker.id, error }))
      .finally(() => this.#intake.remove([jobs]));
  }

  async #storeHeartbeat(activeJobs: number, jobs: Sent<"heartbeat">["jobs"]): Promise<void> {
    const { clock, conflictsOf, heartbeat, takesWaits, terms } = this.#deps;
    const leases = jobs.map(heldLeaseOf);
    const states = await heartbeat(this.worker, activeJobs, leases, terms.leaseMs);
    const renewals = jobs.map(({ job_id }, at) => ({ jobId: job_id, isRenewed: states[at] === "refreshed" }));
    this.#jobs.noteHeartbeat(renewals, clock.now() + terms.leaseMs);
    const segments = leases.map((lease, at) => ({ ...lease, state: states[at]! }));
    const openWaits = await takesWaits();
    this.#send({ kind: "leases", segments, conflicts: conflictsOf(this.worker), openWaits });
    this.#poller.poll();
  }

  #onStarted(sent: Sent<"started">): void {
    const held = this.#jobs.named("step_started", sent.job_id, sent);
    held?.started.set(sent.id, { name: sent.name, type: sent.type, at: this.#deps.clock.now() });
  }

  #onStep({ job_id, execution_seq, lease_token, ...sent }: Sent<"step">): void {
    const held = this.#jobs.namedOrEarlier("step", job_id, { execution_seq, lease_token });
    if (!held) return;
    const step = endedStep(sent, held.started.get(sent.id), this.#deps.clock.now());
    held.started.delete(sent.id);
    this.#intake.add(step);
    held.reports.add(step);
  }

  #onReport({ job_id, number, ...report }: Sent<"report">): void {
    if (number !== undefined) {
      this.#answerReport(job_id, number, report as ReportBody);
      return;
    }
    const held = this.#jobs.namedOrEarlier("report", job_id, report);
    if (!held) return;
    if (held.reports.over) {
      this.#logIgnored("report", job_id, "the job has been reported");
      return;
    }
    const timed = withTimeLeft(report as ReportBody, this.#deps.clock.now());
    this.#intake.add(timed);
    held.reports.end(timed);
    this.#end(job_id);
  }

  /** A report with a number is answered with what the REST route would have answered. */
  #answerReport(jobId: string, number: number, report: ReportBody): void {
    readFence(jobId, report);
    this.#intake.add(report);
    if (report.status !== "progress") this.#end(jobId);
    const answer = (fault: Fault | undefined) => {
      this.#send({ kind: "reported", number, fault });
      this.#intake.remove([report]);
    };
    const answered = this.#submit(jobId, report).then(
      () => answer(undefined),
      (error: unknown) => {
        if (error instanceof Fault) return answer(error);
        this.#deps.log.error("worker.report_failed", { workerId: this.worker.id, jobId, error });
        answer(new Fault("internal", "internal error"));
      },
    );
    this.#jobs.settle(answered);
  }

  #onRefused({ number, message }: Sent<"refused">): void {
    this.#send({ kind: "reported", number, fault: new Fault("invalid_argument", message) });
  }

  #onAck(sent: Sent<"ack">): void {
    const held = this.#jobs.named("job_ack", sent.job_id, sent);
    if (held) held.acked = true;
    else this.#sendLost(sent.job_id);
  }

  #onNack({ reason, ...sent }: Sent<"nack">): void {
    const held = this.#jobs.named("job_nack", sent.job_id, sent);
    if (!held) return;
    if (reason === "draining" && !this.#leaving) {
      this.#leaving = true;
      this.#deps.onDraining(this.#names());
    }
    this.#release(held, sent.job_id, streamFullMs);
  }
}

/** A heartbeat may leave the fence out: the job's id names the execution, too. */
function heldLeaseOf({ job_id, execution_seq, lease_token }: Sent<"heartbeat">["jobs"][number]): HeldLease {
  const named = runOfJob(job_id);
  return {
    runId: named?.runId ?? job_id,
    executionSeq: execution_seq || (named?.executionSeq ?? 0),
    leaseHash: lease_token === "" ? undefined : leaseHashOf(lease_token),
  };
}

/**
 * A step that ended now; without a `started` message its id has the name, and its duration gives the start.
 */
function endedStep(
  { duration_ms, ...sent }: Omit<Sent<"step">, "job_id" | "execution_seq" | "lease_token">,
  begun: { name: string; type: SentStep["type"]; at: Instant } | undefined,
  now: Instant,
): SentStep {
  return {
    ...sent,
    name: begun?.name || nameOfStepId(sent.id),
    type: begun?.type ?? "invoke",
    started_at: rfc3339(begun?.at ?? now - Math.max(0, duration_ms ?? 0)),
    ended_at: rfc3339(now),
    ...(duration_ms !== undefined && { duration_ms }),
  };
}
