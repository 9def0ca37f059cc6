import type { JsonObject, MessageInitShape } from "@bufbuild/protobuf";
import { FunctionHistoryEntrySchema, type RegisterFunctionRequest } from "../../../gen/svc/v1/svc_pb.ts";
import {
  ExecutionMode,
  type FunctionSchema,
  FunctionStatus as FunctionStatusWire,
} from "../../../gen/svc/v1/types_pb.ts";
import { stated } from "../../../kit/cases.ts";
import { pinGraceMsDefault } from "../../../kit/limits.ts";
import { fieldsFor } from "../../../kit/message-shape.ts";
import { asSent } from "../../../kit/request.ts";
import { jsonOf, timestampOf } from "../../../kit/wkt.ts";
import type { FunctionChange, FunctionRecord, FunctionStatus } from "./definition.ts";
import type { RegisterInput } from "./rules.ts";
import type { FlowOptions } from "./start-options.ts";

const statusWire: Record<FunctionStatus, FunctionStatusWire> = {
  active: FunctionStatusWire.ACTIVE,
  paused: FunctionStatusWire.PAUSED,
  archived: FunctionStatusWire.ARCHIVED,
};

/** Undefined for UNSPECIFIED and for numbers that are no status. */
export const statusWord = (status: number): FunctionStatus | undefined =>
  (Object.keys(statusWire) as FunctionStatus[]).find((word) => statusWire[word] === status);

const modeWire = { pull: ExecutionMode.PULL, push: ExecutionMode.PUSH };

const modeWord = (mode: ExecutionMode): "pull" | "push" | undefined =>
  mode === ExecutionMode.PULL ? "pull" : mode === ExecutionMode.PUSH ? "push" : undefined;

/** Fields at their zero value count as absent, as the protobuf mapping has it. */
export function fromRegisterMessage(m: RegisterFunctionRequest): RegisterInput {
  const { triggers, retry, priority, startWithinMs, preferredMode, executionMode, ...rest } = asSent(m);
  const { initialDelayMs, ...tries } = retry ?? {};
  return {
    ...rest,
    triggers: triggers.map(({ event, expression, cron }) => ({
      ...(event && { event }),
      ...(expression && { expression }),
      ...(cron && { cron }),
    })),
    ...(retry && { retry: { ...tries, ...(initialDelayMs && { initialDelayMs }) } }),
    ...stated({ preferredMode: modeWord(preferredMode), executionMode: modeWord(executionMode) }),
    ...(priority && { priority: jsonOf(priority) }),
    ...(startWithinMs && { startWithinMs }),
  };
}

/** With what is known of the workers that serve it. */
export type ServedRecord = FunctionRecord & { unserved?: boolean; definitionsDiffer?: boolean };

/** Both forms: `retry`, `preferredMode` and `retryAttempts`, `executionMode`. */
export function toFunctionMessage(record: ServedRecord): MessageInitShape<typeof FunctionSchema> {
  const { definition } = record;
  return {
    id: definition.id,
    slug: definition.slug,
    name: definition.name,
    description: definition.description,
    triggers: definition.triggers.map((trigger) => ({ ...trigger })),
    retry: { ...definition.retry },
    retryAttempts: definition.retry.maxAttempts,
    retryDelayMs: definition.retry.initialDelayMs,
    retryBackoff: definition.retry.backoffFactor,
    timeoutMs: definition.timeoutMs ?? 0,
    ...(definition.concurrency && {
      concurrency: { limit: definition.concurrency.limit, key: definition.concurrency.key ?? "" },
    }),
    ...(definition.debounce && {
      debounce: {
        periodMs: definition.debounce.periodMs,
        key: definition.debounce.key ?? "",
        maxWaitMs: BigInt(definition.debounce.maxWaitMs ?? 0),
      },
    }),
    preferredMode: modeWire[definition.mode],
    executionMode: modeWire[definition.mode],
    endpointUrl: definition.endpointUrl ?? "",
    actorKey: definition.actorKey ?? "",
    recording: definition.recording,
    recordingProfile: definition.recordingProfile ?? "",
    recordingRetention: definition.recordingRetention ?? "",
    cancelOn: definition.cancelOn.map((spec) => ({ ...spec })),
    ...(definition.metadata && { metadata: definition.metadata as JsonObject }),
    compensateOn: [...(definition.compensateOn ?? [])],
    onFailure: definition.onFailure ?? false,
    nondeterminism: definition.nondeterminism ?? "",
    unserved: record.unserved ?? false,
    definitionsDiffer: record.definitionsDiffer ?? false,
    attributes: (definition.attributes ?? []).map((one) => ({ ...one })),
    ...flowMessage(definition),
    status: statusWire[record.status],
    version: record.version,
    createdAt: timestampOf(record.createdAt),
    updatedAt: timestampOf(record.updatedAt),
  };
}

const ofChange = fieldsFor(FunctionHistoryEntrySchema);

export const toHistoryEntry = (
  change: FunctionChange,
): MessageInitShape<typeof FunctionHistoryEntrySchema> => ({
  ...ofChange(change, "eventId entityVersion functionId actorId changeReason changeType recordedAt"),
  functionSnapshot: toFunctionMessage(change.snapshot),
});

const flowMessage = ({
  priority,
  throttle,
  rateLimit,
  idempotency,
  singleton,
  startWithinMs,
  batch,
  pin,
  pinGraceMs,
  pinGone,
}: FlowOptions) => ({
  ...(priority !== undefined && {
    priority: {
      kind:
        typeof priority === "number"
          ? { case: "numberValue" as const, value: priority }
          : { case: "stringValue" as const, value: priority },
    },
  }),
  ...(throttle && { throttle: { ...throttle } }),
  ...(rateLimit && { rateLimit: { ...rateLimit } }),
  ...(idempotency && { idempotency: { ...idempotency } }),
  ...(singleton && { singleton: { ...singleton } }),
  ...(startWithinMs !== undefined && { startWithinMs }),
  ...(batch && { batch: { ...batch } }),
  ...(pin && { pin, pinGraceMs: pinGraceMs ?? pinGraceMsDefault, pinGone: pinGone ?? "move" }),
});
