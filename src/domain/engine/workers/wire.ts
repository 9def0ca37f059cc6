import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import type { Value } from "@bufbuild/protobuf/wkt";
import { type Error as ErrorMessage, StepType } from "../../../gen/svc/v1/types_pb.ts";
import {
  type EngineMessageSchema,
  type ExecutedStep,
  JobNackReason,
  LeaseState as LeaseStateWire,
  type StepYielded,
  type WorkerMessage,
} from "../../../gen/svc/v1/worker_pb.ts";
import { rfc3339 } from "../../../kit/clock.ts";
import { Fault, invalid, unreachable } from "../../../kit/fault.ts";
import {
  isNested,
  parseJson,
  parseJsonBytes,
  payloadLevelsMax,
  storedJson,
} from "../../../kit/payload-json.ts";
import { traceparentOf } from "../../../kit/trace.ts";
import { instantOf, isJsonObject, jsonOf, payload, timestampOf } from "../../../kit/wkt.ts";
import type { AssignedJob, JobEvent } from "../jobs/rules.ts";
import type { LeaseState } from "../runs/execution/leases.ts";
import type { CompensatingJob } from "../runs/run.ts";
import { refusedResult } from "./rules.ts";
import type { StreamAnswer } from "./stream/messages.ts";
import { mendErrors } from "./texts.ts";

const leaseStateWire: Record<LeaseState, LeaseStateWire> = {
  refreshed: LeaseStateWire.REFRESHED,
  stale: LeaseStateWire.STALE,
  unknown: LeaseStateWire.UNKNOWN,
};

/** A field that proto3 leaves at its zero was not sent. */
const fence = ({
  jobId,
  executionSeq,
  leaseToken,
}: {
  jobId: string;
  executionSeq: bigint;
  leaseToken: string;
}) => ({
  job_id: jobId,
  ...(executionSeq !== 0n && { execution_seq: Number(executionSeq) }),
  ...(leaseToken !== "" && { lease_token: leaseToken }),
});

/** The `*_value` field when it was sent, otherwise the plain one, which can hold objects only. */
const sentValue = (plain: JsonObject | undefined, twin: Value | undefined): unknown =>
  twin ? jsonOf(twin) : plain;

const causeOf = ({ message, name, code, stack, cause, errors }: ErrorMessage): object => ({
  ...{ message, ...(name && { name }), ...(code && { code }), ...(stack && { stack }) },
  ...(cause && { cause: causeOf(cause) }),
  ...(errors.length > 0 && { errors: errors.map(causeOf) }),
});

const errorOf = (error: ErrorMessage | undefined) =>
  error && { error: { ...causeOf(error), retryable: error.retryable } };

const bytesOf = (field: string, bytes: Uint8Array): unknown =>
  bytes.length === 0 ? undefined : parseJsonBytes(bytes, field);

function bodyOf(text: string): Record<string, unknown> {
  const body = parseJson(text, "report.body", mendErrors);
  if (isJsonObject(body)) return body;
  throw invalid("report.body", "must be the JSON text of an object");
}

/** A malformed text refuses only its own message; the stream and its other jobs go on. */
function unlessRefused<T>(read: () => T, refused: (fault: Fault) => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof Fault) return refused(error);
    throw error;
  }
}

const executedStep = (step: ExecutedStep) => ({
  id: step.id,
  name: step.name,
  type: step.type || "compensate",
  status: step.status || "completed",
  output: sentValue(step.output, step.outputValue),
  ...errorOf(step.error),
  ...(step.compensationFor && { compensation_for: step.compensationFor }),
  duration_ms: step.durationMs,
});

/** A yield in the form of the REST routes. */
function yieldOf({ stepId, yieldInfo }: StepYielded): Record<string, unknown> {
  const { case: kind, value } = yieldInfo;
  switch (kind) {
    case "sleep":
      return {
        step_id: stepId,
        type: "sleep",
        ...(value.until && { until: rfc3339(instantOf(value.until)) }),
      };
    case "waitEvent":
      return {
        step_id: stepId,
        type: "wait_for_event",
        event_filter: {
          event: value.eventName,
          ...(value.matchExpression && { match: value.matchExpression }),
          ...((value.matchValue || value.hasMatchValue) && { match_value: value.matchValue }),
          ...(value.timeout && { timeout_at: rfc3339(instantOf(value.timeout)) }),
          payload: bytesOf("wait_event.payload_json", value.payloadJson),
        },
      };
    case "invokeFunction":
      return {
        step_id: stepId,
        type: "invoke_function",
        function_id: value.functionId,
        input: bytesOf("invoke_function.input_json", value.inputJson),
        invoke_timeout_ms: Number(value.invokeTimeoutMs),
      };
    case "invokeFunctionAsync":
      return {
        step_id: stepId,
        type: "invoke_function_async",
        function_id: value.functionId,
        input: bytesOf("invoke_function_async.input_json", value.inputJson),
      };
    case undefined:
      throw invalid("step_yielded", "needs one of sleep, wait_event, invoke_function, invoke_function_async");
  }
}

