import { createHash } from "node:crypto";
import type { Instant } from "../../../kit/clock.ts";
import { requireStorable } from "../../../kit/event-names.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { functionIdBytesMax } from "../../../kit/limits.ts";
import { requireCallableUrl } from "../../../kit/outward-call.ts";
import * as limits from "./limits.ts";

/** What a condition needs, and how its alerts end. */
interface KnownCondition {
  /** Numbers that a rule must give (`true`), or may, with what they are when left out. */
  bounds: Partial<Record<keyof RuleBounds, true | number>>;
  function: "needed" | "taken" | "none";
  /** The kind of things that its alerts name, where they are not functions. */
  names?: "projection" | "webhook";
  /** It happens at once, and is over when it has not happened for `resolve_after_ms`. */
  happens?: true;
}

export interface RuleBounds {
  share?: number;
  window_minutes?: number;
  minimum?: number;
  waiting_ms?: number;
}

export const conditions = {
  run_failed: { bounds: {}, function: "taken", happens: true },
  failure_share: { bounds: { share: true, window_minutes: 15, minimum: 1 }, function: "none" },
  oldest_waiting: { bounds: { waiting_ms: true }, function: "taken" },
  no_worker: { bounds: {}, function: "needed" },
  missed_schedule: { bounds: {}, function: "taken", happens: true },
  dead_letter: { bounds: {}, function: "none" },
  breaker_open: { bounds: {}, function: "taken" },
  projection_error: { bounds: {}, function: "none", names: "projection" },
  endpoint_stopped: { bounds: {}, function: "none", names: "webhook" },
  quota_near: { bounds: { share: true }, function: "none" },
  integrity: { bounds: {}, function: "none" },
} as const satisfies Record<string, KnownCondition>;

export type ConditionName = keyof typeof conditions;
const conditionNames = Object.keys(conditions) as ConditionName[];
export const conditionOf = (name: ConditionName): KnownCondition => conditions[name];

export interface RuleTarget {
  type: "webhook" | "slack" | "email";
  url?: string;
  secret?: string;
  to?: readonly string[];
}

/** A rule as its owner gives it. */
export interface RuleInput extends RuleBounds {
  name: string;
  condition: string;
  function_id?: string;
  targets: readonly { type: string; url?: string; secret?: string; to?: readonly string[] }[];
  repeat_after_ms?: number;
  resolve_after_ms?: number;
}

export interface CheckedRule {
  name: string;
  condition: ConditionName;
  functionId: string | null;
  bounds: RuleBounds;
  targets: RuleTarget[];
  repeatAfterMs: number;
  resolveAfterMs: number;
}

const within = (field: string, value: number, least: number, most: number): number => {
  if (!Number.isFinite(value) || value < least || value > most)
    throw invalid(field, `must be from ${least} to ${most}`);
  return value;
};

const spans: Record<keyof RuleBounds, (value: number) => number> = {
  share: (value) => within("share", value, 0, 1),
  window_minutes: (value) => within("window_minutes", value, 1, limits.alertWindowMinutesMax),
  minimum: (value) => within("minimum", value, 1, limits.alertCountMax),
  waiting_ms: (value) => within("waiting_ms", value, 1, limits.alertMsMax),
};

function boundsOf(input: RuleInput, { bounds }: KnownCondition): RuleBounds {
  const found: RuleBounds = {};
  for (const name of Object.keys(spans) as (keyof RuleBounds)[]) {
    const wanted = bounds[name];
    const given = input[name];
    if (wanted === undefined && given !== undefined) throw invalid(name, `is not for ${input.condition}`);
    if (wanted === true && given === undefined) throw invalid(name, `is needed for ${input.condition}`);
    if (wanted !== undefined) found[name] = spans[name](given ?? (wanted as number));
  }
  return found;
}

