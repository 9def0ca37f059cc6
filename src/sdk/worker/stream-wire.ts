import type { Assignment, Compensating, CompletedStep } from "../wire/wire.ts";

interface JobEventMessage {
  id?: string;
  name?: string;
  data?: unknown;
  dataValue?: unknown;
  idempotencyKey?: string;
  source?: string;
  timestamp?: string;
  metadata?: Record<string, unknown>;
  version?: number;
}

/** A job as the stream brings it: protobuf's JSON, zero values left out, 64-bit numbers as text. */
export interface JobMessage {
  jobId?: string;
  runId?: string;
  functionId?: string;
  event?: JobEventMessage;
  events?: JobEventMessage[];
  completedSteps?: {
    stepId?: string;
    name?: string;
    output?: unknown;
    outputValue?: unknown;
    status?: string;
    /** Base64 of JSON text. */
    errorJson?: string;
    kept?: boolean;
  }[];
  actorId?: string;
  attempt?: number;
  maxAttempts?: number;
  context?: {
    traceId?: string;
    metadata?: Record<string, string>;
    secrets?: Record<string, string>;
    traceparent?: string;
    stepSpans?: boolean;
  };
  executionSeq?: string;
  leaseToken?: string;
  leaseExpiresAt?: string;
  stepSequenceBase?: number;
  logSeen?: number;
  leaseMs?: number;
  sequence?: string;
  compensating?: {
    status?: string;
    errorJson?: string;
    cause?: string;
    interrupted?: boolean;
    triesLeft?: number;
  };
}

/** The same job as the REST routes write it. */
export function assignmentOf(job: JobMessage): Assignment {
  const { event = {}, context } = job;
  return {
    job_id: job.jobId ?? "",
    run_id: job.runId ?? "",
    function_id: job.functionId ?? "",
    attempt: job.attempt ?? 1,
    max_attempts: job.maxAttempts ?? 0,
    event: eventOf(event),
    ...(job.events && { events: job.events.map(eventOf) }),
    completed_steps: (job.completedSteps ?? []).map((step) => ({
      step_id: step.stepId ?? "",
      name: step.name ?? "",
      output: step.output ?? step.outputValue ?? null,
      ...(step.status && { status: step.status as NonNullable<CompletedStep["status"]> }),
      ...(step.errorJson && { error: JSON.parse(new TextDecoder().decode(base64(step.errorJson))) }),
      ...(step.kept && { kept: true }),
    })),
    step_sequence_base: job.stepSequenceBase ?? 0,
    ...(job.logSeen && { log_seen: job.logSeen }),
    ...(job.actorId && { actor_id: job.actorId }),
    ...(context && {
      context: {
        ...(context.traceId && { trace_id: context.traceId }),
        ...(context.metadata && { metadata: context.metadata }),
        ...(context.secrets && { secrets: context.secrets }),
        ...(context.traceparent && { traceparent: context.traceparent }),
        ...(context.stepSpans && { step_spans: true }),
      },
    }),
    execution_seq: Number(job.executionSeq ?? 0),
    lease_token: job.leaseToken ?? "",
    ...(job.leaseExpiresAt && { lease_expires_at: job.leaseExpiresAt }),
    ...(job.leaseMs && { lease_ms: job.leaseMs }),
    ...(job.sequence && { sequence: job.sequence }),
    ...(job.compensating && { compensating: compensatingOf(job.compensating) }),
  };
}

const eventOf = (event: JobEventMessage): Assignment["event"] => ({
  id: event.id ?? "",
  name: event.name ?? "",
  data: event.data ?? event.dataValue ?? null,
  timestamp: event.timestamp ?? "",
  version: event.version ?? 1,
  source: event.source ?? "",
  metadata: event.metadata ?? null,
  ...(event.idempotencyKey && { idempotency_key: event.idempotencyKey }),
});

function compensatingOf(sent: NonNullable<JobMessage["compensating"]>): Compensating {
  const { status, errorJson, cause, interrupted = false, triesLeft = 0 } = sent;
  return {
    status: status === "cancelled" ? status : "failed",
    ...(errorJson && { error: JSON.parse(errorJson) }),
    ...(cause && { cause }),
    interrupted,
    tries_left: triesLeft,
  };
}

const base64 = (text: string): Uint8Array => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