/** A worker's message in the form of the REST routes; unchecked. */
export function fromWorkerMessage({ payload: sent }: WorkerMessage): unknown {
  switch (sent.case) {
    case "register": {
      const { workerId, functionIds, hostname, labels, version, maxConcurrentJobs } = sent.value;
      const { features, clockMs, definitionHashes, leaseMs, instance, held, deployment } = sent.value;
      return {
        register: {
          worker_id: workerId,
          hostname,
          function_ids: functionIds,
          max_concurrent_jobs: maxConcurrentJobs || 10,
          labels,
          version: { sdk: version?.sdk ?? "", runtime: version?.runtime ?? "" },
          ...(features.length > 0 && { features }),
          ...(clockMs !== 0n && { clock_ms: Number(clockMs) }),
          definition_hashes: definitionHashes,
          ...(deployment !== "" && { deployment }),
          ...(leaseMs !== 0 && { lease_ms: leaseMs }),
          ...(instance !== "" && { instance, held }),
        },
      };
    }
    case "heartbeat":
      return {
        heartbeat: {
          active_jobs: sent.value.activeJobs,
          jobs: sent.value.jobs.map((job) => ({
            job_id: job.jobId,
            execution_seq: Number(job.executionSeq),
            lease_token: job.leaseToken,
          })),
        },
      };
    case "stepStarted": {
      const { stepId, name, stepType } = sent.value;
      const type = stepType === StepType.COMPENSATE ? "compensate" : "invoke";
      return { started: { ...fence(sent.value), id: stepId, name, type } };
    }
    case "stepCompleted": {
      const { stepId, output, outputValue, durationMs } = sent.value;
      const done = { id: stepId, status: "completed", output: sentValue(output, outputValue) };
      return { step: { ...fence(sent.value), ...done, duration_ms: durationMs } };
    }
    case "stepFailed": {
      const { stepId, error, durationMs } = sent.value;
      const done = { id: stepId, status: "failed", ...errorOf(error) };
      return { step: { ...fence(sent.value), ...done, duration_ms: durationMs } };
    }
    case "stepYielded":
      return unlessRefused<object>(
        () => ({ report: { ...fence(sent.value), status: "yielded", yield: yieldOf(sent.value) } }),
        ({ message }) => ({
          report: { ...fence(sent.value), status: "failed", error: refusedResult(message) },
        }),
      );
    case "jobCompleted": {
      const output = sentValue(sent.value.output, sent.value.outputValue);
      return { report: { ...fence(sent.value), status: "completed", output } };
    }
    case "jobFailed": {
      const steps = sent.value.steps.map(executedStep);
      return { report: { ...fence(sent.value), status: "failed", ...errorOf(sent.value.error), steps } };
    }
    case "jobAck":
      return { ack: { ...fence(sent.value), run_id: sent.value.runId } };
    case "jobNack": {
      const reason = sent.value.reason === JobNackReason.DRAINING ? "draining" : "at_capacity";
      return { nack: { ...fence(sent.value), run_id: sent.value.runId, reason } };
    }
    case "report": {
      const { jobId, number, body } = sent.value;
      const named = { job_id: jobId, number: Number(number) };
      return unlessRefused<object>(
        () => ({ report: { ...bodyOf(body), ...named } }),
        ({ message }) => ({ refused: { ...named, message } }),
      );
    }
    default:
      // An empty message, or one of a later version: this server ignores it.
      return {};
  }
}

/** The HTTP status that a single report would have been answered. */
const statusOf: Partial<Record<Fault["kind"], number>> = {
  not_found: 404,
  aborted: 409,
  resource_exhausted: 429,
  unavailable: 503,
  internal: 500,
};

/** What became of one report among others. */
export const refusalOf = ({ kind, code, message }: Fault) => ({
  ...{ status: statusOf[kind] ?? 400, error: code ?? message, message },
});

