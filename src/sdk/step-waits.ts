import type { Execution } from "./step.ts";
import { lateOf, timeoutText } from "./step-yields.ts";
import type { AwaitedEvent, ManyOptions, Steps } from "./steps.ts";
import type { EventReader, HandlerEvent } from "./svc-function.ts";

type ManySteps = Pick<Steps, "waitForAny" | "waitForAll" | "waitForNone">;
type Given = Readonly<Record<string, AwaitedEvent>>;

/** The steps that wait for several events at once. */
export function waitSteps(execution: Execution, events: EventReader | undefined): ManySteps {
  const read = async (event: HandlerEvent): Promise<unknown> => (events ? events.read(event) : event);

  async function awaited(mode: "any" | "all", name: string, given: Given, options: ManyOptions) {
    const { timeout, onTimeout = "null" } = options;
    const conditions = Object.entries(given).map(([own, { event, match, matchValue }]) => ({
      name: own,
      event,
      ...(match !== undefined && { match }),
      ...(matchValue !== undefined && { match_value: matchValue }),
    }));
    if (conditions.length === 0) throw new TypeError(`step ${name}: needs an event to wait for`);
    const late = lateOf(name, onTimeout);
    return execution.awaitStored(
      name,
      (base) => ({
        ...base,
        type: "wait_for_events",
        mode,
        conditions,
        on_timeout: onTimeout,
        ...(timeout !== undefined && { timeout: timeoutText(timeout) }),
      }),
      late,
    );
  }

  async function first(name: string, given: Given, options: ManyOptions = {}) {
    const met = (await awaited("any", name, given, options)) as { name: string; event: HandlerEvent } | null;
    return met && { name: met.name, event: await read(met.event) };
  }

  return {
    waitForAny: first as ManySteps["waitForAny"],
    waitForNone: first as ManySteps["waitForNone"],
    waitForAll: (async (name: string, given: Given, options: ManyOptions = {}) => {
      const met = (await awaited("all", name, given, options)) as Record<string, HandlerEvent> | null;
      if (met === null) return null;
      const all: [string, unknown][] = [];
      for (const own of Object.keys(given)) all.push([own, await read(met[own]!)]);
      return Object.fromEntries(all);
    }) as ManySteps["waitForAll"],
  };
}
