import { hash } from "node:crypto";
import { type CelBudget, CelError, compileCel } from "../../../kit/cel/cel.ts";
import { valueAt } from "../../../kit/data-path.ts";
import { invalid, wholeWithin, within } from "../../../kit/fault.ts";
import { pacedOfPin } from "../../../kit/limits.ts";
import { isPath } from "../waits/rules.ts";
import {
  batchSizeMax,
  concurrencyMax,
  flowItemsMax,
  flowPeriodMsMax,
  flowPeriodMsMin,
  flowStartsMax,
  idempotencyMsDefault,
  pinGraceMsMax,
  priorityMax,
  singletonKeptMs,
} from "./limits.ts";

/** The part of a definition that says when its runs begin. */
export interface FlowOptions {
  concurrency?: { limit: number; key?: string };
  /** Seconds by which its runs go ahead of others in the queue, or CEL over the event that gives them. */
  priority?: number | string;
  /** Runs that begin in a period; `burst` of them may begin at once. */
  throttle?: { limit: number; periodMs: number; burst: number; key?: string };
  /** Runs that begin in a period; events beyond them start none. */
  rateLimit?: { limit: number; periodMs: number; key?: string };
  /** CEL over the event: of those with one value within the period only the first starts a run. */
  idempotency?: { key: string; periodMs: number };
  /** One run at a time for each value of the key: until it is over, events start none, or replace it. */
  singleton?: { mode: "skip" | "cancel"; key?: string };
  /** A run that has not begun by then is cancelled. */
  startWithinMs?: number;
  /** Events that start one run together: this many, or what came in the time. The key: a path or CEL. */
  batch?: { size: number; timeoutMs: number; key?: string };
  /** Its runs stay with the deployment that claims them first. */
  pin?: true;
  /** How long they wait for a worker of it once the last is gone; the default is `pinGraceMsDefault`. */
  pinGraceMs?: number;
  /** They stay after that; left out, they move to the newest deployment. */
  pinGone?: "hold";
}

/** What an option made of an event, as emit's answer tells it. */
export interface FlowNotice {
  option: "priority" | "attributes" | "batch" | GateOption;
  /** `failed`: its expression does not apply to the event. `skipped`: no run was started. */
  outcome: "failed" | "skipped";
  message: string;
}

export type GateOption = "rateLimit" | "idempotency" | "singleton";

/** What decides, in the flush of an event, whether a run begins. */
export interface NewGate {
  /** Of a function and a value of its key. */
  id: string;
  option: GateOption;
  /** `rate`: so many in a period. `skip` and `cancel`: one at a time, the older or the newer one. */
  kind: "rate" | "skip" | "cancel";
  most: number;
  periodMs: number;
  /** Starts of so many milliseconds are counted together, as of their end. */
  sliceMs: number;
  /** Why a run was skipped. */
  message: string;
}

/** The same options, as sent. */
export interface FlowInput {
  priority?: unknown;
  throttle?: { limit?: number; periodMs?: number; burst?: number; key?: string };
  rateLimit?: { limit?: number; periodMs?: number; key?: string };
  idempotency?: { key?: string; periodMs?: number };
  singleton?: { mode?: string; key?: string };
  startWithinMs?: number;
  batch?: { size?: number; timeoutMs?: number; key?: string };
  pin?: boolean;
  pinGraceMs?: number;
  pinGone?: string;
  debounce?: object;
  concurrency?: { limit?: number; key?: string };
  actorKey?: string;
  cancelOn?: readonly unknown[];
}

/** What the expression of an option may name. */
const flowVariables = ["event", "data"] as const;

const programOf = (expression: string) =>
  compileCel(expression, { variables: flowVariables, result: "any", itemsMax: flowItemsMax });

