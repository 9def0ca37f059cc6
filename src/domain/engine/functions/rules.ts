import { hash } from "node:crypto";
import { CelError, compileCel } from "../../../kit/cel/cel.ts";
import { cronExpressionBytesMax } from "../../../kit/cron/cron.ts";
import { valueAt } from "../../../kit/data-path.ts";
import { requireEventName, runFailedEvent } from "../../../kit/event-names.ts";
import { Fault, invalid, within } from "../../../kit/fault.ts";
import { functionDefinitionBytesMax, functionIdBytesMax, sleepMsMax } from "../../../kit/limits.ts";
import { requireCallableUrl } from "../../../kit/outward-call.ts";
import { requirePayload } from "../../../kit/payload-json.ts";
import { recordedDays } from "../../../kit/recorded-days.ts";
import { readAttributes, readCompensateOn, requireChecked } from "./checked.ts";
import type {
  FunctionDefinition,
  FunctionRecord,
  FunctionStatus,
  RetryPolicy,
  TriggerDefinition,
} from "./definition.ts";
import {
  concurrencyMax,
  functionNameBytesMax,
  functionTriggersMax,
  retryDelayMsMax,
  runAttemptsMax,
  runTimeoutMsMax,
} from "./limits.ts";
import { type FlowInput, flowOf, laneKeyOf, laneLimitOf } from "./start-options.ts";
import { requireTriggerEvent } from "./trigger-patterns.ts";

export { batchOf, flowValue, gateOf, headStartOf, laneLimitOf } from "./start-options.ts";

/**
 * RegisterFunction as sent. Two generations of fields exist, and a client may send both: `retry` and
 * `preferredMode` win over `retryAttempts`, `retryDelayMs`, `retryBackoff` and `executionMode`.
 */
export interface RegisterInput extends FlowInput {
  id: string;
  name?: string;
  description?: string;
  slug?: string;
  triggers?: readonly TriggerDefinition[];
  retry?: Partial<RetryPolicy>;
  retryAttempts?: number;
  retryDelayMs?: number;
  retryBackoff?: number;
  timeoutMs?: number;
  debounce?: { periodMs?: number; key?: string; maxWaitMs?: number };
  preferredMode?: "pull" | "push";
  executionMode?: "pull" | "push";
  endpointUrl?: string;
  actorKey?: string;
  recording?: boolean;
  recordingProfile?: string;
  recordingRetention?: string;
  secrets?: readonly string[];
  cancelOn?: readonly { event?: string; match?: string }[];
  metadata?: Record<string, unknown>;
  changeReason?: string;
  compensateOn?: readonly string[];
  onFailure?: boolean;
  nondeterminism?: string;
  /** Cron expressions must be readable and paths lead somewhere; older clients hear of it later, or never. */
  checked?: boolean;
  attributes?: readonly { name?: string; path?: string; type?: string }[];
}

const retryDefaults: RetryPolicy = {
  maxAttempts: 3,
  initialDelayMs: 1_000,
  backoffFactor: 2,
  maxDelayMs: 300_000,
};

const debounceMsMin = 1_000;
const slugLengthMax = 100;
const backoffFactorMax = 100;
const recordingProfiles = ["all", "run_lifecycle", "steps"];
const retentionCharsMax = 16_384;

export { requireTriggerEvent };

/** What a trigger's expression may name. */
export const triggerVariables = ["event", "data"] as const;

