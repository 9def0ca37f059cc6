import type { Static } from "@sinclair/typebox";
import type { AttributesShape } from "../../domain/engine/attributes/operations.ts";
import { conditionIn, filterOf } from "../../sdk/wire/attribute-conditions.ts";
import { pauseWords } from "../../sdk/wire/pause-words.ts";
import { rest, rpc } from "./api.ts";
import { type Cuts, cutsOf, instantOf, shownBytesMax, textOf as text, textOf } from "./format.ts";
import { may } from "./session.ts";

type NamesIn<Text extends string, Found extends string = never> = Text extends `${infer One} ${infer Rest}`
  ? NamesIn<Rest, Found | One>
  : Found | Text;

/** Reads those fields of a message that hold the same kind of thing, by their names apart by a space. */
const reading =
  <Value>(read: (value: unknown) => Value) =>
  <const Text extends string>(message: Record<string, unknown>, names: Text) =>
    Object.fromEntries(names.split(" ").map((name) => [name, read(message[name])])) as Record<
      NamesIn<Text>,
      Value
    >;

const texts = reading(textOf);
const wholes = reading((value) => Number(value ?? 0));
const instants = reading((value) => instantOf(textOf(value)));

export type AttributesData = Static<typeof AttributesShape>;

/** A run as the pages show it, from the answers of `GetRun` and `ListRuns`. */
export type RunView = ReturnType<typeof runOf>;

export type ErrorView = NonNullable<ReturnType<typeof errorOf>>;

export type StepView = ReturnType<typeof stepOf>;

type WireMessage = Record<string, unknown>;

const whole = (value: unknown): number => Number(value ?? 0);
const instant = (value: unknown): number | undefined => instantOf(text(value));
/** `RUN_STATUS_RUNNING` and `running` are both `running`. */
const word = (value: unknown, prefix: string): string =>
  text(value)
    .replace(new RegExp(`^${prefix}`), "")
    .toLowerCase();
const cutsIn = (message: WireMessage): Cuts => cutsOf(message.cutValues as Parameters<typeof cutsOf>[0]);
const either = (message: WireMessage, field: string): unknown => message[`${field}Value`] ?? message[field];

function errorOf(value: unknown) {
  if (typeof value !== "object" || value === null) return undefined;
  const { message, code, stack, retryable } = value as WireMessage;
  return { message: text(message), code: text(code), stack: text(stack), retryable: retryable === true };
}

/** `orderId=L22`, as the filter of the list takes it. */
const attributeOf = ({ name, text: word, number, flag, time }: WireMessage): string =>
  `${text(name)}=${word ?? number ?? flag ?? time ?? ""}`;

export const runOf = (m: WireMessage) => ({
  ...texts(m, "id functionId eventId eventName pauseReason phase workerId parentRunId parentStepId"),
  ...texts(m, "cancellationCause redactedBy pinnedTo"),
  ...wholes(m, "functionVersion attempt maxAttempts"),
  ...instants(m, "startedAt endedAt timeoutAt redactedAt movesAt"),
  status: word(m.status, "RUN_STATUS_"),
  error: errorOf(m.error),
  createdAt: instant(m.createdAt) ?? 0,
  attributes: (Array.isArray(m.attributes) ? m.attributes : []).map(attributeOf),
});

/** `tries`, `maxTries`: of a step that is tried by itself; 0 of others. */
const stepOf = (m: WireMessage) => ({
  ...texts(m, "id stepId patchedBy compensationFor waitEventName"),
  ...wholes(m, "sequence attempt tries maxTries"),
  ...instants(m, "startedAt endedAt patchedAt sleepUntil waitTimeout retryAt"),
  name: text(m.name) || text(m.stepId),
  type: word(m.stepType, "STEP_TYPE_"),
  status: word(m.status, "STEP_STATUS_"),
  input: either(m, "input"),
  output: either(m, "output"),
  /** Undefined unless a person changed the output. */
  originalOutput: m.patchedAt === undefined ? undefined : (either(m, "originalOutput") ?? null),
  error: errorOf(m.error),
  cuts: cutsIn(m),
});

export type AttemptView = ReturnType<typeof attemptOf>;

