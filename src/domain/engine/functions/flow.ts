import { CelError, compileCel } from "../../../kit/cel/cel.ts";
import { invalid } from "../../../kit/fault.ts";
import { wholeWithin, within } from "../../../kit/within.ts";
import {
  concurrencyMax,
  flowItemsMax,
  flowPeriodMsMax,
  flowPeriodMsMin,
  flowStartsMax,
  priorityMax,
} from "./limits.ts";

/** The part of a definition that says when its runs begin. */
export interface FlowOptions {
  concurrency?: { limit: number; key?: string };
  /** Seconds by which its runs go ahead of others in the queue, or CEL over the event that gives them. */
  priority?: number | string;
  /** Runs that begin in a period; `burst` of them may begin at once. */
  throttle?: { limit: number; periodMs: number; burst: number; key?: string };
}

/** What an option made of an event, as emit's answer tells it. */
export interface FlowNotice {
  option: "priority";
  outcome: "failed";
  message: string;
}

/** The same options, as sent. */
export interface FlowInput {
  priority?: unknown;
  throttle?: { limit?: number; periodMs?: number; burst?: number; key?: string };
  concurrency?: { limit?: number; key?: string };
}

/** What the expression of an option may name. */
const flowVariables = ["event", "data"] as const;

const programOf = (expression: string) =>
  compileCel(expression, { variables: flowVariables, result: "any", itemsMax: flowItemsMax });

/** Throws the fault that names the option and the rule. */
export function flowOf(input: FlowInput): Omit<FlowOptions, "concurrency"> {
  const { priority, throttle } = input;
  return {
    ...(priority !== undefined && priority !== null && { priority: readPriority(priority) }),
    ...(throttle && { throttle: readThrottle(throttle, input.concurrency) }),
  };
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

/** Whether claims follow more than the order and the limit of a lane. */
export const isPaced = ({ priority, throttle }: FlowOptions): boolean =>
  priority !== undefined || throttle !== undefined;

/** Runs at a time of one lane; undefined for a function without lanes. */
export const laneLimitOf = (definition: FlowOptions): number | undefined =>
  definition.concurrency?.limit ?? (isPaced(definition) ? concurrencyMax : undefined);

/** Whether claims of its runs go another way after the change. */
export const changesClaims = (before: FlowOptions, after: FlowOptions): boolean =>
  laneLimitOf(before) !== laneLimitOf(after) || isPaced(before) !== isPaced(after);

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
}

/** Throws CelError when the expression does not apply to the event. */
export function evaluate(expression: string, { id, name, value: data }: FlowEvent): unknown {
  return programOf(expression).run({ event: { id, name, data }, data });
}

/** Milliseconds by which a run stands ahead of its creation in the queue. Throws CelError like `evaluate`. */
export function headStartOf(priority: number | string, event: FlowEvent): number {
  const value = typeof priority === "number" ? priority : evaluate(priority, event);
  const seconds = typeof value === "bigint" ? Number(value) : value;
  if (typeof seconds !== "number" || Number.isNaN(seconds)) throw new CelError("does not give a number");
  return Math.round(1000 * Math.max(-priorityMax, Math.min(priorityMax, seconds)));
}
