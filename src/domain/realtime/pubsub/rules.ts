import { type CelBudget, CelError, type CelProgram, compileCel } from "../../../kit/cel/cel.ts";
import { Fault, type FaultDetail } from "../../../kit/fault.ts";
import { patternBytesMax } from "../../../kit/limits.ts";
import type { Thing } from "../../../kit/operation.ts";
import type { FrameKind } from "./frames.ts";

/** Where a topic belongs: the log's events by name and by entity, developer topics, what happens to the product's own things. */
export type Namespace = "events" | "entity" | "topic" | "system";

/** A pattern that was read. */
export interface Pattern {
  /** In full: `events:order.*`. */
  readonly text: string;
  readonly namespace: Namespace;
  /** The namespace, then the segments; `*` stands for one, a last `>` for one or more. */
  readonly tokens: readonly string[];
}

/** proto/README.md 'WebSocket codes'. */
export type RefusalCode = "INVALID_PATTERN" | "INVALID_ARGUMENT" | "LIMIT_EXCEEDED" | "INTERNAL_ERROR";

const prefixed: readonly Namespace[] = ["events", "entity", "topic"];

/** Also what is too much: a caller who comes back later is refused again. */
export const refusal = (code: RefusalCode, message: string, detail: FaultDetail = {}): Fault =>
  new Fault("invalid_argument", message, { ...detail, code });

const badPattern = (rule: string) => refusal("INVALID_PATTERN", `pattern: ${rule}`, { field: "pattern" });

/** Where the namespace ends and the segments begin. */
function divided(text: string): { namespace: Namespace; rest: string } | undefined {
  if (text.startsWith("system.")) return { namespace: "system", rest: text.slice("system.".length) };
  const colon = text.indexOf(":");
  if (colon < 0) return { namespace: "events", rest: text };
  const namespace = prefixed.find((one) => one === text.slice(0, colon));
  return namespace && { namespace, rest: text.slice(colon + 1) };
}

const publicForm = (namespace: Namespace, rest: string): string =>
  namespace === "system" ? `system.${rest}` : `${namespace}:${rest}`;

/** Throws INVALID_PATTERN. What has no prefix is `events:`, unless it begins with `system.`. */
export function parsePattern(text: string): Pattern {
  if (text === "") throw badPattern("must not be empty");
  if (Buffer.byteLength(text) > patternBytesMax) throw badPattern(`at most ${patternBytesMax} bytes`);
  if (!text.isWellFormed() || /[\s\p{Cc}]/u.test(text))
    throw badPattern("must not contain whitespace or control characters");
  const parts = divided(text);
  if (!parts) throw badPattern(`"${text.slice(0, text.indexOf(":"))}" is no namespace`);
  const segments = parts.rest.split(".");
  for (const [at, segment] of segments.entries()) {
    if (segment === "") throw badPattern("must not contain an empty segment");
    if (segment === ">" && at < segments.length - 1) throw badPattern("> stands only at the end");
    if (segment.length > 1 && /[*>]/.test(segment)) throw badPattern("* and > stand for whole segments");
  }
  return {
    text: publicForm(parts.namespace, parts.rest),
    namespace: parts.namespace,
    tokens: [parts.namespace, ...segments],
  };
}

/** As deny policies may name it: in full, and events also by their bare name. */
export const namesOf = ({ namespace, text }: Pattern): string[] =>
  namespace === "events" ? [text, text.slice("events:".length)] : [text];

/**
 * All that the pattern stands for, to be read by one of several: what a member is given nobody else gets, so a member must be one
 * who may have every one.
 */
export const allOf = (pattern: Pattern): Thing[] =>
  namesOf(pattern).map((name) => ({
    type: "event",
    id: name.replace(/>$/, "*"),
    isPattern: true,
    action: "events:subscribe",
  }));

/** A topic in its public form, taken apart as patterns are. */
export function tokensOf(topic: string): string[] {
  const parts = divided(topic);
  return parts ? [parts.namespace, ...parts.rest.split(".")] : [];
}

/** Whether the tokens of a topic are what the pattern's stand for. */
export function matchesTokens(pattern: readonly string[], tokens: readonly string[]): boolean {
  for (const [at, wanted] of pattern.entries()) {
    if (wanted === ">" && at === pattern.length - 1) return tokens.length > at;
    if (at >= tokens.length || (wanted !== "*" && wanted !== tokens[at])) return false;
  }
  return pattern.length === tokens.length;
}

/** The event, or the developer topic, that a pattern stands for alone; undefined when it may stand for several. */
export const literalName = ({ namespace, text, tokens }: Pattern): string | undefined =>
  (namespace === "events" || namespace === "topic") && !tokens.some((token) => token === "*" || token === ">")
    ? text.slice(namespace.length + 1)
    : undefined;

