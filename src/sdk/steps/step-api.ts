import { knownOfEmit, whenFields } from "../client/client-events.ts";
import type { Tool } from "../client/tool-types.ts";
import { readToolAnswer, toolCallMs, toolMessage, toolName } from "../client/tools.ts";
import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import { dataFields, stepKey } from "../wire/payload.ts";
import { type Message, readEmitted } from "../wire/read.ts";
import type { Compensations } from "./compensations.ts";
import { open } from "./course.ts";
import type { Deviations } from "./deviations.ts";
import { escapeName, type Scope, type Scopes } from "./scope.ts";
import type { Execution } from "./step.ts";
import type { PerformOptions } from "./step-host.ts";
import { retryRuleOf, stepTimeoutMs } from "./step-retry.ts";
import { waitSteps } from "./step-waits.ts";
import { yieldSteps } from "./step-yields.ts";
import type { Branch, MapOptions, ParallelOptions, PublishOptions, RunOptions, Steps } from "./steps.ts";
import type { EventReader } from "./svc-function.ts";

interface BranchesHost {
  scopes: Scopes;
  requireGoing(): void;
  /** Something is waited for in this branch. */
  isWaiting(branch: Scope): boolean;
  /** The last result of all branches counts for what comes after them. */
  joined(parent: Scope): void;
  /** Resolves when nothing computes, the handler rests, and the check holds. */
  whenResting(check: () => boolean): Promise<void>;
  readonly deviations?: Pick<Deviations, "cutShort"> | undefined;
}

type Settled = PromiseSettledResult<unknown>;

/**
 * Runs every item as a branch of its own. A branch that waits keeps its place among the `concurrency`. With
 * `failFast` throws the first error, once the others have ended or wait.
 */
async function runBranches(
  host: BranchesHost,
  name: string,
  works: readonly (() => unknown)[],
  { failFast, concurrency }: { failFast: boolean; concurrency: number },
): Promise<Settled[]> {
  if (typeof name !== "string" || name === "") throw new TypeError("parallel and map need a name");
  if (!(concurrency >= 1)) throw new TypeError(`${name}: concurrency must be at least 1`);
  host.requireGoing();
  const parent = host.scopes.current();
  const settled: Settled[] = new Array(works.length);
  const running = new Set<Scope>();
  let next = 0;
  let failed: { reason: unknown } | undefined;

  async function branch(at: number, scope: Scope): Promise<void> {
    running.add(scope);
    try {
      settled[at] = { status: "fulfilled", value: await works[at]!() };
    } catch (reason) {
      settled[at] = { status: "rejected", reason };
      failed ??= { reason };
    }
    running.delete(scope);
  }

  /** Runs branch after branch; there are `concurrency` lanes. */
  async function lane(): Promise<void> {
    while (next < works.length && !(failFast && failed)) {
      const at = next++;
      await host.scopes.inBranch(name, at, (scope) => branch(at, scope));
    }
  }

  const all = Promise.all(Array.from({ length: Math.min(concurrency, works.length) }, lane));
  const othersWait = () => (failed !== undefined || running.size === 0) && [...running].every(host.isWaiting);
  await (failFast && works.length > 0 ? Promise.race([all, host.whenResting(othersWait)]) : all);
  host.joined(parent);
  if (next < works.length) host.deviations?.cutShort(`${parent.id}:${escapeName(name)}:`);
  if (failFast && failed) throw failed.reason;
  return settled;
}

const knownOfPublish: KnownOptions<PublishOptions> = { idempotencyKey: true };

/** Steps that call the server. By their idempotency key a step that runs again publishes or emits once. */
function callSteps(
  execution: Execution,
  events: EventReader | undefined,
): Pick<Steps, "publish" | "emit" | "tool"> {
  async function callOnce<Result>(
    name: string,
    key: string | undefined,
    work: (key: string) => Promise<Result>,
  ): Promise<Result> {
    const step = execution.enter(name);
    if (!step) return open();
    return (await execution.perform(step, async () => work(key ?? (await stepKey(step.stepId))))) as Result;
  }

  return {
    async publish(topic, data, options = {}) {
      requireKnown(`step publish:${topic}`, options, knownOfPublish);
      return callOnce(`publish:${topic}`, options.idempotencyKey, async (key) => {
        const message = { topic, ...dataFields(data), idempotencyKey: key };
        const answer = await execution.host.call<Message>("PubSubService/Publish", message);
        return { eventId: String(answer.eventId), sequence: Number(answer.sequence ?? 0) };
      });
    },

    async tool(tool: Tool | string, input?: unknown) {
      const name = `tool.${toolName(tool)}`;
      const step = execution.enter(name);
      if (!step) return open();
      return (await execution.perform(step, async ({ signal }) =>
        readToolAnswer(
          await execution.host.call<Message>("AgentToolsService/InvokeTool", toolMessage(tool, input), {
            ...{ repeatable: false, timeoutMs: toolCallMs, signal },
          }),
        ),
      )) as never;
    },

    async emit(event, data, options = {}) {
      requireKnown(`step emit.${event}`, options, knownOfEmit);
      const { idempotencyKey, metadata, version, ...when } = options;
      return callOnce(`emit.${event}`, idempotencyKey, async (key) => {
        const checked = events ? await events.check(event, data) : data;
        const currentVersion = version ?? events?.version(event);
        const message = {
          event,
          ...dataFields(checked),
          idempotencyKey: key,
          ...(metadata !== undefined && { metadata }),
          ...(currentVersion !== undefined && { version: currentVersion }),
          ...whenFields(when),
        };
        return readEmitted(await execution.host.call<Message>("SvcService/Emit", message));
      });
    },
  };
}

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
