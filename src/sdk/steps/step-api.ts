import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import { type BranchesHost, runBranches } from "./branches.ts";
import type { Compensations } from "./compensations.ts";
import { open } from "./course.ts";
import type { Deviations } from "./deviations.ts";
import type { Execution } from "./step.ts";
import { callSteps } from "./step-calls.ts";
import type { PerformOptions } from "./step-host.ts";
import { retryRuleOf, stepTimeoutMs } from "./step-retry.ts";
import { waitSteps } from "./step-waits.ts";
import { yieldSteps } from "./step-yields.ts";
import type { Branch, MapOptions, ParallelOptions, RunOptions, Steps } from "./steps.ts";
import type { EventReader } from "./svc-function.ts";

const knownOfParallel: KnownOptions<ParallelOptions> = { allSettled: true };
const knownOfMap: KnownOptions<MapOptions> = { concurrency: true, ...knownOfParallel };

/** The steps that have steps of their own: `steps` gives what the branches of `parallel` are called with. */
function branchSteps(host: BranchesHost, steps: () => Steps): Pick<Steps, "parallel" | "map"> {
  return {
    async parallel(name: string, branches: object, options: ParallelOptions = {}) {
      requireKnown(`step ${name}`, options, knownOfParallel);
      const { allSettled = false } = options;
      const names = Array.isArray(branches) ? undefined : Object.keys(branches);
      const works = Object.values(branches as Record<string, Branch>).map((branch) => () => branch(steps()));
      const settled = await runBranches(host, name, works, {
        failFast: !allSettled,
        concurrency: Number.POSITIVE_INFINITY,
      });
      const results = settledOrResults(settled, allSettled);
      return (
        names ? Object.fromEntries(names.map((branch, at) => [branch, results[at]])) : results
      ) as never;
    },

    async map(
      name: string,
      items: readonly unknown[],
      work: (item: never, index: number) => unknown,
      options: MapOptions = {},
    ) {
      requireKnown(`step ${name}`, options, knownOfMap);
      const { concurrency = Number.POSITIVE_INFINITY, allSettled = false } = options;
      const works = items.map((item, at) => () => work(item as never, at));
      const settled = await runBranches(host, name, works, { failFast: !allSettled, concurrency });
      return settledOrResults(settled, allSettled) as never;
    },
  };
}

function settledOrResults(settled: PromiseSettledResult<unknown>[], allSettled: boolean): unknown[] {
  return allSettled ? settled : settled.map((one) => (one as PromiseFulfilledResult<unknown>).value);
}

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