/** Throws the fault that names the field and the rule. */
export function definitionOf(input: RegisterInput): FunctionDefinition {
  const id = requireFunctionId(input.id);
  const name = requireFunctionName(input.name || id);
  const mode = input.preferredMode ?? input.executionMode ?? (input.endpointUrl ? "push" : "pull");
  requirePayload("metadata", input.metadata);
  const definition: FunctionDefinition = {
    id,
    slug: slugOf(input.slug || name) || slugOf(id) || "function",
    name,
    description: input.description ?? "",
    triggers: readTriggers(input.triggers ?? []),
    retry: readRetry(input),
    mode,
    recording: input.recording ?? false,
    secrets: input.secrets ?? [],
    cancelOn: readCancelOn(input.cancelOn ?? []),
    ...(input.timeoutMs && { timeoutMs: within("timeoutMs", input.timeoutMs, 1, runTimeoutMsMax) }),
    ...(input.concurrency && readConcurrency(input.concurrency, input.checked)),
    ...(input.debounce && { debounce: readDebounce(input.debounce) }),
    ...readEndpoint(mode, input.endpointUrl),
    ...(input.actorKey && { actorKey: input.actorKey }),
    ...oneOf("recordingProfile", input.recordingProfile, recordingProfiles),
    // Any text is taken: clients of every generation send it, and only some of them mean anything by it.
    ...(input.recordingRetention && {
      recordingRetention: input.recordingRetention.slice(0, retentionCharsMax).toWellFormed(),
    }),
    ...(input.metadata && { metadata: input.metadata }),
    ...readCompensateOn(input.compensateOn ?? []),
    ...(input.onFailure && { onFailure: true }),
    ...readNondeterminism(input.nondeterminism),
    ...readAttributes(input.attributes),
    ...flowOf(input, mode),
  };
  if (input.checked) requireChecked(definition);
  if (input.slug && input.slug !== definition.slug)
    throw invalid("slug", `must be lower-case letters, digits and single hyphens, at most ${slugLengthMax}`);
  if (bytesOf(definition) > functionDefinitionBytesMax)
    throw invalid(
      "metadata",
      `the definition with its metadata must be at most ${functionDefinitionBytesMax} bytes`,
    );
  return definition;
}

/** What a definition asks for that has no effect here. */
export const noticesOf = ({ recordingRetention }: FunctionDefinition): string[] =>
  recordingRetention === undefined || recordedDays(recordingRetention) !== undefined
    ? []
    : ["recordingRetention: has no effect: it is no time such as 30d or 7y, and not forever"];

/** As it is stored. */
export const bytesOf = (definition: FunctionDefinition): number =>
  Buffer.byteLength(JSON.stringify(definition));

export const cronsOf = ({ triggers }: Pick<FunctionDefinition, "triggers">): number =>
  triggers.filter(({ cron }) => cron !== undefined).length;

/** Of one environment: every node keeps its functions in memory, and one node fires all its cron triggers. */
const functionsMax = 5_000;
const cronTriggersMax = 1_000;
const definitionsBytesMax = 16 * 1024 * 1024;

/**
 * Throws the fault that names the limit that a change went beyond, when it is this change that grew. What was
 * beyond it before may stay, and shrink.
 */
export function requireRoom(
  before: FunctionDefinition | undefined,
  after: FunctionDefinition,
  totals: { functions: number; crons: number; bytes: number },
): void {
  const full = (text: string) => new Fault("resource_exhausted", `at most ${text} in one environment`);
  if (before === undefined && totals.functions > functionsMax) throw full(`${functionsMax} functions`);
  if (totals.crons > cronTriggersMax && cronsOf(after) > (before ? cronsOf(before) : 0))
    throw full(`${cronTriggersMax} cron triggers`);
  if (totals.bytes > definitionsBytesMax && bytesOf(after) > (before ? bytesOf(before) : 0))
    throw full(`${definitionsBytesMax} bytes of function definitions`);
}

/** The charset is loose (`/` and `.` are common), but ids travel in subjects and paths. */
function requireFunctionId(id: string): string {
  if (id.trim() === "") throw invalid("id", "must not be empty");
  if (Buffer.byteLength(id) > functionIdBytesMax)
    throw invalid("id", `must be at most ${functionIdBytesMax} bytes`);
  if (!id.isWellFormed()) throw invalid("id", "must be well-formed Unicode");
  if (/[\s*>\p{Cc}]/u.test(id))
    throw invalid("id", "must not contain whitespace, control characters, * or >");
  // A start of it would log an event of that name.
  if (id === runFailedEvent) throw invalid("id", `must not be ${runFailedEvent}, which the server emits`);
  return id;
}

function requireFunctionName(name: string): string {
  if (Buffer.byteLength(name) > functionNameBytesMax)
    throw invalid("name", `must be at most ${functionNameBytesMax} bytes`);
  if (!name.isWellFormed()) throw invalid("name", "must be well-formed Unicode");
  if (/\p{Cc}/u.test(name)) throw invalid("name", "must not contain control characters");
  return name;
}

/** `Charge Card!` becomes `charge-card`; letters outside ASCII lose their marks or drop out. */
export function slugOf(text: string): string {
  return text
    .normalize("NFKD")
    .replace(/\p{M}+/gu, "")
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, slugLengthMax)
    .replace(/-+$/, "");
}

