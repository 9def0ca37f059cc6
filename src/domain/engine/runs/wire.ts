import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import { Type } from "@sinclair/typebox";
import { GetRunLogsResponseSchema } from "../../../gen/svc/v1/svc_pb.ts";
import {
  type ErrorSchema,
  ExecutionMode,
  RunAttemptSchema,
  type RunAttributeSchema,
  RunLogLineSchema,
  RunSchema,
  RunStatus as RunStatusWire,
  StepSchema,
  StepStatus as StepStatusWire,
  StepTrySchema,
  StepType as StepTypeWire,
} from "../../../gen/svc/v1/types_pb.ts";
import type { Instant } from "../../../kit/clock.ts";
import { fieldsFor, shapeOf } from "../../../kit/message-shape.ts";
import type { Redaction } from "../../../kit/redact.ts";
import { payload, timestampOf } from "../../../kit/wkt.ts";
import type { RunAttribute } from "../attributes/rules.ts";
import type { FailedTry, PastAttempt } from "./attempts.ts";
import type { WithCuts } from "./large-values.ts";
import type { ErrorCause, Run, RunError, RunStatus, Step, StepStatus, StepType } from "./run.ts";
import type { WrittenLines } from "./story.ts";

export const runStatusWire: Record<RunStatus, RunStatusWire> = {
  waiting_for_capacity: RunStatusWire.WAITING_FOR_CAPACITY,
  waiting: RunStatusWire.WAITING,
  running: RunStatusWire.RUNNING,
  paused: RunStatusWire.PAUSED,
  completed: RunStatusWire.COMPLETED,
  failed: RunStatusWire.FAILED,
  cancelled: RunStatusWire.CANCELLED,
};

const stepStatusWire: Record<StepStatus, StepStatusWire> = {
  completed: StepStatusWire.COMPLETED,
  failed: StepStatusWire.FAILED,
  sleeping: StepStatusWire.SLEEPING,
  waiting: StepStatusWire.WAITING,
  timed_out: StepStatusWire.TIMED_OUT,
};

const stepTypeWire: Record<StepType, StepTypeWire> = {
  invoke: StepTypeWire.INVOKE,
  compensate: StepTypeWire.COMPENSATE,
  sleep: StepTypeWire.SLEEP,
  wait_for_event: StepTypeWire.WAIT_FOR_EVENT,
  invoke_function: StepTypeWire.INVOKE_FUNCTION,
};

/** The words a status filter may hold when it comes as an enum; UNSPECIFIED is no filter. */
/** Of the deprecated `RUN_STATUS_PENDING`. */
const pendingNumber = 1;

export const runStatusWord = (status: number): string | undefined =>
  status === pendingNumber
    ? "pending"
    : (Object.keys(runStatusWire) as RunStatus[]).find((word) => runStatusWire[word] === status);

const at = (instant: Instant | null) => (instant === null ? undefined : timestampOf(instant));

const redactionOf = ({ redacted }: { redacted?: Redaction }) =>
  redacted && { redactedAt: timestampOf(redacted.at), redactedBy: redacted.by ?? "" };

function toCause(error: ErrorCause | string): MessageInitShape<typeof ErrorSchema> {
  if (typeof error === "string") return { message: error };
  const { message, name = "", code = "", stack = "", cause, errors = [] } = error;
  return {
    ...{ message, name, code, stack, errors: errors.map(toCause) },
    ...(cause !== undefined && { cause: toCause(cause) }),
  };
}

export const toError = (error: RunError): MessageInitShape<typeof ErrorSchema> => ({
  ...toCause(error),
  retryable: error.retryable,
});

const toAttributeMessage = ({
  name,
  value: { type, value },
}: RunAttribute): MessageInitShape<typeof RunAttributeSchema> => {
  switch (type) {
    case "text":
      return { name, value: { case: "text", value } };
    case "number":
      return { name, value: { case: "number", value } };
    case "bool":
      return { name, value: { case: "flag", value } };
    case "time":
      return { name, value: { case: "time", value: timestampOf(value) } };
  }
};

const ofAttempt = fieldsFor(RunAttemptSchema);
const toAttemptMessage = (attempt: PastAttempt): MessageInitShape<typeof RunAttemptSchema> => ({
  ...ofAttempt(attempt, "number workerId deployment startedAt endedAt outcome retryInMs executions lost"),
  ...(attempt.error && { error: toError(attempt.error) }),
});