/** Throws the fault that names the option and the rule. */
export function flowOf(input: FlowInput, mode?: "pull" | "push"): Omit<FlowOptions, "concurrency"> {
  const { priority, throttle, rateLimit, idempotency, singleton, startWithinMs, batch } = input;
  requireOneGate(input);
  return {
    ...(priority !== undefined && priority !== null && { priority: readPriority(priority) }),
    ...(throttle && { throttle: readThrottle(throttle, input.concurrency) }),
    ...(rateLimit && { rateLimit: readRateLimit(rateLimit) }),
    ...(idempotency && { idempotency: readIdempotency(idempotency) }),
    ...(singleton && { singleton: readSingleton(singleton) }),
    ...(startWithinMs && {
      startWithinMs: wholeWithin("startWithinMs", startWithinMs, flowPeriodMsMin, flowPeriodMsMax),
    }),
    ...(batch && { batch: readBatch(batch, input) }),
    ...readPin(input, mode),
  };
}

function readPin(
  { pin = false, pinGraceMs = 0, pinGone = "" }: FlowInput,
  mode: "pull" | "push" | undefined,
): Partial<FlowOptions> {
  // The server calls an endpoint: it cannot choose which deployment answers.
  if (pin && mode === "push") throw invalid("pin", "needs a function in pull mode");
  if (!pin) {
    const [without] = [pinGraceMs && "pinGraceMs", pinGone && "pinGone"].filter(Boolean);
    if (without) throw invalid(without, "needs pin");
    return {};
  }
  if (!["", "move", "hold"].includes(pinGone)) throw invalid("pinGone", "must be move or hold");
  return {
    pin: true,
    ...(pinGraceMs && { pinGraceMs: wholeWithin("pinGraceMs", pinGraceMs, 1, pinGraceMsMax) }),
    ...(pinGone === "hold" && { pinGone }),
  };
}

/** A gate that lets a run begin must be the last word: what it counted could not be taken back. */
function requireOneGate(input: FlowInput): void {
  const deciding = (["debounce", "batch", "rateLimit", "idempotency", "singleton"] as const).filter(
    (name) => input[name],
  );
  if (deciding.length > 1) throw invalid(deciding[1]!, `cannot be combined with ${deciding[0]}`);
}

/** Refuses options that read one event of a run: with `batch` they would read the first of the batch only. */
function readBatch({ size = 0, timeoutMs = 0, key }: NonNullable<FlowInput["batch"]>, input: FlowInput) {
  const { concurrency, throttle, actorKey, cancelOn = [], priority } = input;
  if (cancelOn.length > 0) throw invalid("cancelOn", "cannot be combined with batch");
  if (typeof priority === "string") throw invalid("priority", "must be a number beside batch");
  const sameKeys = {
    "concurrency.key": concurrency?.key,
    "throttle.key": throttle?.key,
    actorKey,
  };
  for (const [field, other] of Object.entries(sameKeys))
    if (other && other !== key) throw invalid(field, "must be the same as batch.key");
  if (key && !isPath(key)) requireExpression("batch.key", key);
  return {
    size: wholeWithin("batch.size", size, 1, batchSizeMax),
    timeoutMs: wholeWithin("batch.timeoutMs", timeoutMs, flowPeriodMsMin, flowPeriodMsMax),
    ...(key && { key }),
  };
}

function readSingleton({ mode = "", key }: NonNullable<FlowInput["singleton"]>) {
  if (mode !== "skip" && mode !== "cancel") throw invalid("singleton.mode", "must be skip or cancel");
  return { mode: mode as "skip" | "cancel", ...(key && { key }) };
}

const readRateLimit = ({ limit = 0, periodMs = 0, key }: NonNullable<FlowInput["rateLimit"]>) => ({
  limit: wholeWithin("rateLimit.limit", limit, 1, flowStartsMax),
  periodMs: wholeWithin("rateLimit.periodMs", periodMs, flowPeriodMsMin, flowPeriodMsMax),
  ...(key && { key }),
});

