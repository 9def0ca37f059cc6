import { readAttributes, readDeclared } from "./attributes.ts";
import { stackless, type ThrownError } from "./errors.ts";
import type {
  EmitNotice,
  Emitted,
  FunctionStatus,
  RegisteredFunction,
  Run,
  RunAttempt,
  RunStatus,
  Step,
  StepTry,
} from "./types.ts";

/** A message in protobuf's JSON: zero values are absent, enums are constants, non-objects are in `…Value`. */
export type Message = Record<string, unknown>;

export const text = (value: unknown): string => (typeof value === "string" ? value : "");
export const count = (value: unknown): number => Number(value ?? 0);

/** The messages of a list, each read. */
export const all = <Row>(list: unknown, read: (message: Message) => Row): Row[] =>
  ((list ?? []) as Message[]).map(read);

/** Fields by what they hold. `given`: those that are left out where they are absent or empty. */
interface FieldKinds<Name> {
  texts?: readonly Name[];
  counts?: readonly Name[];
  flags?: readonly Name[];
  given?: readonly Name[];
}

/** Reads the fields that a message has under the same names as `Row`. */
export const fieldsOf =
  <Row>() =>
  <const Name extends keyof Row & string>({ texts, counts, flags, given }: FieldKinds<Name>) => {
    const read = (message: Message, names: readonly Name[] = [], as: (value: unknown) => unknown) =>
      Object.fromEntries(names.map((name) => [name, as(message[name])]));
    return (message: Message): Pick<Row, Name> =>
      ({
        ...read(message, texts, text),
        ...read(message, counts, count),
        ...read(message, flags, (value) => value === true),
        ...present(message, given ?? []),
      }) as Pick<Row, Name>;
  };
export const payload = (message: Message, field: string): unknown =>
  message[`${field}Value`] !== undefined ? message[`${field}Value`] : (message[field] ?? null);

/** `RUN_STATUS_WAITING_FOR_CAPACITY` reads `waiting_for_capacity`. */
export const wordOf = (constant: unknown, prefix: string): string =>
  text(constant)
    .replace(new RegExp(`^${prefix}_`), "")
    .toLowerCase();

/** The fields that are there and not empty; keeps optional fields truly absent. */
export function present(message: Message, fields: readonly string[]): Message {
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
      ...stackless(present(error, ["name", "code", "cause", "errors"]) as unknown as ThrownError),
      message: text(error.message),
      retryable: error.retryable === true,
    },
  };
}

const runFields = fieldsOf<Run>()({
  texts: ["id", "functionId", "eventId", "eventName", "createdAt", "updatedAt"],
  counts: ["functionVersion", "attempt", "maxAttempts"],
  given: [
    ...(["pauseReason", "pauseRequested", "workerId", "actorId", "cancellationCause", "phase"] as const),
    ...(["parentRunId", "parentStepId", "startedAt", "endedAt", "movesAt", "pinnedTo"] as const),
    ...(["compensationFailed", "blockingReason", "blockingCause", "nondeterminism"] as const),
    ...(["errorGroup", "redactedAt", "redactedBy"] as const),
  ],
});

export const readRun = (message: Message): Run => ({
  ...runFields(message),
  status: wordOf(message.status, "RUN_STATUS") as RunStatus,
  ...{ input: payload(message, "input"), output: payload(message, "output") },
  ...(Array.isArray(message.attemptLog) && { attemptLog: message.attemptLog.map(readAttempt) }),
  ...(message.attributes !== undefined && { attributes: readAttributes(message.attributes) }),
  ...errorOf(message),
});

/** Of one whose error is left out: nothing was said. */
const saidError = (message: Message) => errorOf(message).error ?? { message: "", retryable: false };

const attemptFields = fieldsOf<RunAttempt>()({
  ...{ texts: ["workerId", "startedAt"], counts: ["number", "executions"] },
  given: ["endedAt", "outcome", "lost", "deployment"],
});
const readAttempt = (message: Message): RunAttempt => ({
  ...attemptFields(message),
  ...(message.retryInMs !== undefined && { retryInMs: count(message.retryInMs) }),
  ...errorOf(message),
});

const tryFields = fieldsOf<StepTry>()({
  ...{ texts: ["workerId", "endedAt"], counts: ["number", "attempt"], given: ["startedAt", "retryAt"] },
});
const readTry = (message: Message): StepTry => ({ ...tryFields(message), error: saidError(message) });

const stepFields = fieldsOf<Step>()({
  ...{ texts: ["id", "stepId", "runId", "name"], counts: ["sequence", "attempt"] },
  given: [
    ...(["startedAt", "endedAt", "compensationFor", "patchedAt", "patchedBy"] as const),
    ...(["tries", "maxTries", "retryAt", "redactedAt", "redactedBy"] as const),
  ],
});

export const readStep = (message: Message): Step => ({
  ...stepFields(message),
  type: wordOf(message.stepType ?? message.type, "STEP_TYPE"),
  status: wordOf(message.status, "STEP_STATUS"),
  durationMs: count(message.durationMsFull ?? message.durationMs),
  output: payload(message, "output"),
  ...errorOf(message),
  ...(Array.isArray(message.tryLog) && { tryLog: message.tryLog.map(readTry) }),
});

