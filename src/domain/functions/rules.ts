import { CelError, compileCel } from "../../kit/cel.ts";
import { Fault, invalid } from "../../kit/fault.ts";
import {
  functionDefinitionBytesMax,
  functionIdBytesMax,
  functionNameBytesMax,
  functionTriggersMax,
  retryDelayMsMax,
  runAttemptsMax,
  runTimeoutMsMax,
} from "../../kit/limits.ts";
import { requireEventName } from "../../kit/names.ts";
import type { FunctionDefinition, FunctionStatus, RetryPolicy, TriggerDefinition } from "./definition.ts";

/** RegisterFunction as sent: the fields of contract.md 1.2 and those of spec.md 'Function', either or both. */
export interface RegisterInput {
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
  concurrency?: { limit?: number; key?: string };
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
}

const retryDefaults: RetryPolicy = {
  maxAttempts: 3,
  initialDelayMs: 1_000,
  backoffFactor: 2,
  maxDelayMs: 300_000,
};

const debounceMsMin = 1_000;
const recordingProfiles = ["all", "run_lifecycle", "steps"];
const recordingRetentions = ["7d", "30d", "90d", "forever"];

/** What a trigger's expression may name. */
export const triggerVariables = ["event", "data"] as const;

/** Throws the fault that names the field and the rule. */
export function definitionOf(input: RegisterInput): FunctionDefinition {
  const id = requireFunctionId(input.id);
  const name = input.name || id;
  if (Buffer.byteLength(name) > functionNameBytesMax)
    throw invalid("name", `at most ${functionNameBytesMax} bytes`);
  const mode = input.preferredMode ?? input.executionMode ?? (input.endpointUrl ? "push" : "pull");
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
    ...(input.concurrency?.limit && { concurrency: readConcurrency(input.concurrency) }),
    ...(input.debounce && { debounce: readDebounce(input.debounce) }),
    ...readEndpoint(mode, input.endpointUrl),
    ...(input.actorKey && { actorKey: input.actorKey }),
    ...oneOf("recordingProfile", input.recordingProfile, recordingProfiles),
    ...oneOf("recordingRetention", input.recordingRetention, recordingRetentions),
    ...(input.metadata && { metadata: input.metadata }),
  };
  if (input.timeoutMs !== undefined && input.timeoutMs < 0)
    throw invalid("timeoutMs", "must not be negative");
  if (input.slug && input.slug !== definition.slug)
    throw invalid("slug", "must be lower-case letters, digits and single hyphens");
  if (Buffer.byteLength(JSON.stringify(definition)) > functionDefinitionBytesMax)
    throw invalid("metadata", `the whole definition may have ${functionDefinitionBytesMax} bytes at most`);
  return definition;
}

/** The charset is loose (`/` and `.` are common), but ids travel in subjects and paths. */
function requireFunctionId(id: string): string {
  if (id.trim() === "") throw invalid("id", "must not be empty");
  if (Buffer.byteLength(id) > functionIdBytesMax) throw invalid("id", `at most ${functionIdBytesMax} bytes`);
  if (!id.isWellFormed()) throw invalid("id", "must be well-formed Unicode");
  if (/[\s*>\p{Cc}]/u.test(id))
    throw invalid("id", "must not contain whitespace, control characters, * or >");
  return id;
}

/** `Charge Card!` becomes `charge-card`; letters outside ASCII lose their marks or drop out. */
export function slugOf(text: string): string {
  return text
    .normalize("NFKD")
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-+|-+$/g, "")
    .slice(0, 100)
    .replace(/-+$/, "");
}