const attemptOf = (m: WireMessage) => ({
  ...{ ...texts(m, "workerId deployment outcome"), ...wholes(m, "number executions lost") },
  startedAt: instant(m.startedAt) ?? 0,
  endedAt: instant(m.endedAt),
  error: errorOf(m.error),
  retryInMs: m.retryInMs === undefined ? undefined : whole(m.retryInMs),
});

const tryOf = (m: WireMessage) => ({
  ...{ ...wholes(m, "number attempt"), ...instants(m, "startedAt endedAt retryAt") },
  error: errorOf(m.error),
});

const ends = new Set(["completed", "failed", "cancelled"]);
export const isOver = (status: string): boolean => ends.has(status);

export type RunInFull = Awaited<ReturnType<typeof getRun>>;

/** Without `maxValueBytes` its values are whole. */
export async function getRun(id: string, signal?: AbortSignal, maxValueBytes?: number) {
  const message = await rpc("SvcService", "GetRun", { id, maxValueBytes, withAttempts: true }, signal);
  const [input, output] = [either(message, "input"), either(message, "output")];
  const attempts = (message.attemptLog ?? []).map(attemptOf);
  return { run: runOf(message), input, output, cuts: cutsIn(message), attempts };
}

/** Tries of a step that failed. */
export async function getTries(runId: string, stepId: string, signal?: AbortSignal) {
  const asked = { runId, stepId, withTries: true, maxValueBytes: 1 };
  const { steps = [] } = await rpc("SvcService", "GetRunSteps", asked, signal);
  return (steps[0]?.tryLog ?? []).map(tryOf);
}

/** What the handler of the run wrote. */
export async function getLogs(runId: string, signal?: AbortSignal) {
  const { lines = [], leftOut = 0 } = await rpc("SvcService", "GetRunLogs", { runId }, signal);
  const shown = lines.map((m) => ({
    ...{ ...texts(m, "level text step"), ...wholes(m, "attempt") },
    ...{ at: instant(m.at) ?? 0, fields: m.fields },
  }));
  return { lines: shown, leftOut };
}

export async function getSteps(
  runId: string,
  signal?: AbortSignal,
  asked: { maxValueBytes?: number; stepId?: string } = {},
): Promise<StepView[]> {
  const { steps = [] } = await rpc("SvcService", "GetRunSteps", { runId, ...asked }, signal);
  return steps.map(stepOf);
}

export type Moment = Awaited<ReturnType<typeof getTimeline>>[number];

export async function getTimeline(runId: string, signal?: AbortSignal) {
  const { events = [] } = await rpc("TimeTravelService", "GetRunTimeline", { runId }, signal);
  return events.map((m) => ({
    ...texts(m, "id stepId stepName summary"),
    ...{ type: text(m.eventType), significant: m.significant === true, at: instant(m.timestamp) ?? 0 },
  }));
}

function readBase64Json(value: unknown): unknown {
  if (typeof value !== "string" || value === "") return undefined;
  const raw = Uint8Array.from(atob(value), (one) => one.charCodeAt(0));
  const json = new TextDecoder().decode(raw);
  try {
    return JSON.parse(json);
  } catch {
    return json;
  }
}

/** One that is large is told of by how its JSON begins. */
function pastErrorOf(m: WireMessage): ErrorView | undefined {
  const begins = cutsIn(m).error?.begins;
  if (begins === undefined) return errorOf(readBase64Json(m.error));
  return { message: `${begins}…`, code: "", stack: "", retryable: false };
}

/** Output and first output of the step as they were then, whole. */
export async function getOutputsAt(
  place: { runId: string; stepId: string; at: number },
  signal?: AbortSignal,
): Promise<Pick<StepView, "output" | "originalOutput">> {
  const { runId, stepId, at } = place;
  const asked = { runId, stepId, timestamp: new Date(at).toISOString() };
  const found = await rpc("TimeTravelService", "GetStepOutputAt", asked, signal);
  return {
    output: readBase64Json(found.output),
    originalOutput: readBase64Json(found.originalOutput),
  };
}