const ofTry = fieldsFor(StepTrySchema);
const toTryMessage = (one: FailedTry): MessageInitShape<typeof StepTrySchema> => ({
  ...ofTry(one, "number attempt workerId startedAt endedAt retryAt"),
  error: toError(one.error),
});

const cutMessages = ({ cutValues = [] }: WithCuts) => cutValues.map((one) => ({ ...one }));

const ofRun = fieldsFor(RunSchema);

/** `unserved`: queued, and no connected worker serves its function; `isDenied`: none of these may get it. */
export function toRunMessage(
  run: Run & { unserved?: boolean; isDenied?: boolean; attempts?: readonly PastAttempt[] } & WithCuts,
): MessageInitShape<typeof RunSchema> {
  return {
    ...ofRun(run, "id functionId functionVersion eventId eventName environmentId attempt maxAttempts"),
    ...ofRun(
      run,
      "workerId actorId pauseReason cancellationCause parentRunId parentStepId errorGroup pinnedTo",
    ),
    ...ofRun(run, "createdAt startedAt endedAt updatedAt timeoutAt claimedAt movesAt"),
    executionMode: run.mode === "push" ? ExecutionMode.PUSH : ExecutionMode.PULL,
    status: runStatusWire[run.status],
    claimedBy: run.status === "running" ? (run.workerId ?? "") : "",
    ...payload("input", "inputValue", run.input),
    ...payload("output", "outputValue", run.output),
    ...(run.error && { error: toError(run.error) }),
    phase: run.isCompensating ? "compensating" : "",
    compensationFailed: run.undoFailed,
    blockingReason: run.unserved || run.isDenied ? "no_worker" : "",
    blockingCause: run.isDenied ? "policy" : "",
    nondeterminism: run.deviations.map((step) => ({ ...step })),
    attributes: run.attributes.map(toAttributeMessage),
    cutValues: cutMessages(run),
    ...redactionOf(run),
    attemptLog: (run.attempts ?? []).map(toAttemptMessage),
  };
}

const ofStep = fieldsFor(StepSchema);

export function toStepMessage(
  step: Step & { failedTries?: readonly FailedTry[] } & WithCuts,
): MessageInitShape<typeof StepSchema> {
  const { tries = 0, max_tries: maxTries = 0 } = (step.status === "failed" && step.error) || {};
  return {
    ...ofStep(
      step,
      "id runId stepId name sequence attempt durationMs patchedBy compensationFor waitEventName",
    ),
    ...ofStep(step, "startedAt endedAt patchedAt createdAt updatedAt"),
    stepType: stepTypeWire[step.type],
    status: stepStatusWire[step.status],
    ...payload("input", "inputValue", step.input),
    ...payload("output", "outputValue", step.output),
    ...payload("originalOutput", "originalOutputValue", step.originalOutput),
    ...(step.error && { error: toError(step.error) }),
    sleepUntil: tries === 0 ? at(step.sleepUntil) : undefined,
    tries,
    maxTries,
    retryAt: tries < maxTries ? at(step.sleepUntil) : undefined,
    waitTimeout: at(step.waitTimeoutAt),
    cutValues: cutMessages(step),
    ...redactionOf(step),
    tryLog: (step.failedTries ?? []).map(toTryMessage),
  };
}

const Line = shapeOf(RunLogLineSchema, { absent: "fields step" });

export const RunLogsShape = shapeOf(GetRunLogsResponseSchema, { own: { lines: Type.Array(Line) } });

export const logsJson = ({ lines, leftOut, cursor }: WrittenLines) => ({
  lines: lines.map(({ workerId, ...line }) => ({ ...line, worker_id: workerId })),
  left_out: leftOut,
  cursor,
});

export const toLogsMessage = ({
  lines,
  leftOut,
  cursor,
}: WrittenLines): MessageInitShape<typeof GetRunLogsResponseSchema> => ({
  lines: lines.map(({ at, fields, step = "", ...line }) => ({
    ...line,
    step,
    at: timestampOf(Date.parse(at)),
    ...(fields && { fields: fields as JsonObject }),
  })),
  leftOut,
  cursor,
});
