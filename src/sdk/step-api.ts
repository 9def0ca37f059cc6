import { type BranchesHost, runBranches } from "./branches.ts";
import type { Compensations } from "./compensations.ts";
import { type Duration, durationMs } from "./duration.ts";
import type { EventRegistry } from "./events.ts";
import type { HandlerEvent, SvcFunction } from "./function.ts";
import { dataFields, outputText, stepKey } from "./payload.ts";
import { type Message, readEmitted } from "./read.ts";
import type { Execution } from "./step.ts";
import type { Branch, Steps } from "./steps.ts";

const idOf = (target: SvcFunction | string): string => (typeof target === "string" ? target : target.id);

/** What the steps of a handler are, over the execution they belong to. */
export function createSteps(
  execution: Execution,
  compensations: Compensations,
  events: EventRegistry | undefined,
): Steps {
  const branchesHost: BranchesHost = execution;

  async function sleepUntilMs(name: string, untilMs: () => number): Promise<void> {
    await execution.awaitStored(name, (base) => {
      const at = untilMs();
      if (Number.isNaN(at)) throw new TypeError(`step ${name}: not an instant`);
      return { ...base, type: "sleep", until: new Date(at).toISOString() };
    });
  }

  function settledOrResults(
    settled: PromiseSettledResult<unknown>[],
    allSettled: boolean | undefined,
  ): unknown[] {
    return allSettled ? settled : settled.map((one) => (one as PromiseFulfilledResult<unknown>).value);
  }

  /** Throws what JSON cannot hold before anything is yielded. */
  function withInput(target: string, input: unknown): { input?: unknown } {
    return outputText(`the input of ${target}`, input) === undefined ? {} : { input };
  }

  /** A step whose work is one call with an idempotency key. */
  async function callOnce<Result>(
    name: string,
    key: string | undefined,
    work: (key: string) => Promise<Result>,
  ): Promise<Result> {
    execution.requireGoing();
    const step = execution.use(name);
    return (await execution.perform(step, async () => work(key ?? (await stepKey(step.stepId))))) as Result;
  }

  const steps = {
    async run(name, work, options = {}) {
      execution.requireGoing();
      const step = execution.use(name);
      const { timeout, compensate } = options;
      const timeoutMs = timeout === undefined ? undefined : durationMs(timeout);
      const compensation = compensate && compensations.reserve(name, step.scope);
      const output = await execution.perform(step, work, { timeoutMs });
      compensation?.(() => compensate?.(output as never));
      return output as never;
    },

    sleep: (name, duration) => sleepUntilMs(name, () => execution.host.now() + durationMs(duration)),
    sleepUntil: (name, at) => sleepUntilMs(name, () => new Date(at).getTime()),

    async waitForEvent(event, { name = event, match, matchValue, timeout, payload } = {}) {
      const awaited = await execution.awaitStored(name, (base) => ({
        ...base,
        type: "wait_for_event",
        event_filter: {
          event,
          ...(match !== undefined && { match }),
          ...(matchValue !== undefined && { match_value: matchValue }),
          ...(timeout !== undefined && { timeout: timeoutText(timeout) }),
          ...(outputText(`the payload of ${name}`, payload) !== undefined && { payload }),
        },
      }));
      // What a person put in the place of the event need not look like one.
      const isEvent = typeof awaited === "object" && awaited !== null && "name" in awaited;
      return (isEvent && events ? await events.read(awaited as HandlerEvent) : awaited) as never;
    },

    async invoke(target: SvcFunction | string, { input, timeoutMs }: Parameters<Steps["invoke"]>[1] = {}) {
      const id = idOf(target);
      return (await execution.awaitStored(id, (base) => ({
        ...base,
        type: "invoke_function",
        function_id: id,
        ...withInput(id, input),
        ...(timeoutMs !== undefined && { invoke_timeout_ms: Math.round(timeoutMs) }),
      }))) as never;
    },

    async invokeAsync(target, { input } = {}) {
      const id = idOf(target);
      const output = await execution.awaitStored(id, (base) => ({
        ...base,
        type: "invoke_function_async",
        function_id: id,
        ...withInput(id, input),
      }));
      return { runId: (output as { run_id: string }).run_id };
    },

    publish: (topic, data, { idempotencyKey } = {}) =>
      callOnce(`publish:${topic}`, idempotencyKey, async (key) => {
        const message = { topic, ...dataFields(data), idempotencyKey: key };
        const answer = await execution.host.call<Message>("PubSubService/Publish", message);
        return { eventId: String(answer.eventId), sequence: Number(answer.sequence ?? 0) };
      }),

    emit: (event, data, { idempotencyKey, metadata, version } = {}) =>
      callOnce(`emit.${event}`, idempotencyKey, async (key) => {
        const checked = events ? await events.check(event, data) : data;
        const currentVersion = version ?? events?.version(event);
        const message = {
          event,
          ...dataFields(checked),
          idempotencyKey: key,
          ...(metadata !== undefined && { metadata }),
          ...(currentVersion !== undefined && { version: currentVersion }),
        };
        return readEmitted(await execution.host.call<Message>("SvcService/Emit", message));
      }),

    async parallel(name: string, branches: object, { allSettled = false } = {}) {
      const names = Array.isArray(branches) ? undefined : Object.keys(branches);
      const works = Object.values(branches as Record<string, Branch>).map((branch) => () => branch(steps));
      const settled = await runBranches(branchesHost, name, works, {
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
      { concurrency = Number.POSITIVE_INFINITY, allSettled = false } = {},
    ) {
      const works = items.map((item, at) => () => work(item as never, at));
      const settled = await runBranches(branchesHost, name, works, { failFast: !allSettled, concurrency });
      return settledOrResults(settled, allSettled) as never;
    },

    compensate(name, undo) {
      execution.requireGoing();
      compensations.reserve(name, execution.scopes.current())(undo);
    },
  } as Steps;
  return Object.assign(steps, mapMethods(steps, heard));
}

/**
 * A step that nobody awaits yet, while another one ends the execution, must not count as an error that nobody handled:
 * that would end the process, and every other run in it.
 */
const heard =
  <Given extends unknown[], Result>(method: (...given: Given) => Result) =>
  (...given: Given): Result => {
    const result = method(...given);
    if (result instanceof Promise) result.catch(() => {});
    return result;
  };

function mapMethods(steps: Steps, change: (method: never) => unknown): Partial<Steps> {
  return Object.fromEntries(
    Object.entries(steps).map(([name, method]) => [name, change(method as never)]),
  ) as Partial<Steps>;
}

/** The form of timeouts on the wire: whole milliseconds, at least one. */
function timeoutText(timeout: Duration): string {
  return `${Math.max(1, Math.round(durationMs(timeout)))}ms`;
}