function readTriggers(triggers: readonly TriggerDefinition[]): TriggerDefinition[] {
  if (triggers.length > functionTriggersMax) throw invalid("triggers", `at most ${functionTriggersMax}`);
  return triggers.map((trigger, at) => {
    const field = `triggers[${at}]`;
    if (!trigger.event && !trigger.cron) throw invalid(field, "wants an event or a cron expression");
    if (trigger.event) requireEventName(`${field}.event`, trigger.event);
    if (trigger.expression) {
      try {
        compileCel(trigger.expression, { variables: triggerVariables, result: "bool" });
      } catch (error) {
        if (error instanceof CelError) throw invalid(`${field}.expression`, error.message);
        throw error;
      }
    }
    // A cron expression that does not parse registers all the same and is announced as `invalid` (spec 'Cron rules').
    return {
      ...(trigger.event && { event: trigger.event }),
      ...(trigger.expression && { expression: trigger.expression }),
      ...(trigger.cron && { cron: trigger.cron }),
    };
  });
}

function readRetry(input: RegisterInput): RetryPolicy {
  const { retry = {} } = input;
  const maxAttempts = retry.maxAttempts || input.retryAttempts || retryDefaults.maxAttempts;
  const initialDelayMs = retry.initialDelayMs ?? input.retryDelayMs ?? retryDefaults.initialDelayMs;
  const backoffFactor = retry.backoffFactor || input.retryBackoff || retryDefaults.backoffFactor;
  const maxDelayMs = retry.maxDelayMs || retryDefaults.maxDelayMs;
  const [attempts, delay, backoff] =
    input.retry === undefined
      ? ["retryAttempts", "retryDelayMs", "retryBackoff"]
      : ["retry.maxAttempts", "retry.initialDelayMs", "retry.backoffFactor"];
  return {
    maxAttempts: within(attempts!, maxAttempts, 1, runAttemptsMax),
    initialDelayMs: within(delay!, initialDelayMs, 0, retryDelayMsMax),
    backoffFactor: within(backoff!, backoffFactor, 1, 100),
    maxDelayMs: within("retry.maxDelayMs", maxDelayMs, 1, retryDelayMsMax),
  };
}

function readConcurrency({ limit = 0, key }: { limit?: number; key?: string }) {
  return { limit: within("concurrency.limit", limit, 1, 1_000_000), ...(key && { key }) };
}

function readDebounce(debounce: NonNullable<RegisterInput["debounce"]>) {
  const periodMs = debounce.periodMs ?? 0;
  if (periodMs < debounceMsMin) throw invalid("debounce.periodMs", `at least ${debounceMsMin}`);
  const { maxWaitMs } = debounce;
  if (maxWaitMs && maxWaitMs < periodMs) throw invalid("debounce.maxWaitMs", "at least periodMs");
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
  const url = URL.canParse(endpointUrl) ? new URL(endpointUrl) : undefined;
  if (!url || (url.protocol !== "https:" && url.protocol !== "http:"))
    throw invalid("endpointUrl", "must be an absolute http or https URL");
  return { endpointUrl };
}

function oneOf<K extends string>(field: K, value: string | undefined, words: readonly string[]) {
  if (!value) return {};
  if (!words.includes(value)) throw invalid(field, `must be one of ${words.join(", ")}`);
  return { [field]: value } as Record<K, string>;
}

function within(field: string, value: number, least: number, most: number): number {
  if (!Number.isFinite(value) || value < least || value > most)
    throw invalid(field, `must be from ${least} to ${most}`);
  return value;
}

/** The text two equal definitions share, whatever the order of their keys: what decides over a new version. */
export function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  const entries = Object.entries(value).filter(([, member]) => member !== undefined);
  entries.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${entries.map(([key, member]) => `${JSON.stringify(key)}:${canonical(member)}`).join(",")}}`;
}

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

const statuses: readonly FunctionStatus[] = ["active", "paused", "archived"];

/** `active`, `ACTIVE` and `FUNCTION_STATUS_ACTIVE`. */
export function parseStatus(text: string): FunctionStatus | undefined {
  const word = text.toLowerCase().replace(/^function_status_/, "");
  return statuses.find((status) => status === word);
}