export function readFunction(message: Message): RegisteredFunction {
  const { preferredMode, debounce, attributes, ...rest } = message;
  const { maxWaitMs, ...quiet } = (debounce ?? {}) as Message;
  return {
    ...(rest as unknown as RegisteredFunction),
    triggers: (message.triggers as RegisteredFunction["triggers"]) ?? [],
    status: wordOf(message.status, "FUNCTION_STATUS") as FunctionStatus,
    version: count(message.version),
    ...(preferredMode !== undefined && {
      mode: wordOf(preferredMode, "EXECUTION_MODE") as NonNullable<RegisteredFunction["mode"]>,
    }),
    ...(attributes !== undefined && { attributes: readDeclared(attributes) }),
    ...(debounce !== undefined && {
      debounce: {
        ...(quiet as unknown as NonNullable<RegisteredFunction["debounce"]>),
        ...(maxWaitMs !== undefined && { maxWaitMs: count(maxWaitMs) }),
      },
    }),
  };
}

export const readEmitted = (message: Message): Emitted => ({
  eventId: text(message.eventId),
  runIds: (message.runIds as string[] | undefined) ?? [],
  sequence: count(message.sequence),
  ...(message.delayedId !== undefined && {
    delayed: { id: text(message.delayedId), dueAt: text(message.dueAt) },
  }),
  ...(message.notices !== undefined && { notices: message.notices as EmitNotice[] }),
  ...(message.unserved !== undefined && { unserved: message.unserved as string[] }),
});

/** How a synchronous call found a run. */
export interface RunResult<Output = unknown> {
  runId: string;
  functionId: string;
  status: RunStatus;
  /** Null unless completed. */
  output: Output;
  error?: Run["error"];
  durationMs: number;
  /** The run had not ended when `timeoutMs` was over; `status` is the one it had then. */
  waitTimedOut: boolean;
}

export function readResult(message: Message): RunResult {
  return {
    runId: text(message.runId),
    functionId: text(message.functionId),
    status: wordOf(message.status, "RUN_STATUS") as RunStatus,
    output: payload(message, "output"),
    durationMs: count(message.durationMs),
    waitTimedOut: message.waitTimedOut === true,
    ...errorOf(message),
  };
}

/** What a resume would do with one step of a run. */
export interface PreviewedStep {
  /** Of the row. */
  id: string;
  name: string;
  status: string;
  /** It was undone, or it comes from `fromStep` on. */
  runsAgain: boolean;
  /** The output that a person set is given up, because the step was undone later. */
  patchLost: boolean;
  /** Its compensation failed; the step stays as it is. */
  notUndone: boolean;
  /** It stays, with what it made of a step that runs again; as `fromStep` it would run again, too. */
  builtOnAgain: boolean;
}

/** A run that is held, as a person decides about it. */
export interface PausedState {
  steps: {
    id: string;
    name: string;
    output: unknown;
    injected: boolean;
    completedAt?: string;
    status?: string;
    error?: unknown;
  }[];
  nextStepHint?: string;
  pauseReason?: string;
}

/** The value of a JSON text; a text that is not JSON is returned as it is. */
export function parsed(value: unknown): unknown {
  if (typeof value !== "string" || value === "") return null;
  try {
    return JSON.parse(value);
  } catch {
    return value;
  }
}

export function readPausedState(message: Message): PausedState {
  const steps = (message.steps as Message[] | undefined) ?? [];
  return {
    steps: steps.map((step) => ({
      id: text(step.id),
      name: text(step.name),
      output: parsed(step.output),
      injected: step.injected === true,
      ...present(step, ["completedAt", "status"]),
      ...(text(step.error) !== "" && { error: parsed(step.error) }),
    })),
    ...present(message, ["nextStepHint", "pauseReason"]),
  };
}

/** One change of a function's definition. */
export interface HistoryEntry {
  eventId: string;
  functionId: string;
  /** Its place in the history, from 1. */
  entityVersion: number;
  function: RegisteredFunction;
  actorId: string;
  changeReason: string;
  /** `update`, `status_change`, `rollback` or `delete`. */
  changeType: string;
  recordedAt: string;
}

const changeFields = fieldsOf<HistoryEntry>()({
  texts: ["eventId", "functionId", "actorId", "changeReason", "changeType", "recordedAt"],
  counts: ["entityVersion"],
});
export const readHistory = (message: Message): HistoryEntry => ({
  ...changeFields(message),
  function: readFunction((message.functionSnapshot as Message | undefined) ?? {}),
});

/** A secret without its value, which the server never gives out. */
export interface Secret {
  name: string;
  revision: number;
  description?: string;
  createdAt: string;
  updatedAt: string;
}

export function readSecret(row: Message): Secret {
  return {
    name: text(row.name),
    revision: count(row.revision),
    createdAt: text(row.created_at),
    updatedAt: text(row.updated_at),
    ...present(row, ["description"]),
  };
}

export const instant = (value: Date | string): string =>
  typeof value === "string" ? value : value.toISOString();

export function query(values: Record<string, string | number | readonly string[] | undefined>): string {
  const given = Object.entries(values).filter(([, value]) => value !== undefined);
  return given.length === 0
    ? ""
    : `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
}
