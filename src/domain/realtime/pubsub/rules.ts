import { allThingsOf, namesOfEvent, thingsOf } from "../../../gate/things.ts";
import { type CelBudget, CelError, type CelProgram, compileCel } from "../../../kit/cel/cel.ts";
import { Fault, type FaultDetail } from "../../../kit/fault.ts";
import type { Thing } from "../../../kit/operation.ts";
import type { LogName } from "../../../kit/sequence.ts";
import { isOfChanges } from "./changed-lists.ts";
import type { FrameKind } from "./frames.ts";
import { patternBytesMax } from "./limits.ts";

/**
 * Events by name and by entity, developer topics, and frames about the product's own objects. Those of config
 * documents, of changed lists and of the platform are apart: `system.>` alone must not show them.
 */
export type Namespace = "events" | "entity" | "topic" | "system" | ApartNamespace;
type ApartNamespace = "config" | "changed" | "platform";

/** A parsed pattern. */
export interface Pattern {
  /** In full: `events:order.*`. */
  readonly text: string;
  readonly namespace: Namespace;
  /** The namespace, then the segments; `*` stands for one, a last `>` for one or more. */
  readonly tokens: readonly string[];
}

/** Codes of refusals on WebSockets. Clients compare them, so they never change. */
export const socketCodes = [
  "INVALID_PATTERN",
  "INVALID_ARGUMENT",
  "LIMIT_EXCEEDED",
  "INTERNAL_ERROR",
  "PERMISSION_DENIED",
] as const;
export type SocketCode = (typeof socketCodes)[number];
/** What is wrong with a request, from any sender. */
export type RefusalCode = Exclude<SocketCode, "PERMISSION_DENIED">;

const apart: readonly ApartNamespace[] = ["config", "changed", "platform"];
const prefixed: readonly Namespace[] = ["events", "entity", "topic"];

/** A limit is refused as `invalid_argument` too: the same request would be refused again later. */
export const refusal = (code: RefusalCode, message: string, detail: FaultDetail = {}): Fault =>
  new Fault("invalid_argument", message, { ...detail, code });

const badPattern = (rule: string) => refusal("INVALID_PATTERN", `pattern: ${rule}`, { field: "pattern" });

const isApart = (namespace: Namespace): boolean => apart.includes(namespace as ApartNamespace);

/** Splits the namespace from the segments. */
function divided(text: string): { namespace: Namespace; rest: string } | undefined {
  if (text.startsWith("system.")) {
    const rest = text.slice("system.".length);
    const namespace = apart.find((one) => rest.startsWith(`${one}.`));
    return namespace ? { namespace, rest: rest.slice(namespace.length + 1) } : { namespace: "system", rest };
  }
  const colon = text.indexOf(":");
  if (colon < 0) return { namespace: "events", rest: text };
  const namespace = prefixed.find((one) => one === text.slice(0, colon));
  return namespace && { namespace, rest: text.slice(colon + 1) };
}

function publicForm(namespace: Namespace, rest: string): string {
  if (isApart(namespace)) return `system.${namespace}.${rest}`;
  return namespace === "system" ? `system.${rest}` : `${namespace}:${rest}`;
}

/** Frames are in no log. */
export const isOfFrames = ({ namespace }: Pick<Pattern, "namespace">): boolean =>
  namespace === "system" || isApart(namespace);

/** Throws INVALID_PATTERN. A pattern without a prefix is in `events:`, unless it begins with `system.`. */
export function parsePattern(text: string): Pattern {
  if (text === "") throw badPattern("must not be empty");
  if (Buffer.byteLength(text) > patternBytesMax) throw badPattern(`must be at most ${patternBytesMax} bytes`);
  if (!text.isWellFormed() || /[\s\p{Cc}]/u.test(text))
    throw badPattern("must not contain whitespace or control characters");
  const parts = divided(text);
  if (!parts)
    throw badPattern(
      `unknown namespace "${text.slice(0, text.indexOf(":"))}" (one of ${prefixed.join(", ")})`,
    );
  const segments = parts.rest.split(".");
  for (const [at, segment] of segments.entries()) {
    if (segment === "") throw badPattern("must not contain an empty segment");
    if (segment === ">" && at < segments.length - 1) throw badPattern("> must be the last segment");
    if (segment.length > 1 && /[*>]/.test(segment)) throw badPattern("* and > must be whole segments");
  }
  return {
    text: publicForm(parts.namespace, parts.rest),
    namespace: parts.namespace,
    tokens: [parts.namespace, ...segments],
  };
}

/**
 * The names under which deny policies may refuse the pattern: in full, and for events also without the
 * prefix.
 */