function readIdempotency({ key = "", periodMs = 0 }: NonNullable<FlowInput["idempotency"]>) {
  requireExpression("idempotency.key", key);
  const kept = wholeWithin(
    "idempotency.periodMs",
    periodMs || idempotencyMsDefault,
    flowPeriodMsMin,
    flowPeriodMsMax,
  );
  return { key, periodMs: kept };
}

function readPriority(priority: unknown): number | string {
  if (typeof priority === "number") return within("priority", priority, -priorityMax, priorityMax);
  if (typeof priority !== "string") throw invalid("priority", "must be a number or a CEL expression");
  requireExpression("priority", priority);
  return priority;
}

function requireExpression(field: string, expression: string): void {
  try {
    programOf(expression);
  } catch (error) {
    if (error instanceof CelError) throw invalid(field, error.message);
    throw error;
  }
}

function readThrottle(
  { limit = 0, periodMs = 0, burst = 0, key }: NonNullable<FlowInput["throttle"]>,
  concurrency: FlowInput["concurrency"],
) {
  // One lane holds both limits: its row is the one lock that makes them exact.
  if (concurrency?.limit && (concurrency.key || "") !== (key || ""))
    throw invalid("throttle.key", "must be the same as concurrency.key");
  const starts = wholeWithin("throttle.limit", limit, 1, flowStartsMax);
  return {
    limit: starts,
    periodMs: wholeWithin("throttle.periodMs", periodMs, flowPeriodMsMin, flowPeriodMsMax),
    burst: wholeWithin("throttle.burst", burst || 1, 1, starts),
    ...(key && { key }),
  };
}

/** `functions.paced`: whether claims follow more than the order and the limit of a lane. */
export const pacedOf = ({ priority, throttle, pin }: FlowOptions): number | null => {
  if (pin) return pacedOfPin;
  return priority !== undefined || throttle !== undefined ? 1 : null;
};

/**
 * Runs at a time of one lane; undefined for a function without lanes. Pinned runs have lanes, so that claims
 * of others need not know of pins.
 */
export const laneLimitOf = (definition: FlowOptions): number | undefined =>
  definition.concurrency?.limit ?? (pacedOf(definition) === null ? undefined : concurrencyMax);

/** Whether claims of its runs go another way after the change. */
export const changesClaims = (before: FlowOptions, after: FlowOptions): boolean =>
  laneLimitOf(before) !== laneLimitOf(after) || pacedOf(before) !== pacedOf(after);

/** The path to what tells a function's lanes apart; undefined for one lane. */
export const laneKeyOf = ({ concurrency, throttle }: FlowOptions): string | undefined =>
  concurrency ? concurrency.key : throttle?.key;

/** Microseconds between two starts, rounded up: never more than the limit begin in a period. */
export const throttleGapUs = ({ limit, periodMs }: { limit: number; periodMs: number }): number =>
  Math.ceil((periodMs * 1000) / limit);

/** The event, as expressions of options see it. */
export interface FlowEvent {
  id: string;
  name: string;
  value: unknown;
  /** What the expressions of options gave, where they were evaluated beforehand. */
  values?: ReadonlyMap<string, FlowValue> | undefined;
}

/** What an expression gave, or why it does not apply to the event. */
export type FlowValue = { value: unknown } | { error: string };

const noExpressions: readonly string[] = [];

/** The expressions of a function's options. */
export function flowExpressions({ priority, idempotency, batch }: FlowOptions): readonly string[] {
  const batchKey = batch?.key !== undefined && !isPath(batch.key) ? batch.key : undefined;
  if (typeof priority !== "string" && idempotency === undefined && batchKey === undefined)
    return noExpressions;
  return [
    ...(typeof priority === "string" ? [priority] : []),
    ...(idempotency ? [idempotency.key] : []),
    ...(batchKey === undefined ? [] : [batchKey]),
  ];
}

