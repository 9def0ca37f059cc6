import { type Static, Type } from "@sinclair/typebox";
import { parseRfc3339 } from "../../../kit/clock.ts";
import { described, maybe, shape } from "../../../kit/described.ts";
import { requireEventName } from "../../../kit/event-names.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { functionIdBytesMax, sleepMsMax } from "../../../kit/limits.ts";
import { requireStepId, stepIdBytesMax } from "../../../kit/step-id.ts";
import type { AwaitedStep, ReportOutcome } from "../runs/execution/execution-change.ts";
import { requireSignalName, signalPlace } from "../waits/rules.ts";
import {
  ConditionsShape,
  literalOf,
  matchValueFields,
  orNull,
  readCondition,
  readMatchField,
} from "./awaited.ts";
import { invokeMsDefault, invokeMsMax, waitMsDefault, waitMsMax } from "./limits.ts";
import { jsonText, plainText } from "./texts.ts";

const lenient = { additionalProperties: true };
/** Where a handler stopped, and what its run waits for. */
export const YieldShape = Type.Object(
  {
    step_id: Type.String({ minLength: 1, maxLength: stepIdBytesMax }),
    step_name: Type.Optional(Type.String({ maxLength: 1024 })),
    type: shape.text(
      "What is waited for: `sleep`, `retry_step`, `wait_for_event`, `wait_for_events`, `wait_for_signal`, `invoke_function` or `invoke_function_async`.",
    ),
    until: maybe.text("When a `sleep` ends, RFC 3339: at most 366 days ahead."),
    duration_ms: maybe.number(
      "How long a `sleep` is, in place of `until`, by the server's clock; until a `retry_step` is tried again.",
    ),
    event_filter: described(
      orNull(
        Type.Object(
          {
            event: shape.text("Name of the event."),
            match: described(orNull(Type.String()), "A path or a CEL expression on the event."),
            on_timeout: described(
              orNull(Type.Union([Type.Literal("null"), Type.Literal("throw")])),
              "Hands the wait that is over to the handler, in place of failing the run.",
            ),
            timeout: described(
              orNull(Type.Union([Type.String(), Type.Number()])),
              "Milliseconds, or a text such as `7d`: 7 days when left out, at most 366.",
            ),
            ...matchValueFields,
            payload: Type.Optional(Type.Unknown({ description: "Kept as the input of the waiting step." })),
          },
          lenient,
        ),
      ),
      "The event of a `wait_for_event`.",
    ),
    mode: Type.Optional(
      Type.Union([Type.Literal("any"), Type.Literal("all")], {
        description:
          "Which conditions end a `wait_for_events`: the first one (`any`, when left out), or all together.",
      }),
    ),
    conditions: Type.Optional(ConditionsShape),
    signal: maybe.text("Name of the signal of a `wait_for_signal`."),
    timeout: described(
      orNull(Type.Union([Type.String(), Type.Number()])),
      "Of a `wait_for_events` or `wait_for_signal`: milliseconds, or a text such as `7d`: 7 days when left out, at most 366.",
    ),
    on_timeout: Type.Optional(
      Type.Union([Type.Literal("null"), Type.Literal("throw")], {
        description: "What the handler makes of a `wait_for_events` or `wait_for_signal` that is over.",
      }),
    ),
    function_id: maybe.text("The function of an `invoke_function`."),
    input: Type.Optional(Type.Unknown({ description: "What the function is given: any JSON." })),
    any_function: maybe.flag("Invokes functions with event triggers, too, which are refused otherwise."),
    invoke_timeout_ms: described(
      orNull(Type.Number()),
      "Milliseconds to wait for its run: 30,000 when left out.",
    ),
  },
  lenient,
);
type Yield = Static<typeof YieldShape>;

/** A wait among all that a handler waits for. */
export const AwaitedShape = Type.Object(
  {
    ...YieldShape.properties,
    type: maybe.text("As in `yield`; left out of a wait that the server knows from an earlier report."),
    after: Type.Optional(
      Type.String({
        maxLength: stepIdBytesMax,
        description:
          "Id of the step whose result the branch got last: a wait looks at what was logged after that. Left out: after what the run has seen.",
      }),
    ),
  },
  lenient,
);
type SentWait = Static<typeof AwaitedShape>;

/** An invoke that does not wait for its child still waits until the child has started. */
const asyncStartMsMax = 24 * 60 * 60 * 1000;
const unitsMs: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Throws the fault that names the field of the first that is malformed. */
export function readYields(sent: readonly SentWait[], now: number): AwaitedStep[] {
  const byId = new Map<string, AwaitedStep>();
  for (const [at, one] of sent.entries()) {
    const field = `yields[${at}]`;
    const stepId = requireStepId(`${field}.step_id`, plainText(`${field}.step_id`, one.step_id));
    try {
      const { type, after: named, ...rest } = one;
      const after = named === undefined ? null : plainText(`${field}.after`, named);
      const asked = type === undefined ? null : (readYield({ ...rest, type }, now) as AwaitedStep["asked"]);
      byId.set(stepId, { stepId, after, asked });
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      const named = (text: string) => text.replace(/^yield\b/, field);
      throw invalid(named(error.field ?? field), error.message.replace(/^[^ ]*: /, ""));
    }
  }
  return [...byId.values()];
}