export const namesOf = ({ namespace, text }: Pattern): string[] =>
  namespace === "events" ? namesOfEvent(text.slice("events:".length)) : [text];

/** Undefined for a text that is no pattern: its operation refuses it in the same words, policies or not. */
export function parsedPattern(text: string): Pattern | undefined {
  try {
    return parsePattern(text);
  } catch (error) {
    if (error instanceof Fault) return undefined;
    throw error;
  }
}

/** The same of a text, which has none where it is no pattern. */
export function namesOfText(text: string): string[] {
  const pattern = parsedPattern(text);
  return pattern ? namesOf(pattern) : [];
}

/** The one run or the one stream that the pattern names. */
export function thingNamedBy(pattern: Pattern): Thing[] {
  const runId = literalRun(pattern);
  if (runId !== undefined) return thingsOf("run", runId);
  const { namespace, tokens } = pattern;
  // With more segments the id may be longer: each delivery is asked about then.
  const isOfOne = namespace === "entity" && tokens.length === 4 && tokens[2] !== "*";
  return isOfOne ? thingsOf("stream", tokens[2]!) : [];
}

/** Streams whose events the pattern may match: ids and names may have dots. */
function streamsOf({ namespace, tokens }: Pattern): Thing[] {
  if (namespace === "topic") return [];
  const [, , first = ">", ...rest] = namespace === "entity" ? tokens : [];
  if (first === "*" || first === ">") return allThingsOf("stream");
  return rest.length === 1 && rest[0] !== ">"
    ? thingsOf("stream", first)
    : allThingsOf("stream", first, `${first}.*`);
}

/**
 * Everything that the pattern matches. What one member of a group gets no other member gets, so each member
 * must be allowed to read all of it.
 */
export const allOf = (pattern: Pattern): Thing[] => [
  ...allThingsOf("event", ...namesOf(pattern).map((name) => name.replace(/>$/, "*"))),
  ...streamsOf(pattern),
];

/** The config documents that the pattern's frames are of, which are not shown to who may not read them. */
export function configOf({ namespace, tokens }: Pattern): Thing[] {
  if (namespace !== "config") return [];
  const [, ...segments] = tokens;
  const name = segments.slice(0, -1).join(".");
  const id = segments.at(-1) === ">" ? `${name}*` : name || "*";
  return [{ type: "config", id, isPattern: true, action: "secrets:read" }];
}

/** Splits a topic as patterns are split. */
export function tokensOf(topic: string): string[] {
  const parts = divided(topic);
  return parts ? [parts.namespace, ...parts.rest.split(".")] : [];
}

/** Whether the pattern matches the topic. */
export function matchesTokens(pattern: readonly string[], tokens: readonly string[]): boolean {
  for (const [at, wanted] of pattern.entries()) {
    if (wanted === ">" && at === pattern.length - 1) return tokens.length > at;
    if (at >= tokens.length || (wanted !== "*" && wanted !== tokens[at])) return false;
  }
  return pattern.length === tokens.length;
}

/** The one event or developer topic that the pattern matches; undefined when it may match several. */
export const literalName = ({ namespace, text, tokens }: Pattern): string | undefined =>
  (namespace === "events" || namespace === "topic") && !tokens.some((token) => token === "*" || token === ">")
    ? text.slice(namespace.length + 1)
    : undefined;

/** The one run whose frames the pattern matches; undefined when it may match several. */
export function literalRun({ namespace, tokens }: Pattern): string | undefined {
  const [, kind, runId] = tokens;
  if (namespace !== "system" || kind !== "run" || runId === undefined) return undefined;
  return runId === "*" || runId === ">" ? undefined : runId;
}

/** Whether the pattern may match frames of runs. */
export const wantsRuns = ({ namespace, tokens: [, kind] }: Pattern): boolean =>
  namespace === "system" && (kind === "run" || kind === "*" || kind === ">");

const standsFor = (token: string | undefined, word: string): boolean =>
  token === word || token === "*" || token === ">";

/**
 * Whether the pattern may match frames of steps: `system.run.{id}.step.{id}.{verb}`, where step ids may have
 * dots.
 */
function wantsSteps({ namespace, tokens }: Pattern): boolean {
  if (namespace !== "system" || !standsFor(tokens[1], "run")) return false;
  const last = tokens.at(-1) === ">" ? tokens.length - 1 : undefined;
  if (last !== undefined && last <= 3) return true;
  return standsFor(tokens[3], "step") && (last !== undefined || tokens.length >= 6);
}