function readTriggers(triggers: readonly TriggerDefinition[]): TriggerDefinition[] {
  if (triggers.length > functionTriggersMax)
    throw invalid("triggers", `must be at most ${functionTriggersMax} triggers`);
  return triggers.map((trigger, at) => {
    const field = `triggers[${at}]`;
    if (!trigger.event && !trigger.cron) throw invalid(field, "must have an event or a cron expression");
    if (trigger.event) requireTriggerEvent(`${field}.event`, trigger.event);
    if (trigger.expression) requireTriggerExpression(`${field}.expression`, trigger.expression);
    if (trigger.cron && Buffer.byteLength(trigger.cron) > cronExpressionBytesMax)
      throw invalid(`${field}.cron`, `must be at most ${cronExpressionBytesMax} bytes`);
    // A cron expression that does not parse registers all the same and is announced as `invalid`.
    return {
      ...(trigger.event && { event: trigger.event }),
      ...(trigger.expression && { expression: trigger.expression }),
      ...(trigger.cron && { cron: trigger.cron }),
    };
  });
}

/** Throws the fault that names the field unless it is CEL over an event that says yes or no. */
export function requireTriggerExpression(field: string, expression: string): void {
  try {
    compileCel(expression, { variables: triggerVariables, result: "bool" });
  } catch (error) {
    if (error instanceof CelError) throw invalid(field, error.message);
    throw error;
  }
}

function readRetry(input: RegisterInput): RetryPolicy {
  const { maxAttempts, initialDelayMs, backoffFactor, maxDelayMs } = input.retry ?? {};
  // A zero in `retry` is an absent field on the wire; in the flat form, which knows absence, it is meant.
  const either = (
    [nestedName, nested]: [string, number | undefined],
    [flatName, flat]: [string, number | undefined],
    fallback: number,
    [least, most]: [number, number],
  ) =>
    nested
      ? within(`retry.${nestedName}`, nested, least, most)
      : within(flatName, flat ?? fallback, least, most);
  return {
    maxAttempts: either(
      ["maxAttempts", maxAttempts],
      ["retryAttempts", input.retryAttempts],
      retryDefaults.maxAttempts,
      [1, runAttemptsMax],
    ),
    initialDelayMs: either(
      ["initialDelayMs", initialDelayMs],
      ["retryDelayMs", input.retryDelayMs],
      retryDefaults.initialDelayMs,
      [0, retryDelayMsMax],
    ),
    backoffFactor: either(
      ["backoffFactor", backoffFactor],
      ["retryBackoff", input.retryBackoff],
      retryDefaults.backoffFactor,
      [1, backoffFactorMax],
    ),
    maxDelayMs: within("retry.maxDelayMs", maxDelayMs || retryDefaults.maxDelayMs, 1, retryDelayMsMax),
  };
}

function readConcurrency({ limit = 0, key }: { limit?: number; key?: string }, isChecked = false) {
  if (!limit && !key && !isChecked) return {}; // Older clients send it for none.
  const most = within("concurrency.limit", limit, 1, concurrencyMax);
  return { concurrency: { limit: most, ...(key && { key }) } };
}

function readDebounce(debounce: NonNullable<RegisterInput["debounce"]>) {
  const periodMs = within("debounce.periodMs", debounce.periodMs ?? 0, debounceMsMin, sleepMsMax);
  const maxWaitMs =
    debounce.maxWaitMs && within("debounce.maxWaitMs", debounce.maxWaitMs, periodMs, sleepMsMax);
  return { periodMs, ...(debounce.key && { key: debounce.key }), ...(maxWaitMs && { maxWaitMs }) };
}

function readCancelOn(list: readonly { event?: string; match?: string }[]) {
  return list.map(({ event = "", match = "" }, at) => {
    requireEventName(`cancelOn[${at}].event`, event);
    return { event, match };
  });
}

function readEndpoint(mode: "pull" | "push", endpointUrl: string | undefined) {
  if (!endpointUrl) {
    if (mode === "push") throw invalid("endpointUrl", "required for push mode");
    return {};
  }
  requireCallableUrl("endpointUrl", endpointUrl);
  return { endpointUrl };
}

function readNondeterminism(word: string | undefined): Pick<FunctionDefinition, "nondeterminism"> {
  if (!word || word === "warn") return {};
  if (word !== "fail") throw invalid("nondeterminism", "must be warn or fail");
  return { nondeterminism: word };
}

