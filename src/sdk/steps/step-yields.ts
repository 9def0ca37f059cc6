import { type Duration, durationMs, timeoutNames, withUnits } from "../wire/duration.ts";
import { WaitTimeoutError } from "../wire/errors.ts";
import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import { outputText } from "../wire/payload.ts";
import { matchedValue } from "./conditions.ts";
import type { Execution } from "./step.ts";
import type { InvokeOptions, NamedOptions, Steps, WaitOptions } from "./steps.ts";
import type { EventReader, HandlerEvent, SvcFunction } from "./svc-function.ts";

type YieldSteps = Pick<
  Steps,
  "sleep" | "sleepUntil" | "waitForEvent" | "waitForSignal" | "invoke" | "invokeAsync"
>;

const knownOfWaits: KnownOptions<WaitOptions> = {
  ...{ name: true, match: true, matchValue: true, timeout: true, onTimeout: true, payload: true },
};
const knownOfSignals: KnownOptions<NamedOptions> = { name: true, timeout: true, onTimeout: true };
const knownOfStarts = { input: true } as const;
const knownOfInvokes: KnownOptions<InvokeOptions> = { ...knownOfStarts, ...timeoutNames };

const rfc3339 = /^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(?:\.\d+)?(?:[Zz]|[+-]\d\d:\d\d)$/;

/** The steps that the server finishes: the execution ends at them, unless their result is stored already. */
export function yieldSteps(execution: Execution, events: EventReader | undefined): YieldSteps {
  const { host } = execution;

  return {
    async sleep(name, duration) {
      await execution.awaitStored(name, (base) => {
        const ms = durationMs(duration, `step ${name}`);
        // The server adds the duration to its own time; older servers read the instant.
        return { ...base, type: "sleep", until: new Date(host.now() + ms).toISOString(), duration_ms: ms };
      });
    },
    async sleepUntil(name, at) {
      await execution.awaitStored(name, (base) => {
        // Without its zone a text would be read by that of the worker's machine.
        const until = typeof at === "string" && !rfc3339.test(at) ? Number.NaN : new Date(at).getTime();
        if (Number.isNaN(until))
          throw new TypeError(`step ${name}: not an instant: ${at} (write a Date, RFC 3339 or milliseconds)`);
        return { ...base, type: "sleep", until: new Date(until).toISOString() };
      });
    },

    async waitForEvent(event: string, options: WaitOptions = {}) {
      const { name = event, match, matchValue, timeout, payload, onTimeout = "null" } = options;
      requireKnown(`step ${name}`, options, knownOfWaits);
      const late = lateOf(name, onTimeout);
      const awaited = await execution.awaitStored(
        name,
        (base) => ({
          ...base,
          type: "wait_for_event",
          event_filter: {
            event,
            on_timeout: onTimeout,
            ...(match !== undefined && { match }),
            ...matchedValue(matchValue),
            ...(timeout !== undefined && { timeout: timeoutText(name, timeout) }),
            ...(outputText(`the payload of ${name}`, payload) !== undefined && { payload }),
          },
        }),
        late,
      );
      // A person may have ended the wait with any value, which need not look like an event.
      const isEvent = typeof awaited === "object" && awaited !== null && "name" in awaited;
      return (
        isEvent && events ? await execution.during(events.read(awaited as HandlerEvent)) : awaited
      ) as never;
    },

    async waitForSignal(signal: string, options: NamedOptions = {}) {
      const { name = signal, timeout, onTimeout = "null" } = options;
      requireKnown(`step ${name}`, options, knownOfSignals);
      return (await execution.awaitStored(
        name,
        (base) => ({
          ...{ ...base, type: "wait_for_signal", signal, on_timeout: onTimeout },
          ...(timeout !== undefined && { timeout: timeoutText(name, timeout) }),
        }),
        lateOf(name, onTimeout),
      )) as never;
    },

    async invoke(target: SvcFunction | string, options: InvokeOptions = {}) {
      const id = idOf(target);
      requireKnown(`step ${id}`, options, knownOfInvokes);
      // Both names were there before, and the first one counted.
      const { timeout, input, ...rest } = options;
      const limit: InvokeOptions = timeout == null ? rest : { timeout };
      const { timeoutMs } = withUnits(`step ${id}`, limit, knownOfInvokes);
      const limitMs = invokeLimitMs(id, timeoutMs);
      return (await execution.awaitStored(id, (base) => ({
        ...base,
        type: "invoke_function",
        function_id: id,
        ...withInput(id, input),
        invoke_timeout_ms: limitMs,
        any_function: true,
      }))) as never;
    },

    async invokeAsync(target, options = {}) {
      const id = idOf(target);
      requireKnown(`step ${id}`, options, knownOfStarts);
      const { input } = options;
      const output = await execution.awaitStored(id, (base) => ({
        ...base,
        type: "invoke_function_async",
        function_id: id,
        ...withInput(id, input),
        any_function: true,
      }));
      return { runId: (output as { run_id: string }).run_id };
    },
  };
}

/** The server's own limit: it waits no longer for any child. */
export const invokeMsMax = 366 * 86_400_000;

function invokeLimitMs(id: string, ms: number | undefined): number {
  if (ms === undefined) return invokeMsMax;
  if (!(ms >= 1 && ms <= invokeMsMax))
    throw new TypeError(`step ${id}: timeout must be from 1 to ${invokeMsMax} ms`);
  return Math.round(ms);
}

const idOf = (target: SvcFunction | string): string => (typeof target === "string" ? target : target.id);

/** Throws what JSON cannot hold before anything is yielded. */
function withInput(target: string, input: unknown): { input?: unknown } {
  return outputText(`the input of ${target}`, input) === undefined ? {} : { input };
}

/** What a wait gives, or throws, when it is over. */
export function lateOf(name: string, onTimeout: "null" | "throw"): (message: string) => null {
  if (onTimeout !== "null" && onTimeout !== "throw")
    throw new TypeError(`step ${name}: onTimeout must be "null" or "throw"`);
  return (message) => {
    if (onTimeout === "null") return null;
    throw new WaitTimeoutError(`step ${name}: ${message}`);
  };
}

/** The form of timeouts on the wire: whole milliseconds, at least one. */
export function timeoutText(step: string, timeout: Duration): string {
  return `${Math.max(1, durationMs(timeout, `step ${step}`))}ms`;
}