/** The run and its steps as they were then. */
export async function getStateAt(runId: string, at: number, signal?: AbortSignal) {
  const timestamp = new Date(at).toISOString();
  const asked = { runId, timestamp, maxValueBytes: shownBytesMax };
  const { snapshot = {} } = await rpc("TimeTravelService", "GetRunStateAt", asked, signal);
  const steps = (snapshot.steps ?? []).map((m): StepView => {
    const isChanged = m.patched === true || m.injected === true;
    return {
      ...stepOf({ ...m, id: "", stepType: m.type, endedAt: m.completedAt, output: undefined }),
      error: pastErrorOf(m),
      output: readBase64Json(m.output),
      originalOutput: isChanged ? (readBase64Json(m.originalOutput) ?? null) : undefined,
    };
  });
  return { status: snapshot.status ?? "", steps };
}

export interface RunFilters {
  functionId?: string | undefined;
  eventId?: string | undefined;
  search?: string | undefined;
  /** Failures that look alike. */
  errorGroup?: string | undefined;
  eventName?: string | undefined;
  /** Held by the message, the code or the stack of a failure. */
  errorText?: string | undefined;
  /** A condition on an attribute, such as `orderId=L22`. */
  where?: string | undefined;
  /** The same as the server takes them. */
  attributes?: readonly object[];
  statuses?: readonly string[];
  since?: string | undefined;
  until?: string | undefined;
}

export type RunPage = Awaited<ReturnType<typeof listRuns>>;

/** Of a value in a row of a list: as much of an error as a line shows. */
const rowBytesMax = 200;

/** Names of attributes that runs have; none for who may not list them. */
export const readAttributes = async (): Promise<AttributesData["attributes"]> =>
  may("attributes:read") ? (await rest<AttributesData>("/api/v1/attributes")).attributes : [];

async function attributeFilter(where: string): Promise<object> {
  const condition = conditionIn(where);
  if (!condition) throw new TypeError(`${where}: write NAME=VALUE, or with >, >=, < or <=`);
  return filterOf(condition, (await readAttributes()).find(({ name }) => name === condition.name)?.type);
}

/** Lists show no values but errors: little of each is asked for. */
export async function listRuns(
  filters: RunFilters,
  page: { limit: number; cursor?: string },
  signal?: AbortSignal,
) {
  const { where, ...said } = filters;
  const asked = {
    ...{ ...said, ...page, maxValueBytes: rowBytesMax },
    ...(where !== undefined && { attributes: [await attributeFilter(where)] }),
  };
  const found = await rpc("SvcService", "ListRuns", asked, signal);
  const { runs = [], nextCursor = "", totalCount = 0, totalCountCapped = false } = found;
  return { runs: runs.map(runOf), nextCursor, totalCount, totalCountCapped };
}

const pauses = Object.values(pauseWords);

/** The words of the list's filter, which are those of its rows. */
export const runStatuses = [
  "waiting_for_capacity",
  "running",
  "waiting",
  ...pauses,
  "completed",
  "failed",
  "cancelled",
] as const;

/** As an address has them; `paused` there is every reason to be. */
export const chosenStatuses = (text: string | null): readonly string[] =>
  (text ?? "")
    .split(",")
    .filter(Boolean)
    .flatMap((word) => (word === "paused" ? pauses : word));

/** The newest that were sent to the run. */
export async function getSignals(id: string, signal?: AbortSignal) {
  const asked = { runId: id, limit: 200 };
  const {
    signals = [],
    kept = 0,
    hasMore = false,
  } = await rpc("SvcService", "ListRunSignals", asked, signal);
  const shown = signals.map((m) => ({
    ...{ number: whole(m.number), name: text(m.name), isKept: text(m.state) === "kept", data: m.data },
    ...{ sentBy: text(m.sentBy), sentAt: instant(m.sentAt) ?? 0, stepId: text(m.stepId) },
  }));
  return { signals: shown, kept: whole(kept), hasMore };
}

/** The outputs of the run, each with its end. */
export async function getOutputs(runId: string, signal?: AbortSignal) {
  const { outputs = [] } = await rpc("SvcService", "ListRunOutputs", { runId }, signal);
  return outputs.map((m) => ({
    ...{ name: text(m.name), chunks: whole(m.chunks), bytes: whole(m.bytes), tail: text(m.tail) },
  }));
}
