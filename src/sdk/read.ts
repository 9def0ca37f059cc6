import type { Emitted, FunctionStatus, RegisteredFunction, Run, RunStatus, Step } from "./types.ts";

/** A message in protobuf's JSON: zero values are absent, enums are constants, other than objects stand in `…Value`. */
export type Message = Record<string, unknown>;

const text = (value: unknown): string => (typeof value === "string" ? value : "");
const count = (value: unknown): number => Number(value ?? 0);
const payload = (message: Message, field: string): unknown =>
  message[`${field}Value`] !== undefined ? message[`${field}Value`] : (message[field] ?? null);

/** `RUN_STATUS_WAITING_FOR_CAPACITY` reads `waiting_for_capacity`. */
export const wordOf = (constant: unknown, prefix: string): string =>
  text(constant)
    .replace(new RegExp(`^${prefix}_`), "")
    .toLowerCase();

/** The fields that are there and not empty; keeps optional fields truly absent. */
function present(message: Message, fields: readonly string[]): Message {
  return Object.fromEntries(
    fields
      .filter((field) => message[field] !== undefined && message[field] !== "")
      .map((field) => [field, message[field]]),
  );
}

function errorOf(message: Message): { error?: Run["error"] & object } {
  const error = message.error as Message | undefined;
  if (!error) return {};
  return {
    error: {
      message: text(error.message),
      retryable: error.retryable === true,
      ...(error.code !== undefined && { code: text(error.code) }),
    },
  };
}

export function readRun(message: Message): Run {
  return {
    id: text(message.id),
    functionId: text(message.functionId),
    functionVersion: count(message.functionVersion),
    eventId: text(message.eventId),
    eventName: text(message.eventName),
    status: wordOf(message.status, "RUN_STATUS") as RunStatus,
    attempt: count(message.attempt),
    maxAttempts: count(message.maxAttempts),
    input: payload(message, "input"),
    output: payload(message, "output"),
    createdAt: text(message.createdAt),
    updatedAt: text(message.updatedAt),
    ...present(message, ["pauseReason", "workerId", "cancellationCause", "startedAt", "endedAt"]),
    ...errorOf(message),
  };
}

export function readStep(message: Message): Step {
  return {
    id: text(message.id),
    stepId: text(message.stepId),
    runId: text(message.runId),
    name: text(message.name),
    type: wordOf(message.stepType ?? message.type, "STEP_TYPE"),
    status: wordOf(message.status, "STEP_STATUS"),
    sequence: count(message.sequence),
    attempt: count(message.attempt),
    durationMs: count(message.durationMsFull ?? message.durationMs),
    output: payload(message, "output"),
    ...present(message, ["startedAt", "endedAt"]),
    ...errorOf(message),
  };
}

export function readFunction(message: Message): RegisteredFunction {
  return {
    ...(message as unknown as RegisteredFunction),
    triggers: (message.triggers as RegisteredFunction["triggers"]) ?? [],
    status: wordOf(message.status, "FUNCTION_STATUS") as FunctionStatus,
    version: count(message.version),
  };
}

export const readEmitted = (message: Message): Emitted => ({
  eventId: text(message.eventId),
  runIds: (message.runIds as string[] | undefined) ?? [],
  sequence: count(message.sequence),
});
