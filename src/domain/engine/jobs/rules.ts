import { createHash } from "node:crypto";
import { parseRfc3339, rfc3339 } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";
import { eventsText, eventText, keyField, type StoredEvent } from "../../../kit/stored-event.ts";
import { type TraceContext, tracedFields } from "../../../kit/trace.ts";
import type { ClaimedRow } from "../runs/execution/claim.ts";
import type { CompensatingJob, CompletedStep, NewRun } from "../runs/run.ts";

/** With its place in the log, and the stream that it belongs to. */
export type JobEvent = StoredEvent & { position: number; entity_id: string | null };

/** One execution of a run, as a worker gets it. Payloads stay JSON text until they are sent. */
export interface Job {
  jobId: string;
  runId: string;
  functionId: string;
  environmentId: string;
  attempt: number;
  maxAttempts: number;
  stepSequenceBase: number;
  actorId: string | null;
  executionSeq: number;
  leaseToken: string;
  leaseExpiresAt: number;
  event: JobEvent;
  /** All events of a run that a batch began; `openAssignments` adds them. */
  events?: readonly JobEvent[];
  completedSteps: readonly CompletedStep[];
  /** Lines outside of steps that its handler wrote in this attempt, and will reach again. */
  logSeen: number;
  functionVersion: number;
  /** Its run is only to be undone; null for a run that continues. */
  compensating: CompensatingJob | null;
  /** Where its event stands, for reads of the handler; `openAssignments` adds it. */
  sequence?: string | undefined;
  /**
   * Values of the secrets that its function declares; `openAssignments` adds them just before the job is
   * sent.
   */
  secrets?: Readonly<Record<string, string>>;
  /** Where its handler continues in the trace of its event; `openAssignments` adds it. */
  trace?: TraceContext;
  /** The server keeps spans of its steps. */
  keepsSpans?: boolean;
}

/** A job that is sent to its worker now. */
export interface AssignedJob extends Job {
  /** Milliseconds until the lease ends: the worker's clock may differ from the server's. */
  leaseMs: number;
}

/** Share of an unrenewed lease after which another node may end it, if a held poll of its worker broke. */
export const leaseDoubtShare = 0.15;

/** `job_{run}_{execution}`: a report finds its run by the id of the job alone. */
export const jobIdOf = (runId: string, executionSeq: number): string =>
  `job_${runId.slice("run_".length)}_${executionSeq}`;

export function runOfJob(jobId: string): { runId: string; executionSeq: number } | undefined {
  const [, run, seq] = /^job_([A-Za-z0-9-]{1,64})_(\d{1,9})$/.exec(jobId) ?? [];
  return run === undefined ? undefined : { runId: `run_${run}`, executionSeq: Number(seq) };
}

export interface LeaseToken {
  token: string;
  hash: string;
}

/** `holder` is the mark of the process that the lease is for, if it sent one. */
export function newLeaseToken(ids: Ids, holder: string | undefined): LeaseToken {
  const secret = ids.secret(16);
  const token = holder === undefined ? secret : `${secret}.${holder}`;
  return { token, hash: leaseHashOf(token) };
}

const digestOf = (text: string): string => createHash("sha256").update(text).digest("hex");

/**
 * Only the hash is stored: reading the database gives no valid token. It ends with the holder's mark, so that
 * the leases of one process are found without a column that each claim would have to write.
 */
export function leaseHashOf(token: string): string {
  const digest = digestOf(token);
  const at = token.indexOf(".");
  return at < 0 ? digest.slice(0, 32) : digest.slice(0, 23) + holderEnding(token.slice(at + 1));
}

const holderMarkLength = 8;

/** What tells a worker's process from others of its name, by what it calls itself. */
export const holderOf = (instance: string): string => digestOf(instance).slice(0, holderMarkLength);

/** How the hashes of a holder's leases end. */
export const holderEnding = (holder: string): string => `.${holder.slice(0, holderMarkLength)}`;

