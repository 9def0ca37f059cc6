import type { MessageInitShape } from "@bufbuild/protobuf";
import {
  type ErrorSchema,
  ExecutionMode,
  type RunAttemptSchema,
  type RunAttributeSchema,
  type RunSchema,
  RunStatus as RunStatusWire,
  type StepSchema,
  StepStatus as StepStatusWire,
  type StepTrySchema,
  StepType as StepTypeWire,
} from "../../../gen/svc/v1/types_pb.ts";
import type { Instant } from "../../../kit/clock.ts";
import type { Redaction } from "../../../kit/redacted-mark.ts";
import { payload, timestampOf } from "../../../kit/wkt.ts";
import type { RunAttribute } from "../attributes/rules.ts";
import type { FailedTry, PastAttempt } from "./attempts.ts";
import type { WithCuts } from "./large-values.ts";
import type { ErrorCause, Run, RunError, RunStatus, Step, StepStatus, StepType } from "./run.ts";

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

const toAttemptMessage = (attempt: PastAttempt): MessageInitShape<typeof RunAttemptSchema> => ({
  number: attempt.number,
  workerId: attempt.workerId,
  deployment: attempt.deployment,
  startedAt: at(attempt.startedAt),
  endedAt: at(attempt.endedAt),
  outcome: attempt.outcome,
  ...(attempt.error && { error: toError(attempt.error) }),
  ...(attempt.retryInMs !== null && { retryInMs: BigInt(attempt.retryInMs) }),
  executions: attempt.executions,
  lost: attempt.lost,
});

const toTryMessage = (one: FailedTry): MessageInitShape<typeof StepTrySchema> => ({
  number: one.number,
  attempt: one.attempt,
  workerId: one.workerId,
  startedAt: at(one.startedAt),
  endedAt: at(one.endedAt),
  error: toError(one.error),
  retryAt: at(one.retryAt),
});

const cutMessages = ({ cutValues = [] }: WithCuts) => cutValues.map((one) => ({ ...one }));

/** `unserved`: queued, and no connected worker serves its function; `isDenied`: none of these may get it. */
export function toRunMessage(
  run: Run & { unserved?: boolean; isDenied?: boolean; attempts?: readonly PastAttempt[] } & WithCuts,
): MessageInitShape<typeof RunSchema> {
  return {
    id: run.id,
    functionId: run.functionId,
    functionVersion: run.functionVersion,
    eventId: run.eventId,
    eventName: run.eventName,
    environmentId: run.environmentId,
    executionMode: run.mode === "push" ? ExecutionMode.PUSH : ExecutionMode.PULL,
    status: runStatusWire[run.status],
    attempt: run.attempt,
    maxAttempts: run.maxAttempts,
    workerId: run.workerId ?? "",
    claimedBy: run.status === "running" ? (run.workerId ?? "") : "",
    actorId: run.actorId ?? "",
    pauseReason: run.pauseReason ?? "",
    cancellationCause: run.cancellationCause ?? "",
    parentRunId: run.parentRunId ?? "",
    parentStepId: run.parentStepId ?? "",
    ...payload("input", "inputValue", run.input),
    ...payload("output", "outputValue", run.output),
    ...(run.error && { error: toError(run.error) }),
    createdAt: at(run.createdAt),
    startedAt: at(run.startedAt),
    endedAt: at(run.endedAt),
    updatedAt: at(run.updatedAt),
    timeoutAt: at(run.timeoutAt),
    claimedAt: at(run.claimedAt),
    phase: run.isCompensating ? "compensating" : "",
    compensationFailed: run.undoFailed,
    blockingReason: run.unserved || run.isDenied ? "no_worker" : "",
    blockingCause: run.isDenied ? "policy" : "",
    nondeterminism: run.deviations.map((step) => ({ ...step })),
    attributes: run.attributes.map(toAttributeMessage),
    errorGroup: run.errorGroup ?? "",
    pinnedTo: run.pinnedTo ?? "",
    movesAt: at(run.movesAt),
    cutValues: cutMessages(run),
    ...redactionOf(run),
    attemptLog: (run.attempts ?? []).map(toAttemptMessage),
  };
}

export function toStepMessage(
  step: Step & { failedTries?: readonly FailedTry[] } & WithCuts,
): MessageInitShape<typeof StepSchema> {
  const { tries = 0, max_tries: maxTries = 0 } = (step.status === "failed" && step.error) || {};
  return {
    id: step.id,
    runId: step.runId,
    stepId: step.stepId,
    name: step.name,
    stepType: stepTypeWire[step.type],
    sequence: step.sequence,
    status: stepStatusWire[step.status],
    attempt: step.attempt,
    durationMs: step.durationMs ?? 0,
    patchedBy: step.patchedBy ?? "",
    compensationFor: step.compensationFor ?? "",
    ...payload("input", "inputValue", step.input),
    ...payload("output", "outputValue", step.output),
    ...payload("originalOutput", "originalOutputValue", step.originalOutput),
    ...(step.error && { error: toError(step.error) }),
    startedAt: at(step.startedAt),
    endedAt: at(step.endedAt),
    patchedAt: at(step.patchedAt),
    sleepUntil: tries === 0 ? at(step.sleepUntil) : undefined,
    tries,
    maxTries,
    retryAt: tries < maxTries ? at(step.sleepUntil) : undefined,
    waitEventName: step.waitEventName ?? "",
    waitTimeout: at(step.waitTimeoutAt),
    createdAt: at(step.createdAt),
    updatedAt: at(step.updatedAt),
    cutValues: cutMessages(step),
    ...redactionOf(step),
    tryLog: (step.failedTries ?? []).map(toTryMessage),
  };
}
