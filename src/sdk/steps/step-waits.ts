import type { ReportedError } from "../wire/errors.ts";
import { type KnownOptions, requireKnown } from "../wire/known-options.ts";
import type { EventMap } from "../wire/types.ts";
import type { Condition } from "../wire/wire.ts";
import { conditionOf, testsOf } from "./conditions.ts";
import type { Execution } from "./step.ts";
import { lateOf, timeoutText } from "./step-yields.ts";
import type { AwaitedThings, ManyOptions, MetKey, MetRun, MetStream, NamedOptions, Steps } from "./steps.ts";
import type { EventReader, HandlerEvent } from "./svc-function.ts";

type WaitSteps = Pick<
  Steps,
  "waitForAny" | "waitForAll" | "waitForNone" | "waitForStream" | "waitForKey" | "waitForRun"
>;
type Given = AwaitedThings<EventMap>;

/** What met a condition, as the server stores it. */
type Stored = HandlerEvent | StoredStream | MetKey | StoredRun;
interface StoredStream {
  entity_id: string;
  entity_type: string;
  version: number;
}
interface StoredRun {
  run_id: string;
  function_id: string;
  status: MetRun["status"];
  output?: unknown;
  output_left_out?: true;
  error?: ReportedError;
  cause?: string;
}

const readStream = ({ entity_id, entity_type, version }: StoredStream): MetStream => ({
  ...{ entityId: entity_id, entityType: entity_type, version },
});

const readRun = ({
  run_id,
  function_id,
  status,
  output,
  output_left_out,
  error,
  cause,
}: StoredRun): MetRun => ({
  ...{ runId: run_id, functionId: function_id, status },
  ...(output !== undefined && { output }),
  ...(output_left_out && { outputLeftOut: true }),
  ...(error && { error }),
  ...(cause !== undefined && { cause }),
});

const known: KnownOptions<ManyOptions> = { timeout: true, onTimeout: true };
/** As on the server. */
const conditionsMax = 20;
const kinds = ["event", "stream", "key", "run"] as const;

/** The steps that wait for several things at once, and for anything else than an event. */
export function waitSteps(execution: Execution, events: EventReader | undefined): WaitSteps {
  async function read(kind: (typeof kinds)[number], met: Stored): Promise<unknown> {
    if (kind === "stream") return readStream(met as StoredStream);
    if (kind === "run") return readRun(met as StoredRun);
    return kind === "event" && events ? execution.during(events.read(met as HandlerEvent)) : met;
  }

  async function awaited(
    mode: "any" | "all",
    name: string,
    conditions: readonly Condition[],
    options: ManyOptions,
  ) {
    requireKnown(`step ${name}`, options, known);
    const { timeout, onTimeout = "null" } = options;
    const late = lateOf(name, onTimeout);
    return execution.awaitStored(
      name,
      (base) => ({
        ...base,
        type: "wait_for_events",
        mode,
        conditions: [...conditions],
        on_timeout: onTimeout,
        ...(timeout !== undefined && { timeout: timeoutText(name, timeout) }),
      }),
      late,
    );
  }

  function conditionsOf(name: string, given: Given): Condition[] {
    const conditions = Object.entries(given).map(([own, one]) =>
      conditionOf(`step ${name}: ${own}`, own, one),
    );
    if (conditions.length === 0) throw new TypeError(`step ${name}: needs something to wait for`);
    if (conditions.length > conditionsMax)
      throw new TypeError(`step ${name}: waits for at most ${conditionsMax} things`);
    return conditions;
  }

  async function first(name: string, given: Given, options: ManyOptions = {}) {
    const met = (await awaited("any", name, conditionsOf(name, given), options)) as
      | ({ name: string } & Partial<Record<(typeof kinds)[number], Stored>>)
      | null;
    if (met === null) return null;
    const kind = kinds.find((one) => met[one] !== undefined)!;
    return { name: met.name, [kind]: await read(kind, met[kind]!) };
  }

  /** A wait for one thing, which gives that thing. */
  async function only(kind: keyof typeof testsOf, own: string, thing: object, options: NamedOptions = {}) {
    const { name = own, timeout, onTimeout, ...test } = options;
    requireKnown(`step ${name}`, options, { name: true, ...known, ...testsOf[kind] });
    const condition = conditionOf(`step ${name}`, "it", { ...test, ...thing });
    const rest = { ...(timeout !== undefined && { timeout }), ...(onTimeout !== undefined && { onTimeout }) };
    const met = (await awaited("any", name, [condition], rest)) as Partial<Record<string, Stored>> | null;
    return met && (await read(kind, met[kind]!));
  }

  return {
    waitForAny: first as WaitSteps["waitForAny"],
    waitForNone: first as WaitSteps["waitForNone"],
    waitForAll: (async (name: string, given: Given, options: ManyOptions = {}) => {
      const conditions = conditionsOf(name, given);
      const met = (await awaited("all", name, conditions, options)) as Record<string, Stored> | null;
      if (met === null) return null;
      const all: [string, unknown][] = [];
      for (const condition of conditions) {
        const kind = kinds.find((word) => word in condition)!;
        all.push([condition.name, await read(kind, met[condition.name]!)]);
      }
      return Object.fromEntries(all);
    }) as WaitSteps["waitForAll"],
    waitForStream: ((stream: string, options?: NamedOptions) =>
      only("stream", stream, { stream }, options)) as WaitSteps["waitForStream"],
    waitForKey: ((bucket: string, key: string, options?: NamedOptions) =>
      only("key", `${bucket}/${key}`, { bucket, key }, options)) as WaitSteps["waitForKey"],
    waitForRun: ((run: string, options?: NamedOptions) =>
      only("run", run, { run }, options)) as WaitSteps["waitForRun"],
  };
}