export function jobOfClaim(
  row: ClaimedRow,
  token: string,
  leaseExpiresAt: number,
  steps: readonly CompletedStep[],
  compensating: CompensatingJob | null,
): Job {
  return {
    jobId: jobIdOf(row.run_id, row.execution_seq),
    runId: row.run_id,
    functionId: row.function_id,
    environmentId: row.environment_id,
    attempt: row.attempt,
    maxAttempts: row.max_attempts,
    stepSequenceBase: Math.max(row.step_count, (steps.at(-1)?.sequence ?? -1) + 1),
    actorId: row.actor_id,
    executionSeq: row.execution_seq,
    leaseToken: token,
    leaseExpiresAt,
    event: {
      id: row.event_id,
      position: row.event_position,
      name: row.event_name,
      version: row.event_version,
      data: row.event_data,
      metadata: row.event_metadata,
      source: row.event_source,
      at: row.event_at,
      idempotency_key: row.event_idempotency_key,
      entity_id: row.event_entity_id,
    },
    completedSteps: steps,
    logSeen: Number(row.log_seen ?? 0),
    functionVersion: row.function_version,
    compensating,
  };
}

/** The first execution of a run that was created with a lease. */
export const jobOfNewRun = (
  run: NewRun,
  lease: { token: string; expiresAt: number },
  event: JobEvent,
): Job => ({
  jobId: jobIdOf(run.id, 1),
  runId: run.id,
  functionId: run.functionId,
  environmentId: run.environmentId,
  attempt: 1,
  maxAttempts: run.maxAttempts,
  stepSequenceBase: 0,
  actorId: run.actorId,
  executionSeq: 1,
  leaseToken: lease.token,
  leaseExpiresAt: lease.expiresAt,
  event,
  completedSteps: [],
  logSeen: 0,
  functionVersion: run.functionVersion,
  compensating: null,
});

function contextOf(job: Pick<Job, "trace" | "keepsSpans" | "secrets">) {
  const { secrets } = job;
  if (!job.trace && !secrets) return undefined;
  return { context: { ...tracedFields(job), ...(secrets && { secrets }) } };
}

/** The assignment as JSON text. The event and outputs of steps are inserted as JSON texts. */
export function assignmentJson(job: AssignedJob): string {
  const { event } = job;
  const steps = job.completedSteps.map(
    (step) =>
      `{"step_id":${JSON.stringify(step.step_id)},"name":${JSON.stringify(step.name)},"output":${step.output ?? "null"},"status":"${step.status}"${step.error === null ? "" : `,"error":${step.error}`}${step.is_kept ? `,"kept":true` : ""}}`,
  );
  const head = {
    job_id: job.jobId,
    run_id: job.runId,
    function_id: job.functionId,
    attempt: job.attempt,
    max_attempts: job.maxAttempts,
    step_sequence_base: job.stepSequenceBase,
    ...(job.logSeen > 0 && { log_seen: job.logSeen }),
    ...(job.actorId !== null && { actor_id: job.actorId }),
    execution_seq: job.executionSeq,
    lease_token: job.leaseToken,
    lease_expires_at: rfc3339(job.leaseExpiresAt),
    lease_ms: job.leaseMs,
    ...(job.sequence !== undefined && { sequence: job.sequence }),
    ...contextOf(job),
    ...(job.compensating && { compensating: job.compensating }),
  };
  const eventJson = eventText(event, keyField(event), "null");
  return `${JSON.stringify(head).slice(0, -1)},"event":${eventJson}${eventsText(job.events, "null")},"completed_steps":[${steps.join(",")}]}`;
}

/**
 * Milliseconds of an RFC 3339 text of a worker; null when absent or malformed, because worker clocks are only
 * hints.
 */
export const workerInstant = (text: string | undefined): number | null =>
  text === undefined ? null : (parseRfc3339(text) ?? null);