/**
 * Throws for a text nested so deep that protobuf readers may refuse it; an earlier version stored such texts.
 */
function encodable<T extends string | null>(field: string, text: T): T {
  if (text !== null && isNested(text, payloadLevelsMax))
    throw invalid(field, `nested deeper than ${payloadLevelsMax} levels`);
  return text;
}

const compensatingMessage = ({ error, tries_left: triesLeft, ...rest }: CompensatingJob) => ({
  ...rest,
  triesLeft,
  errorJson: error ? JSON.stringify(error) : "",
});

const eventMessage = (field: string, event: JobEvent) => ({
  id: event.id,
  name: event.name,
  ...payload("data", "dataValue", encodable(`${field}.data`, event.data)),
  idempotencyKey: event.idempotency_key ?? "",
  source: event.source,
  timestamp: timestampOf(event.at),
  ...(event.metadata && {
    metadata: storedJson(encodable(`${field}.metadata`, event.metadata)) as JsonObject,
  }),
  version: event.version,
});

function contextMessage({ trace, keepsSpans = false, secrets }: AssignedJob) {
  if (!trace && !secrets) return undefined;
  return {
    context: {
      ...(trace && { traceId: trace.traceId, traceparent: traceparentOf(trace), stepSpans: keepsSpans }),
      ...(secrets && { secrets }),
    },
  };
}

/** A job as a message of the stream; throws when it cannot be one. */
export const toJobMessage = (job: AssignedJob) => ({
  jobId: job.jobId,
  runId: job.runId,
  functionId: job.functionId,
  event: eventMessage("event", job.event),
  events: job.events?.map((event, at) => eventMessage(`events[${at}]`, event)) ?? [],
  completedSteps: job.completedSteps.map((step) => ({
    stepId: step.step_id,
    name: step.name,
    ...payload("output", "outputValue", encodable(`output of step ${step.step_id}`, step.output ?? "null")),
    status: step.status ?? "completed",
    ...(step.error && { errorJson: new TextEncoder().encode(step.error) }),
    kept: step.is_kept !== null,
  })),
  actorId: job.actorId ?? "",
  attempt: job.attempt,
  maxAttempts: job.maxAttempts,
  executionSeq: BigInt(job.executionSeq),
  leaseToken: job.leaseToken,
  leaseExpiresAt: timestampOf(job.leaseExpiresAt),
  stepSequenceBase: job.stepSequenceBase,
  logSeen: job.logSeen,
  leaseMs: job.leaseMs,
  sequence: job.sequence ?? "",
  ...(job.compensating && { compensating: compensatingMessage(job.compensating) }),
  ...contextMessage(job),
});

type Payload = MessageInitShape<typeof EngineMessageSchema>["payload"];

function payloadOf(answer: StreamAnswer): NonNullable<Payload> {
  switch (answer.kind) {
    case "registered": {
      const { kind: _, clockOffMs, conflicts, leaseMs = 0, ...said } = answer;
      return {
        case: "registered",
        value: {
          ...said,
          leaseMs,
          definitionConflicts: conflicts,
          clockOffMs: BigInt(clockOffMs ?? 0),
        },
      };
    }
    case "job":
      return { case: "job", value: answer.message as ReturnType<typeof toJobMessage> };
    case "step_ack": {
      const { stepId, fault } = answer;
      return { case: "stepAck", value: { stepId, accepted: !fault, error: fault?.message ?? "" } };
    }
    case "cancel":
      return { case: "cancel", value: { jobId: answer.jobId, reason: answer.reason } };
    case "shutdown":
      return { case: "shutdown", value: { reason: answer.reason, drainTimeoutMs: answer.drainTimeoutMs } };
    case "leases": {
      const segments = answer.segments.map(({ runId, executionSeq, state }) => ({
        runId,
        executionSeq: BigInt(executionSeq),
        state: leaseStateWire[state],
      }));
      const { conflicts: definitionConflicts, openWaits } = answer;
      return { case: "leaseRefresh", value: { segments, definitionConflicts, openWaits } };
    }
    case "reported": {
      const { number, fault } = answer;
      return { case: "reported", value: { number: BigInt(number), ...(fault && refusalOf(fault)) } };
    }
    default:
      return unreachable(answer);
  }
}

export const toEngineMessage = (answer: StreamAnswer): MessageInitShape<typeof EngineMessageSchema> => ({
  payload: payloadOf(answer),
});
