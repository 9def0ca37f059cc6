import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import type { Compensations } from "./compensations.ts";
import { open } from "./course.ts";
import type { Deviations } from "./deviations.ts";
import type { Execution } from "./step.ts";
import { branchSteps } from "./step-branches.ts";
import { callSteps } from "./step-calls.ts";
import type { PerformOptions } from "./step-host.ts";
import { retryRuleOf, stepTimeoutMs } from "./step-retry.ts";
import { waitSteps } from "./step-waits.ts";
import { yieldSteps } from "./step-yields.ts";
import type { RunOptions, Steps } from "./steps.ts";
import type { EventReader } from "./svc-function.ts";

const known: KnownOptions<RunOptions> = { timeout: true, retry: true, compensate: true };

/** The `step` of a handler, for the execution that it belongs to. */
export function createSteps(
  execution: Execution,
  compensations: Compensations,
  events: EventReader | undefined,
): Steps {
  const steps: Steps = {
    async run(name, work, options = {}) {
      requireKnown(`step ${name}`, options, known);
      const how = performOptions(name, options);
      const step = execution.enter(name);
      if (!step) return open();
      const { compensate } = options;
      if (!compensate) return (await execution.perform(step, work, how)) as never;
      const compensation = compensations.reserve(name, step.scope, step);
      // The server may end the run at any time: it knows of the undoing before there is anything to undo.
      if (compensation.known) await execution.during(compensation.known);
      try {
        const output = await execution.perform(step, work, how);
        compensation.done(() => compensate(output as never));
        return output as never;
      } catch (error) {
        compensation.failed();
        throw error;
      }
    },
    ...yieldSteps(execution, events),
    ...waitSteps(execution, events),
    ...callSteps(execution, events),
    ...branchSteps(execution, () => steps),
    compensate(name, undo) {
      if (!execution.requireGoing(name)) return;
      const { known, done } = compensations.reserve(name, execution.scopes.current());
      done(undo);
      known?.catch(() => {});
    },
  };
  return Object.assign(steps, mapMethods(steps, heard(execution.deviations)));
}

/** Throws TypeError that names the option. */
const performOptions = (name: string, { timeout, retry, compensate }: RunOptions<never>): PerformOptions => ({
  isUndone: compensate !== undefined,
  timeoutMs: timeout === undefined ? undefined : stepTimeoutMs(name, timeout),
  retry: retry && retryRuleOf(name, retry),
});

/** A step may fail before its handler awaits it. Without a handler on its promise the process would end. */
const heard =
  (deviations: Deviations | undefined) =>
  <Given extends unknown[], Result>(method: (...given: Given) => Result) =>
  (...given: Given): Result => {
    const closed = deviations?.opened() ?? ignored;
    const result = method(...given);
    if (result instanceof Promise) result.then(closed, closed);
    else closed();
    return result;
  };

const ignored = () => {};

function mapMethods(steps: Steps, change: (method: never) => unknown): Partial<Steps> {
  return Object.fromEntries(
    Object.entries(steps).map(([name, method]) => [name, change(method as never)]),
  ) as Partial<Steps>;
}