/** How `functions.undo_on` says what is to be done before a run ends. */
export const undoBits = { failure: 1, cancel: 2, onFailure: 4 } as const;

/** Null when a run of the function ends as it is. */
export function undoOnOf({ compensateOn = [], onFailure }: FunctionDefinition): number | null {
  const bits = compensateOn.reduce((sum, word) => sum | undoBits[word], onFailure ? undoBits.onFailure : 0);
  return bits === 0 ? null : bits;
}

function oneOf<K extends string>(field: K, value: string | undefined, words: readonly string[]) {
  if (!value) return {};
  if (!words.includes(value)) throw invalid(field, `must be one of ${words.join(", ")}`);
  return { [field]: value } as Record<K, string>;
}

/**
 * The text two equal definitions share, whatever the order of their keys: what decides over a new version.
 */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  const entries = Object.entries(value).filter(([, member]) => member !== undefined);
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, member]) => `${JSON.stringify(key)}:${canonical(member)}`).join(",")}}`;
}

/** Tells it from other definitions. Whether its runs are pinned makes no other of it. */
export const definitionHash = ({ pin: _, pinGraceMs: _1, pinGone: _2, ...hashed }: FunctionDefinition) =>
  digest([canonical(hashed)], 16);

export const sameDefinition = (a: FunctionDefinition, b: FunctionDefinition): boolean =>
  canonical(a) === canonical(b);

/** active <-> paused, either -> archived; an archived function comes back by being registered again. */
const moves: Record<FunctionStatus, readonly FunctionStatus[]> = {
  active: ["paused", "archived"],
  paused: ["active", "archived"],
  archived: [],
};

export function requireMove(id: string, from: FunctionStatus, to: FunctionStatus): void {
  if (!moves[from].includes(to))
    throw new Fault("failed_precondition", `function ${id} is ${from} and cannot become ${to}`);
}

export const functionStatuses: readonly FunctionStatus[] = ["active", "paused", "archived"];

/** `active`, `ACTIVE` and `FUNCTION_STATUS_ACTIVE`. */
export function parseStatus(text: string): FunctionStatus | undefined {
  const word = text.toLowerCase().replace(/^function_status_/, "");
  return functionStatuses.find((status) => status === word);
}

/** What a lane's key is; `f` is the one lane of a function, for runs without a key's value. */
const laneKinds = { f: "", s: "string", n: "number", t: "boolean", j: "json" } as const;
type LaneKind = keyof typeof laneKinds;

const kindOf = (value: unknown): LaneKind => {
  if (typeof value === "string") return "s";
  if (typeof value === "number") return "n";
  return typeof value === "boolean" ? "t" : "j";
};

const digest = (parts: readonly unknown[], length: number): string =>
  hash("sha256", JSON.stringify(parts), "hex").slice(0, length);

/**
 * Prefix of the ids of a function's queues; only letters and digits, so that they sort together under any
 * collation.
 */
export const lanePrefix = (environmentId: string, functionId: string): string =>
  digest([environmentId, functionId], 16);

const laneId = (kind: LaneKind, environmentId: string, functionId: string, value: unknown): string =>
  `${lanePrefix(environmentId, functionId)}${kind}${digest([environmentId, functionId, value], 24)}`;

/** The lane of a function's runs whose key leads to nothing, or that has no key. */
export const sharedLane = (environmentId: string, functionId: string): string =>
  laneId("f", environmentId, functionId, null);

/**
 * The lane of a run with this event data; null without a limit. A digest: what the key's value was cannot be
 * read from it.
 */
export function laneOf(
  { environmentId, definition }: Pick<FunctionRecord, "environmentId" | "definition">,
  data: unknown,
): string | null {
  const { id } = definition;
  if (laneLimitOf(definition) === undefined) return null;
  const key = laneKeyOf(definition);
  const value = key === undefined ? undefined : valueAt(data, key);
  if (value === undefined) return sharedLane(environmentId, id);
  return laneId(kindOf(value), environmentId, id, value);
}

/** `scope` and `scalar_type` of a capacity row. */
export function laneFacts(id: string): { scope: "function" | "key"; scalarType: string } {
  const kind = id[16] as LaneKind;
  return { scope: kind === "f" ? "function" : "key", scalarType: laneKinds[kind] ?? "" };
}