/** The run whose frames the pattern is about; undefined when it may be about several. */
export function literalRun({ namespace, tokens }: Pattern): string | undefined {
  const [, kind, runId] = tokens;
  if (namespace !== "system" || kind !== "run" || runId === undefined) return undefined;
  return runId === "*" || runId === ">" ? undefined : runId;
}

/** Whether frames of runs may match. */
export const wantsRuns = ({ namespace, tokens: [, kind] }: Pattern): boolean =>
  namespace === "system" && (kind === "run" || kind === "*" || kind === ">");

const standsFor = (token: string | undefined, word: string): boolean =>
  token === word || token === "*" || token === ">";

/** Whether frames of steps may match: `system.run.{id}.step.{id}.{verb}`, where ids may have dots. */
function wantsSteps({ namespace, tokens }: Pattern): boolean {
  if (namespace !== "system" || !standsFor(tokens[1], "run")) return false;
  const last = tokens.at(-1) === ">" ? tokens.length - 1 : undefined;
  if (last !== undefined && last <= 3) return true;
  return standsFor(tokens[3], "step") && (last !== undefined || tokens.length >= 6);
}

/** Frames that are made because somebody reads this pattern; of the others there are few, and they are always made. */
export function frameKindsOf(pattern: Pattern): FrameKind[] {
  const { namespace, tokens } = pattern;
  return [
    ...(wantsRuns(pattern) ? (["runs"] as const) : []),
    ...(wantsSteps(pattern) ? (["steps"] as const) : []),
    ...(namespace === "system" && standsFor(tokens[1], "worker") ? (["workers"] as const) : []),
  ];
}

/** What a filter may name; `event` is what a trigger's expression sees. */
const filterVariables = ["data", "metadata", "topic", "event"] as const;

/** A CEL expression on `data`, `metadata`, `topic` and `event`; throws the refusal that names the option. */
export function readFilter(text: string | undefined, field = "filter"): CelProgram | undefined {
  if (!text) return undefined;
  try {
    return compileCel(text, { variables: filterVariables, result: "bool" });
  } catch (error) {
    if (!(error instanceof CelError)) throw error;
    throw refusal("INVALID_ARGUMENT", `${field}: ${error.message}`, { field });
  }
}

/** What of a position's deliveries belongs to the pattern and passes the filter. */
export const wantedOf = <Told extends { passes(filter: CelProgram, budget?: CelBudget): boolean }>(
  { pattern, filter }: { pattern: Pattern; filter: CelProgram | undefined },
  { placed }: { placed: readonly { delivery: Told; tokens: readonly string[] }[] },
  budget?: CelBudget,
): Told[] =>
  placed.flatMap(({ delivery, tokens }) =>
    matchesTokens(pattern.tokens, tokens) && (!filter || delivery.passes(filter, budget)) ? delivery : [],
  );

/** `events`: of names and of entities. `topics`: what developers publish. */
export type LogName = "events" | "topics";

/** Frames have no log; who reads them follows the one of events. */
export const logOf = (namespace: Namespace): LogName => (namespace === "topic" ? "topics" : "events");

export interface SubscriptionIdentity {
  environmentId: string;
  pattern: Pattern;
  includeMetadata: boolean;
  topicOnly: boolean;
  filter: string | undefined;
  group?: string | undefined;
  /** How many alike the connection had before it. */
  ordinal: number;
}

/** The same on every connection and every node: clients go on by it after a reconnect. */
export function subscriptionIdOf(one: SubscriptionIdentity): string {
  const { environmentId, pattern, includeMetadata, topicOnly, filter = "", group, ordinal } = one;
  const facts = [environmentId, pattern.text, includeMetadata, topicOnly, filter, ordinal];
  const identity = JSON.stringify(group === undefined ? facts : [...facts, group]);
  return `sub_${new Bun.CryptoHasher("sha256").update(identity).digest("hex").slice(0, 26)}`;
}

/** What subscribers hear of a run besides its creation and its end, by type of its history: the status it has then. */
export const runMoves: ReadonlyMap<string, string> = new Map([
  ["run.started", "running"],
  ["run.slept", "paused"],
  ["run.waiting", "paused"],
  ["run.invoking", "paused"],
  ["run.paused", "paused"],
  ["run.retrying", "waiting"],
]);

export const announcedHistoryTypes: readonly string[] = [
  "run.created",
  "run.resumed",
  "run.completed",
  "run.failed",
  "run.cancelled",
  ...runMoves.keys(),
];