/** Throws the fault that names the field of the yield. */
export function readYield(sent: Yield | null | undefined, now: number): ReportOutcome {
  if (!sent) throw invalid("yield", "required with status yielded");
  const stepId = requireStepId("yield.step_id", plainText("yield.step_id", sent.step_id));
  const name = plainText("yield.step_name", sent.step_name || nameOfStepId(stepId));
  const step = { stepId, name, at: now };
  switch (sent.type) {
    case "sleep":
      return { ...step, kind: "sleep", until: readUntil(sent, now) };
    case "retry_step":
      if (sent.duration_ms === undefined) throw invalid("yield.duration_ms", "required for retry_step");
      return { ...step, kind: "retry_step", until: readUntil(sent, now) };
    case "wait_for_event":
      return { ...step, kind: "wait", ...readFilter(sent.event_filter, now) };
    case "wait_for_events":
      return { ...step, kind: "wait_many", ...readConditions(sent, now) };
    case "wait_for_signal":
      return { ...step, kind: "wait_many", ...readSignal(sent, now) };
    case "invoke_function":
    case "invoke_function_async":
      return { ...step, kind: "invoke", ...readInvoke(sent, now) };
    default:
      throw new Fault(
        "invalid_argument",
        `yield.type: unknown type "${sent.type.slice(0, 40)}" (one of sleep, retry_step, wait_for_event, wait_for_events, wait_for_signal, invoke_function, invoke_function_async)`,
        { field: "yield.type", code: "UNSUPPORTED_YIELD_TYPE" },
      );
  }
}

/** The duration counts where there is one: a worker's clock is not the server's. */
function readUntil({ until: text, duration_ms: durationMs }: Yield, now: number): number {
  if (durationMs !== undefined) {
    if (!(durationMs >= 0 && durationMs <= sleepMsMax))
      throw invalid("yield.duration_ms", `must be from 0 to ${sleepMsMax}`);
    return now + Math.round(durationMs);
  }
  const until = text === undefined ? undefined : parseRfc3339(text);
  if (until === undefined) throw invalid("yield.until", "must be an RFC 3339 timestamp");
  if (until - now > sleepMsMax) throw invalid("yield.until", `at most ${sleepMsMax} ms from now`);
  return until;
}

function readFilter(filter: Yield["event_filter"], now: number) {
  if (!filter) throw invalid("yield.event_filter", "required for wait_for_event");
  requireEventName("yield.event_filter.event", filter.event);
  const { payload } = filter;
  return {
    eventName: filter.event,
    match: readMatchField("yield.event_filter.match", filter.match ?? undefined, literalOf(filter)),
    timeoutAt: now + readTimeout(filter.timeout),
    input: payload === undefined ? null : jsonText("yield.event_filter.payload", payload),
    ...(filter.on_timeout && { onTimeout: filter.on_timeout }),
  };
}

function readConditions(
  { conditions = [], mode = "any", timeout, on_timeout: onTimeout = "null" }: Yield,
  now: number,
) {
  const names = new Set(conditions.map(({ name }) => name));
  if (conditions.length === 0) throw invalid("yield.conditions", "required for wait_for_events");
  if (names.size < conditions.length) throw invalid("yield.conditions", "must have different names");
  return {
    mode,
    onTimeout,
    conditions: conditions.map((sent, at) => readCondition(`yield.conditions[${at}]`, sent)),
    timeoutAt: now + readTimeout(timeout, "yield.timeout"),
  };
}

function readSignal({ signal = "", timeout, on_timeout: onTimeout = "null" }: Yield, now: number) {
  const subject = plainText("yield.signal", signal);
  requireSignalName("yield.signal", subject);
  const state = { place: signalPlace, subject, test: "sent" as const, bound: null, wanted: null };
  return {
    ...{ mode: "any" as const, onTimeout, conditions: [{ name: "signal", state }] },
    timeoutAt: now + readTimeout(timeout, "yield.timeout"),
  };
}

/** Milliseconds; text has a unit: `250ms`, `10s`, `1.5h`, `7d`. */
function readTimeout(
  timeout: string | number | null | undefined,
  field = "yield.event_filter.timeout",
): number {
  if (timeout === undefined || timeout === null || timeout === "") return waitMsDefault;
  const [, amount, unit] = /^\s*(\d{1,12}(?:\.\d{1,6})?)\s*(ms|s|m|h|d)\s*$/.exec(`${timeout}`) ?? [];
  const ms =
    typeof timeout === "number" ? timeout : amount && unit ? Number(amount) * unitsMs[unit]! : Number.NaN;
  if (!Number.isFinite(ms)) throw invalid(field, "must be a number with ms, s, m, h or d, such as 7d");
  if (ms < 1 || ms > waitMsMax) throw invalid(field, `must be from 1 ms to ${waitMsMax} ms`);
  return Math.round(ms);
}

function readInvoke(sent: Yield, now: number) {
  const functionId = plainText("yield.function_id", sent.function_id ?? "");
  if (functionId === "") throw invalid("yield.function_id", "required for an invoke");
  if (Buffer.byteLength(functionId) > functionIdBytesMax)
    throw invalid("yield.function_id", `at most ${functionIdBytesMax} bytes`);
  const isAsync = sent.type === "invoke_function_async";
  const given = sent.invoke_timeout_ms ?? 0;
  const timeoutMs = given > 0 ? Math.round(given) : invokeMsDefault;
  if (timeoutMs > invokeMsMax) throw invalid("yield.invoke_timeout_ms", `at most ${invokeMsMax} ms`);
  return {
    functionId,
    input: sent.input === undefined ? null : jsonText("yield.input", sent.input),
    timeoutAt: now + (isAsync ? asyncStartMsMax : timeoutMs),
    isAsync,
    anyFunction: sent.any_function ?? false,
  };
}

/** The name within a step id of the SDKs' form `{run}:{name}:{n}`: workers leave the name out of a yield. */
export function nameOfStepId(stepId: string): string {
  const parts = stepId.split(/(?<!\\):/);
  const name = parts.length >= 3 ? parts.at(-2)! : stepId;
  return name.replace(/\\(.)/g, "$1");
}