function functionOf({ condition, function_id: id = "" }: RuleInput, known: KnownCondition): string | null {
  if (id === "") {
    if (known.function === "needed") throw invalid("function_id", `is needed for ${condition}`);
    return null;
  }
  if (known.function === "none") throw invalid("function_id", `is not for ${condition}`);
  requireStorable("function_id", id);
  if (Buffer.byteLength(id) > functionIdBytesMax)
    throw invalid("function_id", `must be at most ${functionIdBytesMax} bytes`);
  return id;
}

function urlOf(field: string, url = ""): string {
  requireStorable(field, url);
  if (Buffer.byteLength(url) > limits.alertUrlBytesMax)
    throw invalid(field, `must be at most ${limits.alertUrlBytesMax} bytes`);
  requireCallableUrl(field, url);
  return url;
}

/** No address may carry a second one, or a header. */
const address = /^[^\s@<>(),;:"\\]+@[A-Za-z0-9.-]+\.[A-Za-z0-9-]+$/;

function addressesOf(field: string, to: readonly string[] = []): readonly string[] {
  if (to.length < 1 || to.length > limits.alertAddressesMax)
    throw invalid(field, `must be 1 to ${limits.alertAddressesMax} addresses`);
  for (const [at, one] of to.entries())
    if (one.length > limits.alertAddressCharsMax || !address.test(one) || !one.isWellFormed())
      throw invalid(`${field}[${at}]`, "must be an e-mail address");
  return to;
}

/** `left`: the rule's targets so far; a URL as it is shown stands for the first that it stood for, once. */
function targetOf(
  { type, url, secret = "", to = [] }: RuleInput["targets"][number],
  field: string,
  left: RuleTarget[],
): RuleTarget {
  const refuse = (name: string, given: boolean) => {
    if (given) throw invalid(`${field}.${name}`, `is not for ${type}`);
  };
  const wholeUrl = (): string => {
    if (!url?.includes(hiddenPart)) return urlOf(`${field}.url`, url);
    const at = left.findIndex((one) => one.type === type && shownUrl(one) === url);
    if (at < 0) throw invalid(`${field}.url`, "is a URL as it is shown, of none that the rule has");
    return left.splice(at, 1)[0]!.url!;
  };
  switch (type) {
    case "webhook":
      refuse("to", to.length > 0);
      requireStorable(`${field}.secret`, secret);
      if (secret.length > 200) throw invalid(`${field}.secret`, "must be the name of a secret");
      return { type, url: wholeUrl(), ...(secret !== "" && { secret }) };
    case "slack":
      refuse("to", to.length > 0);
      refuse("secret", secret !== "");
      return { type, url: wholeUrl() };
    case "email":
      refuse("url", url !== undefined && url !== "");
      refuse("secret", secret !== "");
      return { type, to: addressesOf(`${field}.to`, to) };
    default:
      throw invalid(`${field}.type`, "must be one of webhook, slack, email");
  }
}

export function checkedRule(input: RuleInput, before: readonly RuleTarget[]): CheckedRule {
  requireRuleName(input.name);
  const condition = conditionNames.find((name) => name === input.condition);
  if (!condition) throw invalid("condition", `must be one of ${conditionNames.join(", ")}`);
  const known = conditionOf(condition);
  const { targets, repeat_after_ms: repeat, resolve_after_ms: resolve } = input;
  if (targets.length < 1 || targets.length > limits.alertTargetsMax)
    throw invalid("targets", `must be 1 to ${limits.alertTargetsMax}`);
  const left = [...before];
  return {
    ...{ name: input.name, condition, functionId: functionOf(input, known) },
    bounds: boundsOf(input, known),
    targets: distinct(targets.map((one, at) => targetOf(one, `targets[${at}]`, left))),
    repeatAfterMs:
      repeat === 0
        ? 0
        : within(
            "repeat_after_ms",
            repeat ?? limits.repeatAfterMsDefault,
            limits.alertMsMin,
            limits.alertMsMax,
          ),
    resolveAfterMs: within(
      "resolve_after_ms",
      resolve ?? limits.resolveAfterMsDefault,
      limits.alertMsMin,
      limits.alertMsMax,
    ),
  };
}

const distinct = (targets: readonly RuleTarget[]): RuleTarget[] => [
  ...new Map(targets.map((target) => [hashOf(target), target])).values(),
];

export function requireRuleName(name: string): void {
  if (!/^[A-Za-z0-9_][A-Za-z0-9_.-]*$/.test(name) || name.length > limits.alertNameCharsMax)
    throw invalid(
      "name",
      `must be 1 to ${limits.alertNameCharsMax} characters of A-Z, a-z, 0-9, _, . and -, and not begin with . or -`,
    );
}

/** Stands where a URL is not shown. */
const hiddenPart = "…";

/** Who has Slack's URL may write there: its path is its secret. */
function maskedUrl(url: string): string {
  if (!URL.canParse(url)) return "";
  const { origin } = new URL(url);
  return `${origin}/${hiddenPart}${url.length > origin.length + 24 ? url.slice(-4) : ""}`;
}

/** As everybody may see it. Queries of webhooks often are secrets, too. */
const shownUrl = ({ type, url = "" }: RuleTarget): string =>
  type === "slack" ? maskedUrl(url) : url.replace(/\?.*/s, `?${hiddenPart}`);

export const shownTarget = (target: RuleTarget): RuleTarget => ({
  type: target.type,
  ...(target.type !== "email" && { url: shownUrl(target) }),
  ...(target.secret !== undefined && { secret: target.secret }),
  ...(target.to && { to: target.to }),
});

/** In one line: for the history, and for what a test came to. */
export const lineOf = (target: RuleTarget): string => {
  const { type, url = "", to = [] } = target;
  if (type === "email") return `${type} ${to.join(", ")}`;
  return `${type} ${type === "slack" ? shownUrl(target) : url.replace(/[?#].*$/, "")}`;
};

/** Tells whether two targets are the same. The URL of a target cannot be read from its hash. */
export const hashOf = (target: RuleTarget): string =>
  createHash("sha256").update(JSON.stringify(target)).digest("hex").slice(0, 40);

/** One thing that a look found. */
export interface Sighting {
  /** Of one rule each has an alert of its own; empty for the environment. */
  subject: string;
  /** How many there are; of what happens, how often since the last look. */
  count: number;
  /** What is told; of what happens, with how often since the alert opened. */
  words: (count: number) => string;
}

export interface LookFindings {
  found: Sighting[];
  /** What was counted, for the next look. */
  seen?: Record<string, number>;
  /** There is more than was looked at: nothing is taken to be over. */
  isCut?: boolean;
}

/** How often it happened since a count; one that is lower than before began anew. */
export const since = (before: number | undefined, now: number): number =>
  before === undefined || now < before ? now : now - before;

export type MessageKind = "opened" | "repeated" | "resolved" | "test";

export interface AlertFacts {
  id: string;
  rule: string;
  condition: string;
  subject: string;
  detail: string;
  count: number;
  opened_at: Instant;
  resolved_at: Instant | null;
}

const headOf: Record<MessageKind, string> = {
  opened: "Alert",
  repeated: "Alert goes on",
  resolved: "Resolved",
  test: "Test",
};

/** What people read; Slack would take < and & for its own marks. */
export function wordsOf(kind: MessageKind, { rule, detail }: AlertFacts, environment: string) {
  const subject = `[svc] ${headOf[kind]}: ${rule} in ${environment}`;
  return { subject, text: `${subject}: ${detail}` };
}

export const slackText = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

export const missingRule = (name: string): Fault =>
  new Fault("not_found", `alert rule ${name.slice(0, 255)} not found`);
export const missingAlert = (id: string): Fault =>
  new Fault("not_found", `alert ${id.slice(0, 255)} not found`);