export function flowValue(
  expression: string,
  { id, name, value: data, values }: FlowEvent,
  budget?: CelBudget,
): FlowValue {
  const known = values?.get(expression);
  if (known) return known;
  try {
    return { value: programOf(expression).run({ event: { id, name, data }, data }, budget) };
  } catch (error) {
    if (error instanceof CelError) return { error: error.message };
    throw error;
  }
}

/** Milliseconds by which a run stands ahead of its creation in the queue, or why there are none. */
export function headStartOf(
  priority: number | string,
  event: FlowEvent,
): { headStartMs: number } | { error: string } {
  const found = typeof priority === "number" ? { value: priority } : flowValue(priority, event);
  if ("error" in found) return found;
  const seconds = typeof found.value === "bigint" ? Number(found.value) : found.value;
  if (typeof seconds !== "number" || Number.isNaN(seconds)) return { error: "does not give a number" };
  return { headStartMs: Math.round(1000 * Math.max(-priorityMax, Math.min(priorityMax, seconds))) };
}

const gateId = (parts: readonly unknown[]): string =>
  hash("sha256", JSON.stringify(parts), "hex").slice(0, 40);

/** Starts up to this are counted by the millisecond; more, by the hundredth of their period. */
const exactStartsMax = 100;

/** A key of another kind has no text of its own. */
function keyValue(found: FlowValue): { value: string | number | boolean } | { error: string } {
  if ("error" in found) return found;
  const value = typeof found.value === "bigint" ? Number(found.value) : found.value;
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean"
    ? { value }
    : { error: "does not give a text, a number or a boolean" };
}

/**
 * What decides whether the event starts a run, or why nothing can; undefined for a function that starts one
 * for each.
 */
export function gateOf(
  environmentId: string,
  { id, rateLimit, idempotency, singleton }: FlowOptions & { id: string },
  event: FlowEvent,
): NewGate | { error: string } | undefined {
  if (!rateLimit && !idempotency && !singleton) return undefined;
  const named = (option: GateOption, value: unknown) => ({
    id: gateId([environmentId, id, option, value]),
    option,
  });
  const at = (path: string | undefined) => (path === undefined ? null : valueAt(event.value, path));
  if (rateLimit) {
    const { limit, periodMs, key } = rateLimit;
    return {
      ...named("rateLimit", at(key)),
      ...{ kind: "rate", most: limit, periodMs },
      sliceMs: limit <= exactStartsMax ? 1 : Math.ceil(periodMs / exactStartsMax),
      message: `at most ${limit} begin in ${periodMs} ms`,
    };
  }
  if (idempotency) {
    const { key, periodMs } = idempotency;
    const found = keyValue(flowValue(key, event));
    if ("error" in found) return found;
    return {
      ...named("idempotency", found.value),
      ...{ kind: "rate", most: 1, periodMs, sliceMs: 1 },
      message: `the key started a run within ${periodMs} ms`,
    };
  }
  const { mode, key } = singleton!;
  return {
    ...named("singleton", at(key)),
    ...{ kind: mode, most: 1, periodMs: singletonKeptMs, sliceMs: 1 },
    message: mode === "skip" ? "a run is not over" : "a later event takes its place",
  };
}

/**
 * The batch that the event waits in. Events that the key does not apply to wait together with those of no
 * key, and their answers say so.
 */
export function batchOf(
  environmentId: string,
  functionId: string,
  key: string | undefined,
  event: FlowEvent,
): { id: string; notice?: FlowNotice } {
  const found = key === undefined ? { value: null } : batchValue(key, event);
  const id = gateId([environmentId, functionId, "batch", "error" in found ? null : found.value]);
  if (!("error" in found)) return { id };
  return { id, notice: { option: "batch", outcome: "failed", message: found.error } };
}

function batchValue(key: string, event: FlowEvent): FlowValue {
  if (!isPath(key)) return keyValue(flowValue(key, event));
  const value = valueAt(event.value, key);
  return value === undefined ? { error: "the key leads to nothing" } : { value };
}