const projectionKinds = ["projection", "projection_health"];
const webhookKinds = ["webhook_source", "webhook_endpoint"];

/**
 * Kinds of frames that must be made while this pattern has a reader. Frames of no kind are few and always
 * made.
 */
export function frameKindsOf(pattern: Pattern): FrameKind[] {
  const { namespace, tokens } = pattern;
  return [
    ...(wantsRuns(pattern) ? (["runs"] as const) : []),
    ...(wantsSteps(pattern) ? (["steps"] as const) : []),
    ...(namespace === "system" && standsFor(tokens[1], "worker") ? (["workers"] as const) : []),
    ...(namespace === "system" && standsFor(tokens[1], "stream") ? (["streams"] as const) : []),
    ...(namespace === "system" && projectionKinds.some((kind) => standsFor(tokens[1], kind))
      ? (["projections"] as const)
      : []),
    ...(namespace === "system" && standsFor(tokens[1], "group") ? (["groups"] as const) : []),
    ...(namespace === "system" && webhookKinds.some((kind) => standsFor(tokens[1], kind))
      ? (["webhooks"] as const)
      : []),
    ...(isOfChanges(pattern) ? (["changes"] as const) : []),
  ];
}

/** The variables of a filter; `event` is the one that a trigger's expression has. */
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

/** The deliveries of an entry that match the pattern and pass the filter. */
export const wantedOf = <One extends { passes(filter: CelProgram, budget?: CelBudget): boolean }>(
  { pattern, filter }: { pattern: Pattern; filter: CelProgram | undefined },
  { placed }: { placed: readonly { delivery: One; tokens: readonly string[] }[] },
  budget?: CelBudget,
): One[] =>
  placed.flatMap(({ delivery, tokens }) =>
    matchesTokens(pattern.tokens, tokens) && (!filter || delivery.passes(filter, budget)) ? delivery : [],
  );

/** Frames are in no log; their readers share the hub of the events log. */
export const logOf = (namespace: Namespace): LogName => (namespace === "topic" ? "topics" : "events");

export interface SubscriptionIdentity {
  environmentId: string;
  pattern: Pattern;
  includeMetadata: boolean;
  topicOnly: boolean;
  withPositions: boolean;
  filter: string | undefined;
  group?: string | undefined;
  /** How many subscriptions with the same pattern and options the connection had before. */
  ordinal: number;
}

/**
 * The same on every connection and node, so that clients find their subscriptions again after a reconnect.
 */
export function subscriptionIdOf(one: SubscriptionIdentity): string {
  const { environmentId, pattern, includeMetadata, topicOnly, filter = "", ordinal } = one;
  const facts = [environmentId, pattern.text, includeMetadata, topicOnly, filter, ordinal];
  const identity = JSON.stringify(
    [...facts, one.group, one.withPositions || undefined].filter((fact) => fact !== undefined),
  );
  return `sub_${new Bun.CryptoHasher("sha256").update(identity).digest("hex").slice(0, 26)}`;
}

interface RunMove {
  status: string;
  pauseReason?: string;
}

const sleeps: RunMove = { status: "paused", pauseReason: "sleep" };
const waits: RunMove = { status: "paused", pauseReason: "wait_event" };
const invokes: RunMove = { status: "paused", pauseReason: "invoke" };
const retries: RunMove = { status: "waiting" };

/** What an `updated` frame of a run says, by the type of the row in the run's history. */
export const runMoves: ReadonlyMap<string, RunMove> = new Map([
  ["run.started", { status: "running" }],
  ["run.slept", sleeps],
  ["run.waiting", waits],
  ["run.invoking", invokes],
  ["run.paused", { status: "paused", pauseReason: "injection" }],
  ["run.retrying", retries],
  ["run.stranded", { status: "paused", pauseReason: "deployment_gone" }],
  ["run.requeued", { status: "waiting_for_capacity" }],
]);

/** The same by the state that a row names: of a run that waits for several things. */
export const waitStates: ReadonlyMap<string, RunMove> = new Map([
  ["sleeping", sleeps],
  ["waiting", waits],
  ["invoking", invokes],
  ["retrying", retries],
]);

export const announcedHistoryTypes: readonly string[] = [
  "run.created",
  "run.resumed",
  "run.completed",
  "run.failed",
  "run.cancelled",
  ...runMoves.keys(),
];

/** Characters of the payloads that these hold in memory. */
export function charsOf(entries: readonly { placed: readonly { delivery: { data: string } }[] }[]): number {
  let chars = 0;
  for (const { placed } of entries) chars += placed[0]?.delivery.data.length ?? 0;
  return chars;
}
